"""The command ``python -m mxkv serve``, which starts a server.

The server runs until SIGTERM or SIGINT, completes the calls that run, and exits with code 0. A
second signal ends the process at once. ``--updater`` and ``--on-command`` name functions of modules
that can be imported from the current folder.

Each other option is also an environment variable, such as ``KVSTORE_ADDRESS``, or a line of the
configuration file. Arguments override variables, and variables override the file.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import queue
import sys
from typing import TYPE_CHECKING, Any

from .errors import InvalidArgumentError, KVStoreError
from .kvstore_server import KVStoreServer, signals_to, wait_for

if TYPE_CHECKING:
    from ._options import NamedStrings

#: The settings of a server, with the name of the value and the help. Those without a value are
#: flags. The defaults are those of the native module.
_SETTINGS: dict[str, tuple[str | None, str]] = {
    "config": ("FILE", "a configuration file (TOML) with the other settings"),
    "address": ("HOST:PORT", "where to listen; port 0 selects a free port (127.0.0.1:9191)"),
    "store": ("TYPE", "the store that holds the values, local or device (local)"),
    "checkpoints": ("FOLDER", "the folder for checkpoint_on_servers (none)"),
    "recovery": ("FOLDER", "the folder for recovery points, to continue from (none)"),
    "save_every": ("SECONDS", "how many seconds between recovery points (30)"),
    "journal": ("FILE", "the file for all calls that change values (none)"),
    "journal_mode": ("MODE", "full, or order without values (full)"),
    "journal_required": (None, "fails calls if the journal cannot be written"),
    "lease": ("SECONDS", "how many seconds a silent member stays live (10)"),
    "certificates": ("FOLDER", "a folder with ca.pem, cert.pem and key.pem"),
    "insecure": (None, "permits other machines without certificates"),
    "peer_connections": ("NUMBER", "the most connections from one machine (256)"),
    "peer_bytes": (
        "BYTES",
        "the most bytes in calls from one machine (half the memory limit, at least 64 MiB)",
    ),
    "keys": ("NUMBER", "the most keys (4000000)"),
    "metrics": ("HOST:PORT", "the address for /metrics and /healthz over HTTP (none)"),
    "status_page": (None, "adds a page with members and keys to the address of --metrics"),
    "followers": (
        "HOST:PORT,..",
        "for the first of several servers: the others, for rounds over all (none)",
    ),
    "coordinator": ("URL", "where the state of the group is: etcd://HOST:PORT,../GROUP (here)"),
    "coordinator_certificates": ("FOLDER", "the certificates for the coordinator"),
    "server_index": ("NUMBER", "the index of this server in the group, from 0 (0)"),
    "num_servers": ("NUMBER", "how many servers the group has (1)"),
    "advertise": ("HOST:PORT", "where members connect (the address)"),
}

#: Of these, one at most may be set.
_EXCLUSIVE = ("certificates", "insecure")


def main() -> int:
    """Runs the command. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m mxkv", allow_abbrev=False)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    serve = commands.add_parser(
        "serve",
        help="starts a server",
        allow_abbrev=False,
        epilog="Defaults are in parentheses. Each option except --updater and --on-command has an "
        "environment variable, such as KVSTORE_ADDRESS. Arguments override variables, and "
        "variables override the configuration file.",
    )
    exclusive = serve.add_mutually_exclusive_group()
    for name, (value, text) in _SETTINGS.items():
        add = (exclusive if name in _EXCLUSIVE else serve).add_argument
        flag = f"--{name.replace('_', '-')}"
        if value is None:
            add(flag, action="store_const", const="true", help=text)
        else:
            add(flag, metavar=value, help=text)
    serve.add_argument("--updater", metavar="MODULE:FUNCTION", help="runs for each pushed key")
    serve.add_argument(
        "--on-command", metavar="MODULE:FUNCTION", help="runs for each command of a worker"
    )
    arguments = parser.parse_args()
    try:
        _serve(arguments)
    except InvalidArgumentError as error:
        serve.error(str(error))
    except KVStoreError as error:
        print(f"mxkv: {error}", file=sys.stderr)
        return 1
    return 0


def _serve(arguments: argparse.Namespace) -> None:
    updater = _function("--updater", arguments.updater)
    on_command = _function("--on-command", arguments.on_command)
    ends: queue.SimpleQueue[None] = queue.SimpleQueue()
    # Before the server starts, so that a signal at any time ends it in order.
    with signals_to(ends):
        server = KVStoreServer._of_strings(_given(arguments), updater, on_command)
        _report(f"listening on {server.address}")
        if server.metrics_address is not None:
            _report(f"metrics on {server.metrics_address}")
        server._put_at_loss(ends)
        wait_for(ends)
        _report("ending: completing the calls that run")
        server.close()
        server._check_loss()


def _given(arguments: argparse.Namespace) -> NamedStrings:
    """Returns the settings that are on the command line, or otherwise in an environment variable
    such as ``KVSTORE_ADDRESS``.
    """
    on_line = {name: getattr(arguments, name) for name in _SETTINGS}
    variables = {name: os.environ.get(f"KVSTORE_{name.upper()}") for name in _SETTINGS}
    if any(on_line[name] is not None for name in _EXCLUSIVE):
        for name in _EXCLUSIVE:
            del variables[name]
    # An empty variable counts as unset. An empty argument does not.
    settings = {name: value for name, value in variables.items() if value}
    settings.update((name, value) for name, value in on_line.items() if value is not None)
    return list(settings.items())


def _report(line: str) -> None:
    """Prints a line. If that fails, because the reader has gone or the disk is full, the server
    continues.
    """
    with contextlib.suppress(OSError):
        print(line, flush=True)


def _function(option: str, name: str | None) -> Any:
    """Returns the function with this name, ``MODULE:FUNCTION``."""
    if name is None:
        return None
    module, _, function = name.partition(":")
    if not module or not function:
        raise InvalidArgumentError(f"{option}: expected MODULE:FUNCTION, found `{name}`")
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        # Another module is missing if the program's own imports fail.
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise InvalidArgumentError(f"{option}: there is no module `{error.name}`") from None
    for part in function.split("."):
        if not hasattr(found, part):
            raise InvalidArgumentError(f"{option}: module `{module}` has no `{function}`")
        found = getattr(found, part)
    return found


if __name__ == "__main__":
    sys.exit(main())
