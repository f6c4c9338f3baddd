"""What can go wrong. Every error is a :class:`KVStoreError`, and one of Python's own where one fits.

>>> import mxkv as mx
>>> kv = mx.kv.create()
>>> try:
...     kv.pull('missing')
... except KeyError as error:
...     print(error.code, error.key)
...     print(error)
KeyNotFound missing
key `missing` has not been initialised
"""

from __future__ import annotations

__all__ = [
    "ArgumentTypeError",
    "BackendError",
    "ClosedError",
    "CorruptError",
    "DeviceUnavailableError",
    "InternalError",
    "InvalidArgumentError",
    "KVStoreError",
    "KeyExistsError",
    "KeyNotFoundError",
    "LengthMismatchError",
    "MXNetError",
    "OutOfMemoryError",
    "PoisonedError",
    "SpecMismatchError",
    "StoreIOError",
    "TimedOutError",
    "UnsupportedError",
    "UpdaterError",
]


class KVStoreError(RuntimeError):
    """What a store, an array or a device refused, or what failed.

    ``code`` is the name of the error's kind, the same in every language and from version to version; messages may be
    reworded. ``key`` is the key that it is about, as a text; ``expected`` and ``found`` are what was compared, in
    words. Each is ``None`` where there is none.
    """

    code = "Internal"

    def __init__(
        self,
        message: str = "",
        *,
        key: str | None = None,
        expected: str | None = None,
        found: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.key = key
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        return self.message

    def __reduce__(self):
        return _again, (type(self), self.message, self.key, self.expected, self.found)


def _again(kind, message, key, expected, found):
    return kind(message, key=key, expected=expected, found=found)


#: The name that programs for MXNet catch.
MXNetError = KVStoreError


class KeyNotFoundError(KVStoreError, KeyError):
    """The key was never initialised, or was removed."""

    code = "KeyNotFound"


class KeyExistsError(KVStoreError, KeyError):
    """The key is initialised already, or stands twice in one ``init``."""

    code = "KeyExists"


class LengthMismatchError(KVStoreError, ValueError):
    """Two things that run in parallel have different lengths."""

    code = "LengthMismatch"


class SpecMismatchError(KVStoreError, ValueError):
    """An array's shape or dtype is not the one that is needed."""

    code = "SpecMismatch"


class InvalidArgumentError(KVStoreError, ValueError):
    """An argument that no store, array or device accepts."""

    code = "InvalidArgument"


class ArgumentTypeError(InvalidArgumentError, TypeError):
    """An argument of a type, or elements of a dtype, that is not accepted."""


class UnsupportedError(KVStoreError, NotImplementedError):
    """Something that is not provided here, with the reason."""

    code = "Unsupported"


class DeviceUnavailableError(KVStoreError):
    """The device does not exist on this machine, or cannot be used."""

    code = "DeviceUnavailable"


class OutOfMemoryError(KVStoreError, MemoryError):
    """Memory for an array could not be had."""

    code = "OutOfMemory"


class UpdaterError(KVStoreError):
    """The updater failed, and not by an exception: that would be raised as it is."""

    code = "Updater"


class StoreIOError(KVStoreError, OSError):
    """A file could not be read or written."""

    code = "Io"


class CorruptError(KVStoreError, ValueError):
    """A file or message is damaged."""

    code = "Corrupt"


class TimedOutError(KVStoreError, TimeoutError):
    """A deadline passed."""

    code = "Timeout"


class BackendError(KVStoreError):
    """A device, a library under a backend, or what moves bytes between processes failed."""

    code = "Backend"


class ClosedError(KVStoreError, ValueError):
    """The object was closed before."""

    code = "Closed"


class PoisonedError(KVStoreError):
    """A panic ended an earlier update of this key half-way; its value is not to be trusted."""

    code = "Poisoned"


class InternalError(KVStoreError):
    """A bug of this library."""

    code = "Internal"


#: The class of each code, and under ``Type`` that of arguments of another type.
CLASSES = {
    "KeyNotFound": KeyNotFoundError,
    "KeyExists": KeyExistsError,
    "LengthMismatch": LengthMismatchError,
    "SpecMismatch": SpecMismatchError,
    "InvalidArgument": InvalidArgumentError,
    "Unsupported": UnsupportedError,
    "DeviceUnavailable": DeviceUnavailableError,
    "OutOfMemory": OutOfMemoryError,
    "Updater": UpdaterError,
    "Io": StoreIOError,
    "Corrupt": CorruptError,
    "Timeout": TimedOutError,
    "Backend": BackendError,
    "Closed": ClosedError,
    "Poisoned": PoisonedError,
    "Internal": InternalError,
    "Type": ArgumentTypeError,
}
