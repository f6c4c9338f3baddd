"""Arrays with the API of MXNet's ``mx.nd``, such as ``mx.nd.ones((2, 3))``.

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

Arithmetic of two arrays needs equal shapes and dtypes; comparisons broadcast. Elementwise functions
write to ``out`` if given. The default dtype is ``float32``, also for :func:`array` from arrays of
other dtypes, as in MXNet (:func:`from_dlpack` keeps the dtype).
"""

from __future__ import annotations

import builtins
import os
from typing import Any, Callable, Mapping, Sequence, overload

import numpy

from . import _native, random, sparse
from ._arguments import asarray, shown
from ._dtypes import name_of
from ._elementwise import (
    OURS,
    abs,
    array_of,
    ceil,
    cos,
    exp,
    fix,
    floor,
    into,
    is_array,
    log,
    negative,
    operand,
    relu,
    rint,
    round,
    rsqrt,
    sigmoid,
    sign,
    sin,
    sqrt,
    square,
    tanh,
)
from ._native import NDArray, RowSparseNDArray
from .context import Context, _pair
from .errors import ArgumentTypeError, InvalidArgumentError

__all__ = [
    "NDArray",
    "RowSparseNDArray",
    "abs",
    "arange",
    "array",
    "array_equal",
    "ceil",
    "choose_element_0index",
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
    "onehot_encode",
    "ones",
    "ones_like",
    "power",
    "random",
    "random_normal",
    "random_uniform",
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
    """Returns an array of ones.

    >>> ones((1, 2)).tolist()
    [[1.0, 1.0]]
    """
    return full(shape, 1, ctx, dtype)


@overload
def zeros(
    shape: Any, ctx: Context | None = None, dtype: Any = None, stype: None = None
) -> NDArray: ...


@overload
def zeros(shape: Any, ctx: Context | None = None, dtype: Any = None, *, stype: str) -> Any: ...


def zeros(
    shape: Any, ctx: Context | None = None, dtype: Any = None, stype: str | None = None
) -> Any:
    """Returns zeros: a dense array, or a row-sparse array without rows if ``stype`` is
    ``'row_sparse'``.

    >>> zeros(2).tolist()
    [0.0, 0.0]
    >>> zeros((3, 2), stype='row_sparse').indices.tolist()
    []
    """
    if stype is None or stype == "default":
        return full(shape, 0, ctx, dtype)
    return sparse.zeros(stype, shape, ctx, dtype)


@overload
def empty(
    shape: Any, ctx: Context | None = None, dtype: Any = None, stype: None = None
) -> NDArray: ...


@overload
def empty(shape: Any, ctx: Context | None = None, dtype: Any = None, *, stype: str) -> Any: ...


def empty(
    shape: Any, ctx: Context | None = None, dtype: Any = None, stype: str | None = None
) -> Any:
    """Returns a new array. Its elements are 0. MXNet leaves them unspecified.

    >>> empty(2).shape
    (2,)
    """
    return zeros(shape, ctx, dtype) if stype is None else zeros(shape, ctx, dtype, stype=stype)


@overload
def array(
    source_array: RowSparseNDArray, ctx: Context | None = None, dtype: Any = None
) -> RowSparseNDArray: ...


@overload
def array(source_array: Any, ctx: Context | None = None, dtype: Any = None) -> NDArray: ...


def array(source_array: Any, ctx: Context | None = None, dtype: Any = None) -> Any:
    """Returns a new array from a number, nested lists, or an array of any library. A row-sparse
    array stays row-sparse.

    >>> array([[1, 2], [3, 4]], dtype='int64').asnumpy()
    array([[1, 2],
           [3, 4]])
    """
    name = name_of(dtype, None)
    if isinstance(source_array, RowSparseNDArray):
        return sparse.copied(source_array, ctx, name)
    if isinstance(source_array, NDArray):
        name = name or name_of(source_array.dtype)
    elif not is_array(source_array) or isinstance(source_array, (numpy.ndarray, numpy.generic)):
        source_array = _known(asarray(source_array), name)
    return _native.from_array(source_array, name or "float32", _pair(ctx))


def _known(source: numpy.ndarray, name: str | None) -> numpy.ndarray:
    """Converts the elements to a supported dtype that can represent them."""
    if source.dtype.kind in "iub" and source.dtype.name not in _native.dtype_names():
        # Use `int64` for integers, so that no digits are lost on the way to an integer dtype.
        if (
            source.dtype.kind == "u"
            and source.size
            and int(source.max()) > numpy.iinfo(numpy.int64).max
        ):
            if name is not None and name.startswith(("int", "uint")):
                text = f"expected an integer that fits into `int64`, found {source.max()}"
                raise InvalidArgumentError(f"array: {text}")
            return source.astype(numpy.float64)
        return source.astype(numpy.int64)
    if source.dtype.kind == "f" and source.dtype.itemsize > 8:
        return source.astype(numpy.float64)
    if source.dtype.kind in "iuf":
        return source.astype(source.dtype.newbyteorder("="), copy=False)
    return source


def _restored(kind: type, value: Any, context: Context, dtype: str) -> NDArray:
    """Restores a pickled array."""
    array = _native.from_array(value, dtype, _pair(context))
    return array if kind is NDArray else kind(array)


def from_dlpack(source: Any) -> NDArray:
    """Returns a copy of an array of any library, with its dtype and on its device.

    >>> from_dlpack(numpy.arange(3)).asnumpy()
    array([0, 1, 2])
    """
    return _native.from_array(source, None, None)


def from_numpy(ndarray: Any, zero_copy: bool = False) -> NDArray:
    """Returns a copy of a NumPy array, with its dtype. ``zero_copy`` has no effect.

    >>> from_numpy(numpy.arange(2)).asnumpy()
    array([0, 1])
    """
    return from_dlpack(ndarray)


def to_dlpack_for_read(data: NDArray) -> Any:
    """Returns a DLPack capsule with a copy of the current value. It is a copy, because the consumer
    may write to it.

    >>> type(to_dlpack_for_read(ones(2))).__name__
    'PyCapsule'
    """
    return data.__dlpack__()


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    ctx: Context | None = None,
    dtype: Any = None,
) -> NDArray:
    """Returns the numbers from ``start`` up to but not including ``stop``, each ``repeat`` times.

    >>> arange(1, 3, repeat=2).asnumpy()
    array([1., 1., 2., 2.], dtype=float32)
    """
    if stop is None:
        start, stop = 0, start
    return _native.arange(start, stop, step, repeat, name_of(dtype), _pair(ctx))


def zeros_like(data: Any) -> Any:
    """Returns zeros with the shape, dtype, device and storage type of an array.

    >>> zeros_like(ones(2, dtype='int8')).asnumpy()
    array([0, 0], dtype=int8)
    """
    if isinstance(data, RowSparseNDArray):
        return sparse.zeros(data.stype, data.shape, data.context, data.dtype)
    like = array_of(data)
    return full(like.shape, 0, like.context, like.dtype)


def ones_like(data: NDArray) -> NDArray:
    """Returns ones of the same shape, dtype and device.

    >>> ones_like(zeros((1, 2))).tolist()
    [[1.0, 1.0]]
    """
    like = array_of(data)
    return full(like.shape, 1, like.context, like.dtype)


def concat(*data: NDArray, dim: int = 1) -> NDArray:
    """Returns the arrays joined along an axis. A negative axis counts from the last one.

    >>> concat(ones((2, 1)), zeros((2, 1))).tolist()
    [[1.0, 0.0], [1.0, 0.0]]
    """
    return concatenate(data, dim)


def concatenate(arrays: Sequence[NDArray], axis: int = 0) -> NDArray:
    """Returns the arrays joined along an axis. A negative axis counts from the last one.

    >>> concatenate([ones((1, 2)), zeros((1, 2))]).asnumpy()
    array([[1., 1.],
           [0., 0.]], dtype=float32)
    """
    return _native.concatenate([array_of(one, "arrays") for one in arrays], axis)


def dot(lhs: NDArray, rhs: NDArray) -> NDArray:
    """Returns the product of two matrices or vectors.

    >>> dot(array([[1, 2], [3, 4]]), array([1, 10])).tolist()
    [21.0, 43.0]
    """
    return array_of(lhs, "lhs").dot(rhs)


def choose_element_0index(lhs: NDArray, rhs: Any) -> NDArray:
    """Returns one element of each row of a matrix. ``rhs`` has one column index per row. An index
    out of range is an error.

    >>> choose_element_0index(array([[1, 2], [3, 4]]), array([1, 0])).tolist()
    [2.0, 3.0]
    """
    return array_of(lhs, "lhs")._choose_elements(rhs)


def onehot_encode(indices: Any, out: NDArray) -> NDArray:
    """Sets one element of each row of the matrix ``out`` to 1 and all other elements to 0. Returns
    ``out``. ``indices`` has one column index per row. An index out of range is an error.

    >>> onehot_encode(array([1, 0]), zeros((2, 2))).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    out._set_one_hot(indices)
    return out


def array_equal(a1: NDArray, a2: Any) -> bool:
    """Returns whether both arrays have the same shape and equal elements. The dtypes may differ.
    NaN is not equal to NaN.

    >>> array_equal(ones(2), ones(2, dtype="int64")), array_equal(ones(2), ones((2, 1)))
    (True, False)
    """
    return array_of(a1, "a1")._array_equal(a2)


def transpose(data: NDArray) -> NDArray:
    """Returns the transpose of a matrix.

    >>> transpose(array([[1, 2], [3, 4]])).tolist()
    [[1.0, 3.0], [2.0, 4.0]]
    """
    return array_of(data).T


def clip(data: Any, a_min: float, a_max: float, out: Any = None) -> Any:
    """Clamps every element to ``[a_min, a_max]``. Writes the result to ``out`` if given.

    >>> clip(array([-2, 0.5, 2]), -1, 1).tolist()
    [-1.0, 0.5, 1.0]
    """
    return into(out, operand(data).clip(a_min, a_max))


def sum(data: Any) -> NDArray:
    """Returns the sum of all elements, as an array with one element.

    >>> sum(ones((2, 3))).tolist()
    [6.0]
    """
    return operand(data).sum()


def norm(data: Any) -> NDArray:
    """Returns the square root of the sum of the squares, as an array with one element.

    >>> norm(array([3, 4])).tolist()
    [5.0]
    """
    return operand(data).norm()


# MXNet also exports these functions under these names.
random_uniform = random.uniform
random_normal = random.normal


def maximum(lhs: Any, rhs: Any) -> Any:
    """Returns the larger of each pair of elements, or of each element and a number.

    >>> maximum(array([1, 5]), 3).tolist()
    [3.0, 5.0]
    """
    return _either("maximum", lhs, rhs, builtins.max)


def minimum(lhs: Any, rhs: Any) -> Any:
    """Returns the smaller of each pair of elements, or of each element and a number.

    >>> minimum(array([1, 5]), array([4, 3])).tolist()
    [1.0, 3.0]
    """
    return _either("minimum", lhs, rhs, builtins.min)


def power(base: Any, exp: Any) -> Any:
    """Returns ``base`` to the power of ``exp``, elementwise.

    >>> power(array([2, 3]), 2).tolist()
    [4.0, 9.0]
    """
    return base**exp


def _either(name: str, lhs: Any, rhs: Any, of_numbers: Callable[[Any, Any], Any]) -> Any:
    """Applies a commutative function to two operands. One or both may be numbers."""
    numbers = (int, float, numpy.generic)
    if isinstance(lhs, numbers) and isinstance(rhs, numbers):
        return of_numbers(lhs, rhs)
    if isinstance(rhs, OURS) and not isinstance(lhs, OURS):
        lhs, rhs = rhs, lhs
    result = operand(lhs, name)._binary(name, rhs)
    if result is NotImplemented:
        raise ArgumentTypeError(f"{name}: expected an array or a number, found {shown(rhs)}")
    return result


def save(
    fname: str | os.PathLike[str], data: NDArray | Sequence[NDArray] | Mapping[str, NDArray]
) -> None:
    """Writes arrays to a file in the format of MXNet: one array, a list, or a dictionary by name.

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
    """Reads a file of arrays in the format of MXNet. Returns a dictionary if the arrays have names,
    otherwise a list.
    """
    names, arrays = _native.load(os.fspath(fname))
    return dict(zip(names, arrays)) if names else arrays


def waitall() -> None:
    """Waits until all work on every device is done."""
    _native.synchronize()
