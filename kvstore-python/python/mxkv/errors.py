"""The exceptions. Each is a :class:`KVStoreError`, and also a built-in exception if one fits.

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
    "LatePushError",
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
    """An error of a store, an array or a device.

    ``code`` is the name of the kind of error. It is the same in every language and does not change
    between versions. Messages may change. ``key`` is the affected key as a string. ``expected`` and
    ``found`` describe the values that were compared. Each of the three is ``None`` if it does not
    apply.
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
    """Restores a pickled exception."""
    return kind(message, key=key, expected=expected, found=found)


#: The name that programs for MXNet use in ``except``.
MXNetError = KVStoreError


class KeyNotFoundError(KVStoreError, KeyError):
    """The key is not initialised, or was removed."""

    code = "KeyNotFound"


class KeyExistsError(KVStoreError, KeyError):
    """The key is already initialised, or appears twice in one ``init``."""

    code = "KeyExists"


class LengthMismatchError(KVStoreError, ValueError):
    """Two parallel lists have different lengths."""

    code = "LengthMismatch"


class SpecMismatchError(KVStoreError, ValueError):
    """An array has the wrong shape or dtype."""

    code = "SpecMismatch"


class InvalidArgumentError(KVStoreError, ValueError):
    """An argument is not valid."""

    code = "InvalidArgument"


class ArgumentTypeError(InvalidArgumentError, TypeError):
    """An argument has the wrong type, or its elements have an unsupported dtype."""


class UnsupportedError(KVStoreError, NotImplementedError):
    """The operation is not supported. The message gives the reason."""

    code = "Unsupported"


class DeviceUnavailableError(KVStoreError):
    """The device does not exist on this machine, or cannot be used."""

    code = "DeviceUnavailable"


class OutOfMemoryError(KVStoreError, MemoryError):
    """There is not enough memory."""

    code = "OutOfMemory"


class UpdaterError(KVStoreError):
    """The updater failed without an exception, or in the process of a server. If the updater runs
    in this process, ``push`` raises its exception unchanged.
    """

    code = "Updater"


class StoreIOError(KVStoreError, OSError):
    """A file could not be read or written."""

    code = "Io"


class CorruptError(KVStoreError, ValueError):
    """A file or message is damaged."""

    code = "Corrupt"


class TimedOutError(KVStoreError, TimeoutError):
    """An operation did not finish in time."""

    code = "Timeout"


class BackendError(KVStoreError):
    """A device, a library that a backend uses, or the transport between processes failed."""

    code = "Backend"


class ClosedError(KVStoreError, ValueError):
    """The object has been closed."""

    code = "Closed"


class PoisonedError(KVStoreError):
    """A panic interrupted an earlier update of the key. Its value is not reliable."""

    code = "Poisoned"


class InternalError(KVStoreError):
    """A bug in this library."""

    code = "Internal"


class LatePushError(KVStoreError):
    """A push belongs to a round that has closed without it. The worker pulls, and pushes to the
    current round.
    """

    code = "LatePush"


#: The class of each code. ``Type`` is the class for arguments of the wrong type.
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
    "LatePush": LatePushError,
    "Type": ArgumentTypeError,
}
