"""Arrays of random numbers, from one sequence for the whole process.

>>> from mxkv import nd
>>> nd.random.seed(7)
>>> first = nd.random.normal(shape=(2, 2)).tolist()
>>> nd.random.seed(7)
>>> nd.random.normal(shape=(2, 2)).tolist() == first
True
"""

from __future__ import annotations

from typing import Any

from . import _native
from ._arguments import shown
from ._dtypes import name_of
from ._native import NDArray
from .context import Context, _pair
from .errors import ArgumentTypeError

__all__ = ["normal", "seed", "uniform"]


def seed(seed_state: int) -> None:
    """Starts the sequence anew: after the same seed, the same calls give the same numbers."""
    _native.random_seed(seed_state)


def uniform(
    low: float = 0,
    high: float = 1,
    shape: Any = (1,),
    dtype: Any = None,
    ctx: Context | None = None,
    out: NDArray | None = None,
) -> NDArray:
    """Returns numbers from ``low`` up to ``high``, all alike; with ``out``, writes them there.

    >>> uniform(2, 3, shape=(2, 2)).shape
    (2, 2)
    >>> from mxkv import nd
    >>> uniform(out=nd.zeros((2, 3))).shape
    (2, 3)
    """
    shape, dtype, ctx = _like(out, shape, dtype, ctx)
    made = _native.random_uniform(low, high, shape, name_of(dtype), _pair(ctx))
    return made if out is None else made.copyto(out)


def normal(
    loc: float = 0,
    scale: float = 1,
    shape: Any = (1,),
    dtype: Any = None,
    ctx: Context | None = None,
    out: NDArray | None = None,
) -> NDArray:
    """Returns normally distributed numbers; with ``out``, writes them there.

    >>> normal(shape=3).shape
    (3,)
    """
    shape, dtype, ctx = _like(out, shape, dtype, ctx)
    made = _native.random_normal(loc, scale, shape, name_of(dtype), _pair(ctx))
    return made if out is None else made.copyto(out)


def _like(out: NDArray | None, shape: Any, dtype: Any, ctx: Context | None) -> tuple:
    """Returns shape, dtype and device: those of the output if there is one."""
    if out is None:
        return shape, dtype, ctx
    if not isinstance(out, NDArray):
        raise ArgumentTypeError(f"out: expected an `NDArray`, found {shown(out)}")
    return out.shape, out.dtype, out.context
