"""Arrays of random numbers. The process has one sequence of random numbers.

>>> from mxkv import nd
>>> nd.random.seed(7)
>>> first = nd.random.normal(shape=(2, 2)).tolist()
>>> nd.random.seed(7)
>>> nd.random.normal(shape=(2, 2)).tolist() == first
True
"""

from __future__ import annotations

from typing import Any

import numpy

from . import _native
from ._arguments import shown
from ._dtypes import name_of
from ._native import NDArray
from .context import Context, _pair
from .errors import ArgumentTypeError, SpecMismatchError

__all__ = ["normal", "seed", "uniform"]


def seed(seed_state: int) -> None:
    """Sets the seed. After the same seed, the same calls return the same numbers."""
    _native.random_seed(seed_state)


def uniform(
    low: float = 0,
    high: float = 1,
    shape: Any = None,
    dtype: Any = None,
    ctx: Context | None = None,
    out: NDArray | None = None,
) -> NDArray:
    """Returns uniform random numbers from ``[low, high)``. Writes them to ``out`` if given.

    The default shape is ``(1,)``. If ``out`` is given, shape, dtype and device must match it.

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
    shape: Any = None,
    dtype: Any = None,
    ctx: Context | None = None,
    out: NDArray | None = None,
) -> NDArray:
    """Returns normally distributed random numbers. Writes them to ``out`` if given.

    >>> normal(shape=3).shape
    (3,)
    """
    shape, dtype, ctx = _like(out, shape, dtype, ctx)
    made = _native.random_normal(loc, scale, shape, name_of(dtype), _pair(ctx))
    return made if out is None else made.copyto(out)


def _like(out: NDArray | None, shape: Any, dtype: Any, ctx: Context | None) -> tuple:
    """Returns shape, dtype and device, taken from ``out`` if given."""
    if out is None:
        return (1,) if shape is None else shape, dtype, ctx
    if not isinstance(out, NDArray):
        raise ArgumentTypeError(f"out: expected an `NDArray`, found {shown(out)}")
    if shape is not None:
        _check("shape", tuple(shape) if numpy.iterable(shape) else (shape,), out.shape)
    if dtype is not None:
        _check("dtype", name_of(dtype), name_of(out.dtype))
    if ctx is not None:
        _check("ctx", _pair(ctx), _pair(out.context))
    return out.shape, out.dtype, out.context


def _check(name: str, found: Any, expected: Any) -> None:
    if found != expected:
        text = f"{name}: expected that of `out`, {expected}, found {found}"
        raise SpecMismatchError(text, expected=str(expected), found=str(found))
