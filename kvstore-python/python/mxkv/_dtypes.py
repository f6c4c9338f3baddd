"""The names of dtypes, in all notations that programs use."""

from __future__ import annotations

from typing import Any

import numpy

from . import _native

_NAMES = frozenset(_native.dtype_names())


def name_of(dtype: Any, default: str | None = "float32") -> str | None:
    """Returns the name of a dtype: ``'float32'`` for ``numpy.float32``, ``'f4'`` or
    ``torch.float32``.

    >>> name_of(numpy.int64), name_of('f2'), name_of('bfloat16'), name_of(None)
    ('int64', 'float16', 'bfloat16', 'float32')
    """
    if dtype is None:
        return default
    # NumPy lacks some of our dtypes, such as `bfloat16`.
    if isinstance(dtype, str) and dtype in _NAMES:
        return dtype
    try:
        return numpy.dtype(dtype).name
    except TypeError:
        # Dtypes of PyTorch are not NumPy dtypes. Their string is `torch.float32`.
        return str(dtype).rpartition(".")[2]
