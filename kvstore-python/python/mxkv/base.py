"""What programs take from MXNet's ``mxnet.base``.

>>> py_str(b'weight'), py_str('weight')
('weight', 'weight')
"""

from __future__ import annotations

from .errors import MXNetError

__all__ = ["MXNetError", "py_str"]


def py_str(x: bytes | str) -> str:
    """Returns the key that an updater got as a string. MXNet gives updaters ``bytes``; here they get strings already."""
    return x if isinstance(x, str) else x.decode("utf-8")
