"""Checks of single arguments, and their representation in error messages."""

from __future__ import annotations

import operator
import reprlib
import sys
from typing import Any

import numpy

from . import _native
from .errors import ArgumentTypeError, InvalidArgumentError


def shown(value: Any) -> str:
    """Returns the representation of an argument for an error message, on one line.

    >>> shown('high'), shown(numpy.ones(1000)), shown(10**5000)
    ("'high'", 'a `ndarray`', 'a `int`')
    """
    if value is None or isinstance(value, (str, bool, int, float, bytes, list, tuple, dict)):
        try:
            return reprlib.repr(value)
        except ValueError:
            # Python does not print integers of thousands of digits.
            pass
    return f"a `{type(value).__name__}`"


def asarray(source: Any) -> numpy.ndarray[Any, Any]:
    """Converts numbers, nested lists and arrays to NumPy. Rejects masked arrays, also in lists.

    >>> asarray([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    # Importing `numpy.ma` is slow, and masked arrays exist only after an import.
    masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)
    if masked is not None and _has_mask(source, masked, 0):
        text = "a list with a `MaskedArray` would lose the mask"
        if isinstance(source, masked):
            text = f"a `{type(source).__name__}` would lose its mask"
        raise ArgumentTypeError(
            f"{text}: use `.filled(..)`, or `.data` for the elements without the mask"
        )
    return numpy.asarray(source)


def _has_mask(source: Any, masked: type, depth: int) -> bool:
    if isinstance(source, masked):
        return True
    # NumPy rejects deeper lists.
    if not isinstance(source, (list, tuple)) or depth > 64:
        return False
    # Looks at the types first: a list has few types and may have millions of numbers.
    kinds = set(map(type, source))
    if any(issubclass(kind, masked) for kind in kinds):
        return True
    has_lists = any(issubclass(kind, (list, tuple)) for kind in kinds)
    return has_lists and any(_has_mask(one, masked, depth + 1) for one in source)


def number(name: str, value: Any, expected: str = "a number") -> float:
    """Returns a number. Rejects booleans, and strings, which ``float`` would parse."""
    text = f"{name}: expected {expected}"
    if isinstance(value, (bool, numpy.bool_, str, bytes, bytearray)):
        raise ArgumentTypeError(f"{text}, found {shown(value)}")
    try:
        return float(value)
    except OverflowError:
        text = f"{name}: expected a number that fits into `float64`, found {shown(value)}"
        raise InvalidArgumentError(text) from None
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"{text}, found {shown(value)}") from None


def option(name: str, value: Any) -> float:
    """Returns the value of a hyper-parameter. Accepts a boolean only if the parameter is one."""
    is_flag = _native.is_flag(name)
    if is_flag and isinstance(value, (bool, numpy.bool_)):
        return float(value)
    expected = "True, False, 0 or 1" if is_flag else "a number"
    return number(f"hyper-parameter `{name}`", value, expected)


def whole(name: str, value: Any, num_bits: int) -> int:
    """Returns an integer between 0 and ``2**num_bits - 1``. Accepts a float without a fraction.

    >>> whole('step', 2.0, 64)
    2
    """
    is_fraction = isinstance(value, (float, numpy.floating))
    try:
        if isinstance(value, (bool, numpy.bool_)):
            raise TypeError
        if is_fraction and not float(value).is_integer():
            raise TypeError
        found = int(value) if is_fraction else operator.index(value)
    except TypeError:
        raise ArgumentTypeError(f"{name}: expected a whole number, found {shown(value)}") from None
    if not 0 <= found < 2**num_bits:
        text = f"{name}: expected 0 to 2**{num_bits} - 1, found {shown(value)}"
        raise InvalidArgumentError(text)
    return found
