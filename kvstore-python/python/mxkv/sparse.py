"""Row-sparse arrays, which store only some of their rows: gradients of large embeddings.

>>> import mxkv as mx
>>> kv = mx.kv.create()
>>> kv.init('embedding', mx.nd.ones((5, 2)))
>>> gradient = mx.nd.sparse.row_sparse_array(([[7, 7], [9, 9]], [4, 1]), shape=(5, 2))
>>> kv.push('embedding', gradient)
>>> kv.row_sparse_pull('embedding', row_ids=[1, 2]).data.tolist()
[[9.0, 9.0], [0.0, 0.0]]
"""

from __future__ import annotations

from typing import Any

import numpy

from . import _native
from ._dtypes import name_of
from ._native import RowSparseNDArray
from .context import Context, _pair
from .errors import ArgumentTypeError, InvalidArgumentError

__all__ = ["RowSparseNDArray", "row_sparse_array", "zeros"]


def row_sparse_array(
    arg1: Any, shape: Any = None, ctx: Context | None = None, dtype: Any = None
) -> RowSparseNDArray:
    """Returns a row-sparse array.

    ``arg1`` is one of these:

    - A pair of the rows and their indices. The indices may have any order. Rows with the same index
      are summed. ``shape`` is then required.
    - A dense array. The result has its rows that are not all zeros.
    - A row-sparse array, which is copied.
    - A shape. The result then has no rows.

    >>> from mxkv import nd
    >>> row_sparse_array([[0, 0], [1, 2]]).indices.tolist()
    [1]
    """
    from .nd import array

    if isinstance(arg1, RowSparseNDArray):
        return copied(arg1, ctx, name_of(dtype, None))
    if not isinstance(arg1, tuple):
        return array(arg1, ctx, dtype).tostype("row_sparse")
    if arg1 and all(isinstance(length, (int, numpy.integer)) for length in arg1):
        if shape is not None and tuple(shape) != arg1:
            raise InvalidArgumentError(f"shape: expected {arg1}, found {tuple(shape)}")
        return zeros("row_sparse", arg1, ctx, dtype)
    if shape is None:
        raise ArgumentTypeError(
            "shape: expected the shape of the complete array beside rows and row indices, "
            "found None"
        )
    data, indices = arg1
    return RowSparseNDArray(array(data, ctx, dtype), indices, shape)


def zeros(stype: str, shape: Any, ctx: Context | None = None, dtype: Any = None) -> Any:
    """Returns zeros: a row-sparse array without rows for ``'row_sparse'``, a dense array for
    ``'default'``.
    """
    if stype == "default":
        return _native.full(shape, 0, name_of(dtype), _pair(ctx))
    if stype != "row_sparse":
        raise InvalidArgumentError(f"stype: expected `row_sparse` or `default`, found `{stype}`")
    dims = tuple(shape) if isinstance(shape, (list, tuple)) else (shape,)
    none = _native.full((0, *dims[1:]), 0, name_of(dtype), _pair(ctx))
    return RowSparseNDArray(none, [], dims)


def copied(source: RowSparseNDArray, ctx: Context | None, dtype: str | None) -> RowSparseNDArray:
    """Returns a copy of a row-sparse array, converted to a dtype and moved to a device if given."""
    cast = source.copy() if dtype is None else source.astype(dtype)
    return cast if ctx is None else cast.as_in_context(ctx)
