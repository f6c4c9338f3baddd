"""Devices: names, not handles. Making one touches no hardware.

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
    """A device by its type, ``'cpu'`` or ``'gpu'``, and its number.

    As the object of a ``with`` it is where arrays are made that name no device.
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
        self.device_id: int = whole("device number", device_id, 32)

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
    """Returns the devices whose ``with`` this thread is in."""
    return _threads.__dict__.setdefault("entered", [])


def cpu(device_id: int = 0) -> Context:
    """Returns the host. Its numbers keep replicas apart by name; the memory is the same."""
    return Context("cpu", device_id)


def cpu_pinned(device_id: int = 0) -> Context:
    """Returns the host: here its memory is one."""
    return Context("cpu", device_id)


def gpu(device_id: int = 0) -> Context:
    """Returns a GPU. That there is none is an error when memory on it is asked for."""
    return Context("gpu", device_id)


def current_context() -> Context:
    """Returns the device of arrays that name none: ``cpu(0)``, or that of a ``with``."""
    entered = _entered()
    return entered[-1] if entered else cpu()


def num_gpus() -> int:
    """Returns how many GPUs there are."""
    return _native.num_gpus()


def _pair(ctx: Context | str | None) -> tuple[str, int]:
    """Returns the device as the native module takes it."""
    found = current_context() if ctx is None else ctx
    if isinstance(found, str):
        found = Context(found)
    if not (hasattr(found, "device_type") and hasattr(found, "device_id")):
        raise ArgumentTypeError(f"ctx: expected a device, such as `cpu()`, found {shown(found)}")
    return found.device_type, found.device_id
