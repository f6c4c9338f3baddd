"""The options of stores on servers, and of servers."""

from __future__ import annotations

import os
from typing import Any, Callable, Mapping, Sequence, TypedDict

import numpy

from ._arguments import number, shown, whole
from .errors import ArgumentTypeError

#: Options by name, as the native module expects them.
NamedStrings = list[tuple[str, str]]


class StoreOptions(TypedDict, total=False):
    """The options of :func:`mxkv.kv.create`. ``None`` selects the default."""

    servers: str | Sequence[str] | None
    member: str | None
    timeout: float | None
    staleness: int | None
    reader: bool | None
    connections: int | None
    divide_above: int | None


def of_store(options: Mapping[str, Any]) -> NamedStrings:
    """Returns the options of a store that are not ``None``.

    >>> of_store({'servers': ['127.0.0.1:9191', '127.0.0.1:9192'], 'reader': True})
    [('servers', '127.0.0.1:9191,127.0.0.1:9192'), ('reader', 'true')]
    """
    for name in options:
        if name not in _OF_STORE:
            raise ArgumentTypeError(_unknown(name))
    given = {name: value for name, value in options.items() if value is not None}
    native = [(name, _OF_STORE[name](name, value)) for name, value in given.items()]
    # The first argument of `create` is already called `name`.
    return [("name" if name == "member" else name, value) for name, value in native]


def of_server(address: Any, store: Any, checkpoints: Any, lease: Any) -> NamedStrings:
    """Returns the options of a server."""
    options = [("address", text("address", address)), ("store", text("store", store))]
    if checkpoints is not None:
        if not isinstance(checkpoints, (str, os.PathLike)):
            raise ArgumentTypeError(f"checkpoints: expected a path, found {shown(checkpoints)}")
        options.append(("checkpoints", text("checkpoints", os.fspath(checkpoints))))
    if lease is not None:
        options.append(("lease", _seconds("lease", lease)))
    return options


def text(name: str, value: Any) -> str:
    """Returns a value that must be a string."""
    if not isinstance(value, str):
        raise ArgumentTypeError(f"{name}: expected a string, found {shown(value)}")
    return value


def check_function(name: str, value: Any) -> None:
    """Checks that an argument can be called."""
    if not callable(value):
        raise ArgumentTypeError(f"{name}: expected a function, found {shown(value)}")


def _addresses(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, (list, tuple)):
        raise ArgumentTypeError(f"{name}: expected addresses HOST:PORT, found {shown(value)}")
    return ",".join(text(f"{name}[{index}]", address) for index, address in enumerate(value))


def _seconds(name: str, value: Any) -> str:
    return repr(number(name, value, "a number of seconds"))


def _flag(name: str, value: Any) -> str:
    if not isinstance(value, (bool, numpy.bool_)):
        raise ArgumentTypeError(f"{name}: expected True or False, found {shown(value)}")
    return "true" if value else "false"


def _whole(name: str, value: Any) -> str:
    return str(whole(name, value, 64))


#: Converts the value of each option to a string.
_OF_STORE: dict[str, Callable[[str, Any], str]] = {
    "servers": _addresses,
    "member": text,
    "timeout": _seconds,
    "staleness": _whole,
    "reader": _flag,
    "connections": _whole,
    "divide_above": _whole,
}


def _unknown(name: str) -> str:
    import difflib

    nearest = difflib.get_close_matches(name, _OF_STORE, 1)
    guess = f": did you mean `{nearest[0]}`? The" if nearest else ". The"
    return f"unknown option `{name}`{guess} options are {', '.join(_OF_STORE)}"
