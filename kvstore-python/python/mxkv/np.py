"""Arrays that print like NumPy arrays: the part of MXNet's ``mxnet.np`` that programs with stores
use.

The class is a subclass of :class:`mxkv.nd.NDArray`. The default dtype is ``float32``.

>>> from mxkv import np
>>> np.ones((2, 3))
array([[1., 1., 1.],
       [1., 1., 1.]])
>>> print(np.ones((2, 3)) * 2)
[[2. 2. 2.]
 [2. 2. 2.]]
>>> np.array([1, 2], dtype='int64')
array([1, 2], dtype=int64)
"""

from __future__ import annotations

from typing import Any, Sequence

import numpy

from . import nd
from .context import Context
from .errors import KVStoreError
from .nd import NDArray

__all__ = [
    "abs",
    "arange",
    "array",
    "concatenate",
    "cos",
    "dot",
    "empty",
    "exp",
    "float16",
    "float32",
    "float64",
    "full",
    "full_like",
    "int32",
    "int64",
    "int8",
    "log",
    "maximum",
    "minimum",
    "ndarray",
    "ones",
    "ones_like",
    "sign",
    "sin",
    "sqrt",
    "square",
    "tanh",
    "uint8",
    "zeros",
    "zeros_like",
]

float16, float32, float64 = numpy.float16, numpy.float32, numpy.float64
int8, int32, int64, uint8 = numpy.int8, numpy.int32, numpy.int64, numpy.uint8


class ndarray(NDArray):
    """An array that prints like a NumPy array. As in NumPy, its elements and sums have no axes."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> ndarray:
        part = super().__getitem__(index)
        is_element = part.shape == (1,) and part.size == 1 and _names_element(self.ndim, index)
        return part.reshape(()) if is_element else part

    def sum(self, axis: None = None, dtype: None = None, out: None = None) -> ndarray:
        """Returns the sum of all elements."""
        return super().sum(axis, dtype, out).reshape(())

    def mean(self, axis: None = None, dtype: None = None, out: None = None) -> ndarray:
        """Returns the mean of all elements."""
        return super().mean(axis, dtype, out).reshape(())

    def max(self, axis: None = None, out: None = None) -> ndarray:
        """Returns the largest element."""
        return super().max(axis, out).reshape(())

    def min(self, axis: None = None, out: None = None) -> ndarray:
        """Returns the smallest element."""
        return super().min(axis, out).reshape(())

    def as_nd_ndarray(self) -> NDArray:
        """Returns the same array as an :class:`mxkv.nd.NDArray`."""
        return NDArray(self)

    def as_np_ndarray(self) -> ndarray:
        """Returns this array."""
        return self

    def __repr__(self) -> str:
        shown = self._elements()
        if shown is None:
            return f"<ndarray {'x'.join(map(str, self.shape))} @{self.context}>"
        text = repr(shown)
        if isinstance(self.dtype, str):
            # NumPy lacks this dtype, and prints a `float32` copy.
            text = text.replace("dtype=float32", f"dtype={self.dtype}")
        elif self.dtype == float32:
            # `float32` is the default here, so do not print it.
            for ending in (", dtype=float32)", ",\n      dtype=float32)"):
                if text.endswith(ending) and self.size:
                    text = text[: -len(ending)] + ")"
        elif "dtype=" not in text:
            text = f"{text[:-1]}, dtype={self.dtype})"
        if self.context.device_type != "cpu":
            text = f"{text[:-1]}, ctx={self.context})"
        return text

    def __str__(self) -> str:
        shown = self._elements()
        return repr(self) if shown is None else str(shown)

    def _elements(self) -> numpy.ndarray[Any, Any] | None:
        """Returns the elements to print, or ``None`` if they cannot be read."""
        try:
            return self._shown()
        except KVStoreError:
            return None


def _names_element(ndim: int, index: Any) -> bool:
    """Returns whether an index selects a single element."""
    indices = index if isinstance(index, tuple) else (index,)
    return len(indices) == ndim and not any(
        isinstance(one, slice) or one is Ellipsis for one in indices
    )


def ones(shape: Any, dtype: Any = None, order: str = "C", ctx: Context | None = None) -> ndarray:
    """Returns an array of ones.

    >>> ones((1, 2))
    array([[1., 1.]])
    """
    return ndarray(nd.ones(shape, ctx=ctx, dtype=dtype))


def zeros(shape: Any, dtype: Any = None, order: str = "C", ctx: Context | None = None) -> ndarray:
    """Returns an array of zeros.

    >>> zeros(2)
    array([0., 0.])
    """
    return ndarray(nd.zeros(shape, ctx=ctx, dtype=dtype))


def empty(shape: Any, dtype: Any = None, order: str = "C", ctx: Context | None = None) -> ndarray:
    """Returns a new array. Its elements are 0.

    >>> empty(2).shape
    (2,)
    """
    return zeros(shape, dtype, order, ctx)


def full(
    shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", ctx: Context | None = None
) -> ndarray:
    """Returns an array with every element set to a number.

    >>> full((2,), 7)
    array([7., 7.])
    """
    return ndarray(nd.full(shape, fill_value, ctx=ctx, dtype=dtype))


def array(object: Any, dtype: Any = None, ctx: Context | None = None) -> ndarray:
    """Returns a new array with the elements of a number, of nested lists, or of an array of any
    library.

    >>> array([[1, 2], [3, 4]])
    array([[1., 2.],
           [3., 4.]])
    """
    return ndarray(nd.array(object, ctx=ctx, dtype=dtype))


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1,
    dtype: Any = None,
    ctx: Context | None = None,
) -> ndarray:
    """Returns the numbers from ``start`` up to but not including ``stop``.

    >>> arange(3)
    array([0., 1., 2.])
    """
    return ndarray(nd.arange(start, stop, step, ctx=ctx, dtype=dtype))


def zeros_like(a: NDArray) -> ndarray:
    """Returns zeros of the same shape, dtype and device.

    >>> zeros_like(ones(2))
    array([0., 0.])
    """
    return ndarray(nd.zeros_like(a))


def ones_like(a: NDArray) -> ndarray:
    """Returns ones of the same shape, dtype and device.

    >>> ones_like(zeros(2))
    array([1., 1.])
    """
    return ndarray(nd.ones_like(a))


def full_like(a: NDArray, fill_value: Any) -> ndarray:
    """Returns an array of the same shape, dtype and device with every element set to a number.

    >>> full_like(zeros(2), 7)
    array([7., 7.])
    """
    like = nd.array_of(a, "a")
    return ndarray(nd.full(like.shape, fill_value, ctx=like.context, dtype=like.dtype))


def concatenate(seq: Sequence[NDArray], axis: int = 0) -> ndarray:
    """Returns the arrays joined along an axis.

    >>> concatenate([ones(2), zeros(1)])
    array([1., 1., 0.])
    """
    return ndarray(nd.concat(*seq, dim=axis))


def dot(a: NDArray, b: NDArray) -> ndarray:
    """Returns the product of two matrices or vectors.

    >>> dot(array([[1, 2]]), array([10, 1]))
    array([12.])
    """
    return ndarray(nd.dot(a, b))


def maximum(x1: Any, x2: Any) -> Any:
    """Returns the larger of each pair of elements.

    >>> maximum(array([1, 5]), 3)
    array([3., 5.])
    """
    return _made(nd.maximum(x1, x2))


def minimum(x1: Any, x2: Any) -> Any:
    """Returns the smaller of each pair of elements.

    >>> minimum(array([1, 5]), 3)
    array([1., 3.])
    """
    return _made(nd.minimum(x1, x2))


def _made(result: Any) -> Any:
    """Returns an array as an ``ndarray``, and a number unchanged."""
    return ndarray(result) if isinstance(result, NDArray) else result


def abs(x: NDArray) -> ndarray:
    """Returns the absolute value of each element.

    >>> abs(array([-2, 3]))
    array([2., 3.])
    """
    return ndarray(nd.abs(x))


def exp(x: NDArray) -> ndarray:
    """Returns e to the power of each element.

    >>> exp(array([0]))
    array([1.])
    """
    return ndarray(nd.exp(x))


def log(x: NDArray) -> ndarray:
    """Returns the natural logarithm of each element.

    >>> log(array([1]))
    array([0.])
    """
    return ndarray(nd.log(x))


def sqrt(x: NDArray) -> ndarray:
    """Returns the square root of each element.

    >>> sqrt(array([4, 9]))
    array([2., 3.])
    """
    return ndarray(nd.sqrt(x))


def square(x: NDArray) -> ndarray:
    """Returns the square of each element.

    >>> square(array([-2, 3]))
    array([4., 9.])
    """
    return ndarray(nd.square(x))


def sign(x: NDArray) -> ndarray:
    """Returns the sign of each element: -1, 0 or 1.

    >>> sign(array([-2, 0, 3]))
    array([-1.,  0.,  1.])
    """
    return ndarray(nd.sign(x))


def sin(x: NDArray) -> ndarray:
    """Returns the sine of each element.

    >>> sin(array([0]))
    array([0.])
    """
    return ndarray(nd.sin(x))


def cos(x: NDArray) -> ndarray:
    """Returns the cosine of each element.

    >>> cos(array([0]))
    array([1.])
    """
    return ndarray(nd.cos(x))


def tanh(x: NDArray) -> ndarray:
    """Returns the hyperbolic tangent of each element.

    >>> tanh(array([0]))
    array([0.])
    """
    return ndarray(nd.tanh(x))
