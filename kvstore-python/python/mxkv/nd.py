"""Arrays as MXNet's programs know them: ``mx.nd.ones((2, 3))``.

>>> from mxkv import nd
>>> a = nd.ones((2, 3))
>>> b = a * 2 + 1
>>> b.asnumpy()
array([[3., 3., 3.],
       [3., 3., 3.]], dtype=float32)
>>> print(b[0])
<BLANKLINE>
[3. 3. 3.]
<NDArray 3 @cpu(0)>

Arithmetic of two arrays needs equal shapes and dtypes; comparisons broadcast. Elements are ``float32`` where nobody
says more: also those of :func:`array` from arrays of other dtypes, as in MXNet (:func:`from_dlpack` keeps them).
"""

from __future__ import annotations

import os
from typing import Any, Mapping, Sequence

import numpy

from . import _native, random, sparse
from ._dtypes import name_of
from ._native import NDArray, RowSparseNDArray
from .context import Context, _pair
from .errors import InvalidArgumentError

__all__ = [
    "NDArray",
    "RowSparseNDArray",
    "abs",
    "arange",
    "array",
    "ceil",
    "clip",
    "concat",
    "concatenate",
    "cos",
    "dot",
    "empty",
    "exp",
    "fix",
    "floor",
    "from_dlpack",
    "from_numpy",
    "full",
    "load",
    "log",
    "maximum",
    "minimum",
    "negative",
    "norm",
    "ones",
    "ones_like",
    "power",
    "random",
    "relu",
    "rint",
    "round",
    "rsqrt",
    "save",
    "sigmoid",
    "sign",
    "sin",
    "sparse",
    "sqrt",
    "square",
    "sum",
    "tanh",
    "to_dlpack_for_read",
    "transpose",
    "waitall",
    "zeros",
    "zeros_like",
]


def full(shape: Any, val: Any, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """Returns an array with every element set to a number.

    >>> full((2,), 7, dtype='int32').asnumpy()
    array([7, 7], dtype=int32)
    """
    return _native.full(shape, val, name_of(dtype), _pair(ctx))


def ones(shape: Any, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """Returns an array of ones."""
    return full(shape, 1, ctx, dtype)


def zeros(shape: Any, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """Returns an array of zeros."""
    return full(shape, 0, ctx, dtype)


def empty(shape: Any, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """Returns an array for elements to come; they are 0."""
    return full(shape, 0, ctx, dtype)


def array(source_array: Any, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """Returns a new array with the elements of a number, nested lists, or an array of any library.

    >>> array([[1, 2], [3, 4]], dtype='int64').asnumpy()
    array([[1, 2],
           [3, 4]])
    """
    name = name_of(dtype, None)
    if isinstance(source_array, NDArray):
        name = name or name_of(source_array.dtype)
    elif not _is_array(source_array) or isinstance(source_array, (numpy.ndarray, numpy.generic)):
        source_array = _known(numpy.asarray(source_array), name)
    return _native.from_array(source_array, name or "float32", _pair(ctx))


def _known(source: numpy.ndarray, name: str | None) -> numpy.ndarray:
    """Returns the elements in a dtype that a tensor has and that holds them."""
    if source.dtype.kind in "iub" and source.dtype.name not in _native.dtype_names():
        # Whole numbers keep all their digits on the way to whole numbers.
        if source.dtype.kind == "u" and source.size and int(source.max()) > numpy.iinfo(numpy.int64).max:
            if name is not None and numpy.dtype(name if name != "bfloat16" else "float32").kind in "iu":
                raise InvalidArgumentError(f"array: {source.max()} does not fit into `{name}`")
            return source.astype(numpy.float64)
        return source.astype(numpy.int64)
    if source.dtype.kind == "f" and source.dtype.itemsize > 8:
        return source.astype(numpy.float64)
    if source.dtype.kind in "iuf":
        return source.astype(source.dtype.newbyteorder("="), copy=False)
    return source


def _restored(kind: type, value: Any, context: Context, dtype: str) -> NDArray:
    """Returns an array that was pickled."""
    array = _native.from_array(value, dtype, _pair(context))
    return array if kind is NDArray else kind(array)


def _is_array(source: Any) -> bool:
    names = ("__dlpack__", "__array_interface__", "__cuda_array_interface__")
    return any(hasattr(source, name) for name in names)


def from_dlpack(source: Any) -> NDArray:
    """Returns a new array with the elements of an array of any library, in its dtype and on its device.

    >>> from_dlpack(numpy.arange(3)).asnumpy()
    array([0, 1, 2])
    """
    return _native.from_array(source, None, None)


def from_numpy(ndarray: Any, zero_copy: bool = False) -> NDArray:
    """Returns a new array with the elements of one of NumPy's, in its dtype. It is always a copy."""
    return from_dlpack(ndarray)


def to_dlpack_for_read(data: NDArray) -> Any:
    """Returns a DLPack capsule with the present value: a copy, for nobody knows who takes it."""
    return data.__dlpack__()


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    ctx: Context | None = None,
    dtype: Any = None,
) -> NDArray:
    """Returns the numbers from ``start`` to ``stop``, itself not among them, each ``repeat`` times.

    >>> arange(1, 3, repeat=2).asnumpy()
    array([1., 1., 2., 2.], dtype=float32)
    """
    if stop is None:
        start, stop = 0, start
    return _native.arange(start, stop, step, repeat, name_of(dtype), _pair(ctx))


def zeros_like(data: NDArray) -> NDArray:
    """Returns zeros of the same shape, dtype and device."""
    return full(data.shape, 0, data.context, data.dtype)


def ones_like(data: NDArray) -> NDArray:
    """Returns ones of the same shape, dtype and device."""
    return full(data.shape, 1, data.context, data.dtype)


def concat(*data: NDArray, dim: int = 1) -> NDArray:
    """Returns the arrays joined along an axis."""
    return _native.concatenate(list(data), dim)


def concatenate(arrays: Sequence[NDArray], axis: int = 0) -> NDArray:
    """Returns the arrays joined along an axis.

    >>> concatenate([ones((1, 2)), zeros((1, 2))]).asnumpy()
    array([[1., 1.],
           [0., 0.]], dtype=float32)
    """
    return _native.concatenate(list(arrays), axis)


def dot(lhs: NDArray, rhs: NDArray) -> NDArray:
    """Returns the product of matrices and vectors."""
    return lhs.dot(rhs)


def transpose(data: NDArray) -> NDArray:
    """Returns the transpose of a matrix."""
    return data.T


def clip(data: NDArray, a_min: float, a_max: float) -> NDArray:
    """Returns every element moved into ``[a_min, a_max]``."""
    return data.clip(a_min, a_max)


def sum(data: NDArray) -> NDArray:
    """Returns the sum of all elements, as an array of one."""
    return data.sum()


def norm(data: NDArray) -> NDArray:
    """Returns the square root of the sum of the squares, as an array of one."""
    return data.norm()


def maximum(lhs: Any, rhs: Any) -> NDArray:
    """Returns the larger one of each pair of elements, or of each element and a number."""
    return _either("maximum", lhs, rhs)


def minimum(lhs: Any, rhs: Any) -> NDArray:
    """Returns the smaller one of each pair of elements, or of each element and a number."""
    return _either("minimum", lhs, rhs)


def power(base: Any, exp: Any) -> NDArray:
    """Returns one to the power of the other."""
    return base**exp


def _either(name: str, lhs: Any, rhs: Any) -> NDArray:
    if isinstance(lhs, NDArray):
        return lhs._binary(name, rhs)
    return rhs._binary(name, lhs)


def abs(data: NDArray) -> NDArray:
    """Returns the absolute value of each element."""
    return data._unary("abs")


def negative(data: NDArray) -> NDArray:
    """Returns each element with the other sign."""
    return data._unary("negate")


def sign(data: NDArray) -> NDArray:
    """Returns -1, 0 or 1 with the sign of each element."""
    return data._unary("sign")


def square(data: NDArray) -> NDArray:
    """Returns the square of each element."""
    return data._unary("square")


def sqrt(data: NDArray) -> NDArray:
    """Returns the square root of each element."""
    return data._unary("sqrt")


def rsqrt(data: NDArray) -> NDArray:
    """Returns one over the square root of each element."""
    return data._unary("rsqrt")


def exp(data: NDArray) -> NDArray:
    """Returns e to the power of each element."""
    return data._unary("exp")


def log(data: NDArray) -> NDArray:
    """Returns the natural logarithm of each element."""
    return data._unary("log")


def sin(data: NDArray) -> NDArray:
    """Returns the sine of each element."""
    return data._unary("sin")


def cos(data: NDArray) -> NDArray:
    """Returns the cosine of each element."""
    return data._unary("cos")


def tanh(data: NDArray) -> NDArray:
    """Returns the hyperbolic tangent of each element."""
    return data._unary("tanh")


def sigmoid(data: NDArray) -> NDArray:
    """Returns ``1 / (1 + exp(-x))`` of each element."""
    return data._unary("sigmoid")


def relu(data: NDArray) -> NDArray:
    """Returns the larger one of each element and 0."""
    return data._unary("relu")


def ceil(data: NDArray) -> NDArray:
    """Returns the next whole number above each element."""
    return data._unary("ceil")


def floor(data: NDArray) -> NDArray:
    """Returns the next whole number below each element."""
    return data._unary("floor")


def round(data: NDArray) -> NDArray:
    """Returns the nearest whole number, half away from zero."""
    return data._unary("round")


def rint(data: NDArray) -> NDArray:
    """Returns the nearest whole number, half down."""
    return data._unary("rint")


def fix(data: NDArray) -> NDArray:
    """Returns the next whole number towards zero."""
    return data._unary("fix")


def save(
    fname: str | os.PathLike[str], data: NDArray | Sequence[NDArray] | Mapping[str, NDArray]
) -> None:
    """Writes arrays to a file in MXNet's format: one, a list, or a dictionary by name.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(os.path.join(folder, 'm.params'), {'w': ones(2)})
    ...     load(os.path.join(folder, 'm.params'))['w'].tolist()
    [1.0, 1.0]
    """
    if isinstance(data, NDArray):
        data = [data]
    if isinstance(data, Mapping):
        _native.save(os.fspath(fname), [str(name) for name in data], list(data.values()))
    else:
        _native.save(os.fspath(fname), None, list(data))


def load(fname: str | os.PathLike[str]) -> list[NDArray] | dict[str, NDArray]:
    """Reads a file of arrays, MXNet's own too: a dictionary where they have names, otherwise a list."""
    names, arrays = _native.load(os.fspath(fname))
    return dict(zip(names, arrays)) if names else arrays


def waitall() -> None:
    """Waits until all work on every device is done."""
    _native.synchronize()
