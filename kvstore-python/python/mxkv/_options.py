"""The options of stores on servers, and of servers."""

from __future__ import annotations

import os
from typing import Any, Callable, Literal, Mapping, Sequence, TypedDict

import numpy

from ._arguments import number, shown, whole
from .errors import ArgumentTypeError

#: Options by name, as the native module expects them.
NamedStrings = list[tuple[str, str]]

#: Converts the value of an option to a string. The first argument is the option's name.
_Converter = Callable[[str, Any], str]


class StoreOptions(TypedDict, total=False):
    """The options of :func:`mxkv.kv.create`. ``None`` selects the default."""

    servers: str | Sequence[str] | None
    member: str | None
    timeout: float | None
    staleness: int | None
    reader: bool | None
    connections: int | None
    divide_above: int | None
    certificates: str | os.PathLike[str] | None
    insecure: bool | None
    quorum: int | None
    grace: float | None
    late: Literal["reject", "next"] | None
    weight: float | None
    coordinator: str | None
    coordinator_certificates: str | os.PathLike[str] | None


class ServerOptions(TypedDict, total=False):
    """The options of :class:`mxkv.kvstore_server.KVStoreServer` besides its address and functions.
    ``None`` selects the default.
    """

    config: str | os.PathLike[str] | None
    store: str | None
    checkpoints: str | os.PathLike[str] | None
    recovery: str | os.PathLike[str] | None
    save_every: float | None
    journal: str | os.PathLike[str] | None
    journal_mode: str | None
    journal_required: bool | None
    lease: float | None
    certificates: str | os.PathLike[str] | None
    insecure: bool | None
    peer_connections: int | None
    peer_bytes: int | None
    keys: int | None
    metrics: str | None
    status_page: bool | None
    followers: str | Sequence[str] | None
    coordinator: str | None
    coordinator_certificates: str | os.PathLike[str] | None
    server_index: int | None
    num_servers: int | None
    advertise: str | None


def of_store(options: Mapping[str, Any]) -> NamedStrings:
    """Returns the options of a store that are not ``None``.

    >>> of_store({'servers': ['127.0.0.1:9191', '127.0.0.1:9192'], 'reader': True})
    [('servers', '127.0.0.1:9191,127.0.0.1:9192'), ('reader', 'true')]
    """
    named = _named(options, _OF_STORE)
    # The first argument of `create` is already called `name`.
    return [("name" if name == "member" else name, value) for name, value in named]


def of_server(options: Mapping[str, Any]) -> NamedStrings:
    """Returns the options of a server that are not ``None``. The native module has the defaults,
    because a configuration file overrides them.

    >>> of_server({'address': '127.0.0.1:0', 'lease': 5, 'keys': None})
    [('address', '127.0.0.1:0'), ('lease', '5.0')]
    """
    return _named(options, _OF_SERVER, "updater", "on_command")


def _named(
    options: Mapping[str, Any], known: Mapping[str, _Converter], *functions: str
) -> NamedStrings:
    """Returns the options that are not ``None``. ``functions`` are further arguments that the
    message for an unknown option lists.
    """
    for name in options:
        if name not in known:
            raise ArgumentTypeError(_unknown(name, [*known, *functions]))
    given = {name: value for name, value in options.items() if value is not None}
    return [(name, known[name](name, value)) for name, value in given.items()]


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


def _path(name: str, value: Any) -> str:
    if not isinstance(value, (str, os.PathLike)):
        raise ArgumentTypeError(f"{name}: expected a path, found {shown(value)}")
    return text(name, os.fspath(value))


def _seconds(name: str, value: Any) -> str:
    return repr(number(name, value, "a number of seconds"))


def _weight(name: str, value: Any) -> str:
    return repr(number(name, value, "a number"))


def _flag(name: str, value: Any) -> str:
    if not isinstance(value, (bool, numpy.bool_)):
        raise ArgumentTypeError(f"{name}: expected True or False, found {shown(value)}")
    return "true" if value else "false"


def _whole(name: str, value: Any) -> str:
    return str(whole(name, value, 64))


#: The options of stores.
_OF_STORE: dict[str, _Converter] = {
    "servers": _addresses,
    "member": text,
    "timeout": _seconds,
    "staleness": _whole,
    "reader": _flag,
    "connections": _whole,
    "divide_above": _whole,
    "certificates": _path,
    "insecure": _flag,
    "quorum": _whole,
    "grace": _seconds,
    "late": text,
    "weight": _weight,
    "coordinator": text,
    "coordinator_certificates": _path,
}

#: The options of servers.
_OF_SERVER: dict[str, _Converter] = {
    "address": text,
    "config": _path,
    "store": text,
    "checkpoints": _path,
    "recovery": _path,
    "save_every": _seconds,
    "journal": _path,
    "journal_mode": text,
    "journal_required": _flag,
    "lease": _seconds,
    "certificates": _path,
    "insecure": _flag,
    "peer_connections": _whole,
    "peer_bytes": _whole,
    "keys": _whole,
    "metrics": text,
    "status_page": _flag,
    "followers": _addresses,
    "coordinator": text,
    "coordinator_certificates": _path,
    "server_index": _whole,
    "num_servers": _whole,
    "advertise": text,
}


def _unknown(name: str, known: Sequence[str]) -> str:
    import difflib

    nearest = difflib.get_close_matches(name, known, 1)
    guess = f": did you mean `{nearest[0]}`? The" if nearest else ". The"
    return f"unknown option `{name}`{guess} options are {', '.join(known)}"
