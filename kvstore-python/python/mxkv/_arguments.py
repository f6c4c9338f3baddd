"""Single arguments: numbers, and what messages show of those that are wrong."""

from __future__ import annotations

import operator
import reprlib
from typing import Any

import numpy

from .errors import ArgumentTypeError, InvalidArgumentError


def shown(value: Any) -> str:
    """Returns what a message shows of an argument: never more than a line.

    >>> shown('high'), shown(numpy.ones(1000)), shown(10**5000)
    ("'high'", 'a `ndarray`', 'a `int`')
    """
    if value is None or isinstance(value, (str, bool, int, float, bytes, list, tuple, dict)):
        try:
            return reprlib.repr(value)
        except ValueError:
            # Python writes no integers of thousands of digits.
            pass
    return f"a `{type(value).__name__}`"


def number(name: str, value: Any) -> float:
    """Returns a number."""
    try:
        return float(value)
    except OverflowError:
        raise InvalidArgumentError(f"{name}: {shown(value)} does not fit into `float64`") from None
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"{name}: expected a number, found {shown(value)}") from None


def whole(name: str, value: Any, num_bits: int) -> int:
    """Returns a whole number from 0 up, of so many bits. It may be written with a fraction of 0.

    >>> whole('step', 2.0, 64)
    2
    """
    is_fraction = isinstance(value, (float, numpy.floating))
    try:
        if is_fraction and not float(value).is_integer():
            raise TypeError
        found = int(value) if is_fraction else operator.index(value)
    except TypeError:
        raise ArgumentTypeError(f"{name}: expected a whole number, found {shown(value)}") from None
    if not 0 <= found < 2**num_bits:
        text = f"{name}: expected 0 to 2**{num_bits} - 1, found {shown(value)}"
        raise InvalidArgumentError(text)
    return found
