"""A minimal library with arrays on GPUs. It uses the CUDA driver API directly. With the emulated
driver, it replaces PyTorch and CuPy, and it records the requests of its consumers.

It queues all its work on its own stream. Nothing waits for that stream unless the test requests it.
"""

from __future__ import annotations

import ctypes
import math
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy

import mxkv as mx

NUMBERS = {"i": 0, "u": 1, "f": 2}
CUDA, MANAGED = 2, 13
READ_ONLY, IS_COPIED = 1, 2


def _library() -> ctypes.CDLL | None:
    for name in ("libcuda.so", "libcuda.so.1"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            pass
    return None


LIBRARY = _library()
IS_EMULATED = hasattr(LIBRARY, "kv_emulated_seed")
if IS_EMULATED:
    assert LIBRARY is not None
    LIBRARY.kv_emulated_seed.argtypes = [ctypes.c_uint64]
    LIBRARY.kv_emulated_copied.restype = ctypes.c_uint64


def call(name: str, *arguments: Any) -> None:
    """Calls a function of the CUDA driver."""
    result = getattr(LIBRARY, name)(*arguments)
    assert result == 0, f"{name}: error {result}"


def seed(number: int) -> None:
    """Seeds the order in which the emulated driver executes work."""
    if IS_EMULATED:
        assert LIBRARY is not None
        LIBRARY.kv_emulated_seed(number)


def copied() -> tuple[int, int]:
    """Returns the number of bytes copied from the host to emulated GPUs, and copied back."""
    assert LIBRARY is not None
    return LIBRARY.kv_emulated_copied(0), LIBRARY.kv_emulated_copied(1)


def num_cards() -> int:
    """Returns the number of GPUs."""
    number = ctypes.c_int()
    call("cuInit", 0)
    call("cuDeviceGetCount", ctypes.byref(number))
    return number.value


class Card:
    """A GPU by its number, with its own stream."""

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.context = ctypes.c_void_p()
        call("cuInit", 0)
        call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), number)
        self.stream = self.new_stream()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Makes the context of the GPU current in this thread."""
        previous = ctypes.c_void_p()
        call("cuCtxGetCurrent", ctypes.byref(previous))
        call("cuCtxSetCurrent", self.context)
        try:
            yield
        finally:
            call("cuCtxSetCurrent", previous)

    @staticmethod
    def current_number() -> int:
        """Returns the number of this thread's current GPU: the first one if the thread has not
        selected any, as in the CUDA runtime.
        """
        context, number = ctypes.c_void_p(), ctypes.c_int()
        call("cuCtxGetCurrent", ctypes.byref(context))
        if context.value:
            call("cuCtxGetDevice", ctypes.byref(number))
        return number.value

    def new_stream(self) -> int:
        """Returns a stream that does not wait for any other stream."""
        stream = ctypes.c_void_p()
        with self.entered():
            call("cuStreamCreate", ctypes.byref(stream), 1)
        assert stream.value is not None
        return stream.value

    def let_wait(self, stream: int, other: int) -> None:
        """Makes a stream wait for another stream."""
        event = ctypes.c_void_p()
        with self.entered():
            call("cuEventCreate", ctypes.byref(event), 2)
            call("cuEventRecord", event, ctypes.c_void_p(other))
            call("cuStreamWaitEvent", ctypes.c_void_p(stream), event, 0)
            call("cuEventDestroy_v2", event)

    def capture(self, stream: int, *, is_captured: bool) -> None:
        """Begins or ends the capture of a stream of the emulated driver into a graph."""
        with self.entered():
            call("kv_emulated_capture", ctypes.c_void_p(stream), int(is_captured))

    def is_idle(self, stream: int) -> bool:
        """Returns whether all work in a stream is done. The call does not execute any work."""
        assert LIBRARY is not None
        with self.entered():
            return bool(LIBRARY.cuStreamQuery(ctypes.c_void_p(stream)) == 0)

    def write(
        self, address: int, values: numpy.ndarray[Any, Any], stream: int | None = None
    ) -> None:
        """Queues a copy of values from the host to an address."""
        values = numpy.ascontiguousarray(values)
        to, of = ctypes.c_uint64(address), ctypes.c_void_p(values.ctypes.data)
        with self.entered():
            queue = ctypes.c_void_p(stream or self.stream)
            call("cuMemcpyHtoDAsync_v2", to, of, ctypes.c_size_t(values.nbytes), queue)

    def read(
        self, address: int, shape: Any, dtype: Any, stream: int | None = None
    ) -> numpy.ndarray[Any, Any]:
        """Returns the values at an address, after all earlier work of the stream."""
        values = numpy.empty(shape, dtype)
        to, of = ctypes.c_void_p(values.ctypes.data), ctypes.c_uint64(address)
        with self.entered():
            queue = ctypes.c_void_p(stream or self.stream)
            call("cuMemcpyDtoHAsync_v2", to, of, ctypes.c_size_t(values.nbytes), queue)
            call("cuStreamSynchronize", queue)
        return values

    def copied(self, address: int, num_bytes: int, stream: int | None = None) -> int:
        """Queues a copy of bytes to new memory, and returns the address of the copy."""
        copy = self.allocate(num_bytes)
        with self.entered():
            queue = ctypes.c_void_p(stream or self.stream)
            to, of = ctypes.c_uint64(copy), ctypes.c_uint64(address)
            call("cuMemcpyDtoDAsync_v2", to, of, ctypes.c_size_t(num_bytes), queue)
        return copy

    def allocate(self, num_bytes: int) -> int:
        """Returns the address of new memory."""
        address = ctypes.c_uint64()
        with self.entered():
            call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(num_bytes))
        return address.value

    def free(self, address: int) -> None:
        """Frees memory after all work on the GPU is done."""
        with self.entered():
            call("cuMemFree_v2", ctypes.c_uint64(address))


class DlTensor(ctypes.Structure):
    """The structure of this name in dlpack.h."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Plain(ctypes.Structure):
    """The contents of an unversioned capsule."""

    _fields_ = [("tensor", DlTensor), ("context", ctypes.c_void_p), ("deleter", DELETER)]


class Versioned(ctypes.Structure):
    """The contents of a versioned capsule."""

    _fields_ = [
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("deleter", DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", DlTensor),
    ]


_capsule_new = ctypes.pythonapi.PyCapsule_New
_capsule_new.restype = ctypes.py_object
_capsule_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_capsule_rename = ctypes.pythonapi.PyCapsule_SetName
_capsule_rename.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Array:
    """An array on a GPU, which is exported as PyTorch exports tensors. The constructor queues the
    copy of `values`. `strides` are in elements, `offset` is in bytes.
    """

    #: Whether `__dlpack__` supports `max_version`.
    knows_versions = True
    #: Whether `__dlpack__` rejects arrays of GPUs that are not current, as PyTorch 2.9 does.
    #: Otherwise the consumer's stream waits for the stream of the current GPU, as in CuPy and in
    #: older versions of PyTorch.
    rejects_others = True

    def __init__(
        self,
        card: Card,
        values: numpy.ndarray[Any, Any],
        *,
        kind: int = CUDA,
        flags: int = 0,
        strides: tuple[int, ...] | None = None,
        offset: int = 0,
    ) -> None:
        self.card, self.kind, self.flags = card, kind, flags
        self.shape, self.dtype = values.shape, values.dtype
        self.strides, self.offset = strides, offset
        reach = sum((n - 1) * s for n, s in zip(self.shape, strides or (), strict=False))
        self.num_bytes = max(values.nbytes, (reach + 1) * values.itemsize)
        self.address = card.allocate(self.num_bytes + 64)
        self.write(values)
        #: The streams that consumers have passed, and their other arguments.
        self.streams: list[int] = []
        self.requests: list[dict[str, Any]] = []
        #: For each release by a consumer: whether its stream was idle.
        self.was_idle: list[bool] = []
        self._kept: dict[int, Any] = {}
        #: Called when a consumer releases the memory.
        self.on_release: Callable[[], None] = lambda: None

    def write(self, values: numpy.ndarray[Any, Any]) -> None:
        """Queues a copy of other values into the array."""
        if self.strides is None:
            self.card.write(self.address + self.offset, values)
            return
        place = numpy.full(self.num_bytes // self.dtype.itemsize, 99, self.dtype)
        self.strided(place)[...] = values
        self.card.write(self.address + self.offset, place)

    def read(self) -> numpy.ndarray[Any, Any]:
        """Returns the values, after all earlier work of the GPU's own stream."""
        if self.strides is None:
            return self.card.read(self.address + self.offset, self.shape, self.dtype)
        return self.strided(self.read_all())

    def read_all(self) -> numpy.ndarray[Any, Any]:
        """Returns the values and the elements between them, which are 99 unless something wrote to
        them.
        """
        return self.card.read(
            self.address + self.offset, self.num_bytes // self.dtype.itemsize, self.dtype
        )

    def strided(self, place: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
        """Returns the values from a result of `read_all`."""
        in_bytes = [stride * self.dtype.itemsize for stride in self.strides or ()]
        return numpy.lib.stride_tricks.as_strided(place, self.shape, in_bytes)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, self.card.number

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        if not self.knows_versions and options:
            raise TypeError(f"unexpected {sorted(options)}")
        self.requests.append(options)
        assert isinstance(stream, int) and stream not in (-1, 0)
        current = self.current_number()
        if current != self.card.number and self.rejects_others:
            raise BufferError(
                "Can't export tensors on a different CUDA device index. "
                f"Expected: {self.card.number}. Current device: {current}."
            )
        self.streams.append(stream)
        producer = self.card if current == self.card.number else CARDS[current]
        producer.let_wait(stream, producer.stream)
        return self.capsule(stream)

    def current_number(self) -> int:
        """Returns the number of the GPU that the library has as its current one."""
        return self.card.current_number()

    def capsule(self, stream: int, device: tuple[int, int] | None = None) -> Any:
        """Returns a capsule of the memory for a consumer that uses it in a stream."""
        managed = Versioned() if self.knows_versions else Plain()
        tensor, number = managed.tensor, len(self._kept)
        tensor.data, tensor.byte_offset = self.address, self.offset
        tensor.device[:] = device or self.__dlpack_device__()
        tensor.rank = len(self.shape)
        tensor.code, tensor.bits, tensor.lanes = (
            NUMBERS[self.dtype.kind],
            self.dtype.itemsize * 8,
            1,
        )
        shape = (ctypes.c_int64 * len(self.shape))(*self.shape)
        tensor.shape = shape
        strides = (ctypes.c_int64 * len(self.shape))(*self.strides) if self.strides else None
        if strides is not None:
            tensor.strides = strides

        def delete(_: int) -> None:
            # The stream must be idle at this point if the consumer has waited for its work.
            self.was_idle.append(self.card.is_idle(stream))
            self.on_release()

        managed.deleter = DELETER(delete)
        if self.knows_versions:
            managed.version[:] = (1, 0)
            managed.flags = self.flags
        self._kept[number] = (managed, shape, strides)
        name = b"dltensor_versioned" if self.knows_versions else b"dltensor"
        return _capsule_new(ctypes.addressof(managed), name, None)

    def free(self) -> None:
        """Frees the memory."""
        self.card.free(self.address)


class OldArray(Array):
    """An array of a library without DLPack versions, which is exported as CuPy exports arrays."""

    knows_versions = False
    rejects_others = False


class TorchTensor(Array):
    """A tensor of a PyTorch that `use_torch` installs."""

    requires_grad = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        #: The streams in which the tensor was recorded.
        self.recorded: list[int] = []

    @property
    def device(self) -> int:
        return self.card.number

    def current_number(self) -> int:
        # PyTorch remembers the GPU of a thread until the thread uses it.
        remembered = sys.modules["torch"].remembered
        return super().current_number() if remembered is None else remembered

    def is_neg(self) -> bool:
        return False

    def record_stream(self, stream: Any) -> None:
        self.recorded.append(stream.cuda_stream)


def use_torch(monkeypatch: Any) -> Any:
    """Installs and returns a minimal PyTorch. Its current stream on a GPU is that of the entry in
    `CARDS`.
    """

    def stream(number: int, device: int) -> Any:
        return types.SimpleNamespace(cuda_stream=number, device=device)

    torch: Any = types.ModuleType("torch")
    torch.Tensor = TorchTensor
    torch.is_grad_enabled = lambda: True
    torch.is_captured = False
    torch.remembered = None

    @contextmanager
    def device(number: int) -> Iterator[None]:
        before, torch.remembered = torch.remembered, None
        with CARDS[number].entered():
            yield
        torch.remembered = before

    torch.cuda = types.SimpleNamespace(
        ExternalStream=stream,
        current_stream=lambda device: stream(CARDS[device].stream, device),
        device=device,
        is_current_stream_capturing=lambda: torch.is_captured,
        is_initialized=lambda: True,
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch


class OnlyInterface:
    """An array that has only `__cuda_array_interface__`, like arrays of Numba."""

    def __init__(self, array: Array, **more: Any) -> None:
        self.array = array
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.address + array.offset, False),
            "strides": None,
            "stream": array.card.stream,
            **more,
        }


class ImportedTensor:
    """The contents of a capsule that a consumer has taken."""

    def __init__(self, capsule: Any) -> None:
        self.is_versioned = "dltensor_versioned" in repr(capsule)
        name = b"dltensor_versioned" if self.is_versioned else b"dltensor"
        pointer = _capsule_pointer(capsule, name)
        # The name must live as long as the capsule.
        self._used = b"used_" + name
        _capsule_rename(capsule, self._used)
        self._capsule, self._pointer = capsule, pointer
        kind = Versioned if self.is_versioned else Plain
        self._managed: Any = ctypes.cast(pointer, ctypes.POINTER(kind)).contents
        tensor = self._managed.tensor
        self.device = tuple(tensor.device)
        self.address = (tensor.data or 0) + tensor.byte_offset
        self.shape = tuple(tensor.shape[: tensor.rank])
        self.strides = tuple(tensor.strides[: tensor.rank])
        letter = {number: letter for letter, number in NUMBERS.items()}[tensor.code]
        self.dtype = numpy.dtype(f"{letter}{tensor.bits // 8}")
        self.num_bytes = math.prod(self.shape) * self.dtype.itemsize
        self.flags = self._managed.flags if self.is_versioned else None

    @property
    def pointer(self) -> int:
        """The address of the structure, which is the argument of its deleter."""
        return self._pointer

    @property
    def deleter_address(self) -> int:
        """The address of the deleter."""
        return ctypes.cast(self._managed.deleter, ctypes.c_void_p).value or 0

    def read(self, card: Card, stream: int | None = None) -> numpy.ndarray[Any, Any]:
        """Returns the values, after all earlier work of a stream."""
        return card.read(self.address, self.shape, self.dtype, stream)

    def release(self) -> None:
        """Releases the memory."""
        self._managed.deleter(self._pointer)


#: One GPU per device. There may be fewer GPUs than devices, or more.
CARDS = (
    [Card(number) for number in range(min(num_cards(), mx.num_gpus()))] if mx.num_gpus() > 0 else []
)
#: Seeds of the emulated driver. Each gives another order of execution.
SEEDS = range(40)
DTYPES = ["float32", "float64", "float16", "int8", "int32", "int64", "uint8"]


def numbers(*shape: int, start: int = 1, dtype: str = "float32") -> numpy.ndarray[Any, Any]:
    """Returns small ascending numbers."""
    return (numpy.arange(math.prod(shape)) % 50 + start).reshape(shape).astype(dtype)


def store(value: Any, kind: str = "device") -> Any:
    """Returns a store with one value."""
    kv = mx.kv.create(kind)
    kv.init("w", value)
    return kv


def import_tensor(array: Any, card: Card | None = None, **options: Any) -> ImportedTensor:
    """Takes an array as a consumer with versions does. The consumer's stream waits for it."""
    stream = (card or CARDS[0]).stream
    return ImportedTensor(array.__dlpack__(**{"stream": stream, "max_version": (1, 0), **options}))
