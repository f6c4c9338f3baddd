"""What programs with ``mxkv.np`` take from beside it.

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
    """Gives updaters arrays of :mod:`mxkv.np` from now on, and pulls return them. Shapes are NumPy's at
    all times.
    """
    global _is_np
    _is_np = bool(array)
    _native.set_np(_is_np)


def reset_np() -> None:
    """Gives updaters arrays of :mod:`mxkv.nd` again."""
    set_np(array=False)


def is_np_array() -> bool:
    """Returns whether :func:`set_np` is in force."""
    return _is_np


def is_np_shape() -> bool:
    """Returns whether arrays without axes and without elements exist. They do."""
    return True
