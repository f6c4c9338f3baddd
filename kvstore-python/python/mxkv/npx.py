"""The functions of MXNet's ``mxnet.npx`` that programs with :mod:`mxkv.np` use.

>>> from mxkv import npx
>>> npx.set_np()
>>> npx.cpu(1)
cpu(1)
>>> npx.reset_np()
"""

from __future__ import annotations

from . import _native
from .context import cpu, cpu_pinned, current_context, gpu, num_gpus
from .nd import load, save, waitall

__all__ = [
    "cpu",
    "cpu_pinned",
    "current_context",
    "gpu",
    "is_np_array",
    "is_np_shape",
    "load",
    "num_gpus",
    "reset_np",
    "save",
    "set_np",
    "waitall",
]

_is_np = False


def set_np(shape: bool = True, array: bool = True) -> None:
    """Makes pulls return arrays of :mod:`mxkv.np`, and passes such arrays to updaters. ``shape``
    has no effect, because arrays always have NumPy's shapes.
    """
    global _is_np
    _is_np = bool(array)
    _native.set_np(_is_np)


def reset_np() -> None:
    """Makes pulls and updaters use arrays of :mod:`mxkv.nd` again."""
    set_np(array=False)


def is_np_array() -> bool:
    """Returns whether :func:`set_np` has selected arrays of :mod:`mxkv.np`."""
    return _is_np


def is_np_shape() -> bool:
    """Returns whether arrays without axes or without elements exist, which is true."""
    return True
