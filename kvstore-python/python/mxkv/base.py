"""The part of MXNet's ``mxnet.base`` that programs with stores use.

>>> py_str(b'weight'), py_str('weight')
('weight', 'weight')
"""

from __future__ import annotations

from .errors import MXNetError

__all__ = ["MXNetError", "py_str"]


def py_str(x: bytes | str) -> str:
    """Returns a key as a string. MXNet passes ``bytes`` to updaters. This package passes strings.
    """
    return x if isinstance(x, str) else x.decode("utf-8")
