"""Elementwise functions for :mod:`mxkv.nd`, and their operands."""

from __future__ import annotations

from typing import Any

from . import _native
from ._arguments import shown
from ._native import NDArray, RowSparseNDArray
from .errors import ArgumentTypeError

OURS = (NDArray, RowSparseNDArray)


def is_array(source: Any) -> bool:
    names = ("__dlpack__", "__array_interface__", "__cuda_array_interface__")
    return any(hasattr(source, name) for name in names)


def array_of(data: Any, name: str = "data") -> NDArray:
    """Returns the argument ``name`` as a dense array. Copies an array of another library."""
    if isinstance(data, NDArray):
        return data
    if not is_array(data):
        raise ArgumentTypeError(f"{name}: expected an array, found {shown(data)}")
    return _native.from_array(data, None, None)


def each(name: str, data: Any, out: Any = None) -> Any:
    """Applies a function to each element. Writes the result to ``out`` if given."""
    return into(out, operand(data)._unary(name))


def operand(data: Any, name: str = "data") -> Any:
    """Returns the argument ``name`` as a dense or row-sparse array."""
    return data if isinstance(data, RowSparseNDArray) else array_of(data, name)


def into(out: Any, result: Any) -> Any:
    """Returns the result, or ``out`` after copying the result into it."""
    return result if out is None else result.copyto(out)


def abs(data: Any, out: Any = None) -> Any:
    """Returns the absolute value of each element.

    >>> from mxkv.nd import array
    >>> abs(array([-2, 0, 3])).tolist()
    [2.0, 0.0, 3.0]
    """
    return each("abs", data, out)


def negative(data: Any, out: Any = None) -> Any:
    """Returns the negated elements.

    >>> from mxkv.nd import array
    >>> negative(array([-2, 0.5])).tolist()
    [2.0, -0.5]
    """
    return each("negate", data, out)


def sign(data: Any, out: Any = None) -> Any:
    """Returns the sign of each element: -1, 0 or 1.

    >>> from mxkv.nd import array
    >>> sign(array([-2, 0, 3])).tolist()
    [-1.0, 0.0, 1.0]
    """
    return each("sign", data, out)


def square(data: Any, out: Any = None) -> Any:
    """Returns the square of each element.

    >>> from mxkv.nd import array
    >>> square(array([-2, 3])).tolist()
    [4.0, 9.0]
    """
    return each("square", data, out)


def sqrt(data: Any, out: Any = None) -> Any:
    """Returns the square root of each element.

    >>> from mxkv.nd import array
    >>> sqrt(array([4, 9])).tolist()
    [2.0, 3.0]
    """
    return each("sqrt", data, out)


def rsqrt(data: Any, out: Any = None) -> Any:
    """Returns the reciprocal square root of each element.

    >>> from mxkv.nd import array
    >>> rsqrt(array([4, 0.25])).tolist()
    [0.5, 2.0]
    """
    return each("rsqrt", data, out)


def exp(data: Any, out: Any = None) -> Any:
    """Returns e to the power of each element.

    >>> from mxkv.nd import array
    >>> exp(array([0])).tolist()
    [1.0]
    """
    return each("exp", data, out)


def log(data: Any, out: Any = None) -> Any:
    """Returns the natural logarithm of each element.

    >>> from mxkv.nd import array
    >>> log(array([1])).tolist()
    [0.0]
    """
    return each("log", data, out)


def sin(data: Any, out: Any = None) -> Any:
    """Returns the sine of each element.

    >>> from mxkv.nd import array
    >>> sin(array([0])).tolist()
    [0.0]
    """
    return each("sin", data, out)


def cos(data: Any, out: Any = None) -> Any:
    """Returns the cosine of each element.

    >>> from mxkv.nd import array
    >>> cos(array([0])).tolist()
    [1.0]
    """
    return each("cos", data, out)


def tanh(data: Any, out: Any = None) -> Any:
    """Returns the hyperbolic tangent of each element.

    >>> from mxkv.nd import array
    >>> tanh(array([0])).tolist()
    [0.0]
    """
    return each("tanh", data, out)


def sigmoid(data: Any, out: Any = None) -> Any:
    """Returns ``1 / (1 + exp(-x))`` of each element.

    >>> from mxkv.nd import array
    >>> sigmoid(array([0])).tolist()
    [0.5]
    """
    return each("sigmoid", data, out)


def relu(data: Any, out: Any = None) -> Any:
    """Returns the maximum of each element and 0.

    >>> from mxkv.nd import array
    >>> relu(array([-2, 3])).tolist()
    [0.0, 3.0]
    """
    return each("relu", data, out)


def ceil(data: Any, out: Any = None) -> Any:
    """Rounds each element up to an integer.

    >>> from mxkv.nd import array
    >>> ceil(array([1.5, -1.5])).tolist()
    [2.0, -1.0]
    """
    return each("ceil", data, out)


def floor(data: Any, out: Any = None) -> Any:
    """Rounds each element down to an integer.

    >>> from mxkv.nd import array
    >>> floor(array([1.5, -1.5])).tolist()
    [1.0, -2.0]
    """
    return each("floor", data, out)


def round(data: Any, out: Any = None) -> Any:
    """Rounds each element to the nearest integer, halves away from zero.

    >>> from mxkv.nd import array
    >>> round(array([1.5, -2.5])).tolist()
    [2.0, -3.0]
    """
    return each("round", data, out)


def rint(data: Any, out: Any = None) -> Any:
    """Rounds each element to the nearest integer, halves down.

    >>> from mxkv.nd import array
    >>> rint(array([1.5, -2.5])).tolist()
    [1.0, -3.0]
    """
    return each("rint", data, out)


def fix(data: Any, out: Any = None) -> Any:
    """Rounds each element towards zero.

    >>> from mxkv.nd import array
    >>> fix(array([1.5, -1.5])).tolist()
    [1.0, -1.0]
    """
    return each("fix", data, out)
