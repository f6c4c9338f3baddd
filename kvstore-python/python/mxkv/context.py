"""Devices. A device is only a name: creating one does not use the hardware.

>>> from mxkv import nd
>>> from mxkv.context import cpu, gpu
>>> cpu(1)
cpu(1)
>>> nd.ones(2, ctx=cpu(1)).context == cpu(1)
True
>>> with cpu(2):
...     nd.zeros(2).context
cpu(2)
"""

from __future__ import annotations

import threading

from . import _native
from ._arguments import shown, whole
from .errors import ArgumentTypeError, InvalidArgumentError

__all__ = ["Context", "cpu", "cpu_pinned", "current_context", "gpu", "num_gpus"]


class Context:
    """A device: its type, ``'cpu'`` or ``'gpu'``, and its number.

    In a ``with`` statement, it becomes the default device of new arrays.
    """

    __slots__ = ("device_id", "device_type")

    def __init__(self, device_type: str | Context, device_id: int = 0) -> None:
        if isinstance(device_type, Context):
            device_id = device_type.device_id
            device_type = device_type.device_type
        if device_type not in ("cpu", "gpu"):
            raise InvalidArgumentError(
                f"unknown device type `{device_type}`: expected `cpu` or `gpu`"
            )
        self.device_type: str = device_type
        self.device_id: int = whole("device id", device_id, 32)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Context):
            return NotImplemented
        return (self.device_type, self.device_id) == (other.device_type, other.device_id)

    def __hash__(self) -> int:
        return hash((self.device_type, self.device_id))

    def __repr__(self) -> str:
        return f"{self.device_type}({self.device_id})"

    def __reduce__(self):
        return Context, (self.device_type, self.device_id)

    def __enter__(self) -> Context:
        _entered().append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _entered().pop()


_threads = threading.local()


def _entered() -> list[Context]:
    """Returns the devices of the ``with`` statements that this thread has entered."""
    return _threads.__dict__.setdefault("entered", [])


def cpu(device_id: int = 0) -> Context:
    """Returns the host. Replicas can use different numbers, but the memory is the same."""
    return Context("cpu", device_id)


def cpu_pinned(device_id: int = 0) -> Context:
    """Returns the host, as :func:`cpu` does. There is no separate pinned memory."""
    return Context("cpu", device_id)


def gpu(device_id: int = 0) -> Context:
    """Returns a GPU. If it does not exist, allocating memory on it fails."""
    return Context("gpu", device_id)


def current_context() -> Context:
    """Returns the device of the innermost ``with`` statement, or ``cpu(0)``."""
    entered = _entered()
    return entered[-1] if entered else cpu()


def num_gpus() -> int:
    """Returns the number of GPUs."""
    return _native.num_gpus()


def _pair(ctx: Context | str | None) -> tuple[str, int]:
    """Returns the device as a pair for the native module."""
    found = current_context() if ctx is None else ctx
    if isinstance(found, str):
        found = Context(found)
    if not (hasattr(found, "device_type") and hasattr(found, "device_id")):
        raise ArgumentTypeError(f"ctx: expected a device, such as `cpu()`, found {shown(found)}")
    return found.device_type, found.device_id
