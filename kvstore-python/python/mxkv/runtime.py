"""The process: the version of the library, the memory and the devices.

>>> from mxkv import nd, runtime
>>> before = runtime.live_bytes()
>>> a = nd.ones(1000)
>>> runtime.live_bytes() - before >= 4000
True
"""

from __future__ import annotations

from typing import NamedTuple

from . import _native
from .context import Context

__all__ = [
    "DeviceMemory",
    "device_memory",
    "doctor",
    "live_bytes",
    "memory_limit",
    "pooled_bytes",
    "set_memory_limit",
    "synchronize",
    "trim",
    "version",
]


class DeviceMemory(NamedTuple):
    """The memory of one device: the bytes that arrays occupy, and the total bytes, or ``None`` if
    they are not known.
    """

    context: Context
    live_bytes: int
    total_bytes: int | None


def version() -> str:
    """Returns the version of the library."""
    return _native.version()


def doctor() -> dict[str, str]:
    """Returns the findings about this machine: the version, and which GPUs are available or why
    none is.

    >>> 'backend cpu' in doctor()
    True
    """
    return dict(_native.doctor())


def live_bytes() -> int:
    """Returns the number of bytes that arrays and stored values occupy on all devices."""
    return _native.live_bytes()


def pooled_bytes() -> int:
    """Returns the number of bytes that are kept for reuse."""
    return _native.pooled_bytes()


def trim() -> None:
    """Returns the memory that is kept for reuse to the system."""
    _native.trim()


def memory_limit() -> int | None:
    """Returns the host's memory limit in bytes, or ``None`` without a limit.

    The limit covers arrays, stored values and memory kept for reuse. The default is 80 percent of
    the memory of the machine or container.

    >>> memory_limit() > 0
    True
    """
    return _native.memory_limit()


def set_memory_limit(num_bytes: int | None) -> None:
    """Sets the host's memory limit in bytes. ``None`` removes the limit.

    An allocation beyond the limit raises :class:`mxkv.errors.OutOfMemoryError`, a ``MemoryError``.
    Existing arrays are kept. Memory of GPUs is not included.
    """
    _native.set_memory_limit(num_bytes)


def device_memory() -> list[DeviceMemory]:
    """Returns the memory of the host, then the memory of every GPU."""
    return [
        DeviceMemory(Context(kind, number), live, total)
        for kind, number, live, total in _native.device_memory()
    ]


def synchronize() -> None:
    """Waits until all work on every device is done."""
    _native.synchronize()
