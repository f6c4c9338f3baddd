"""The command ``python -m mxkv serve``, which starts a server.

The server runs until SIGTERM or SIGINT, completes the calls that run, and exits with code 0. A
second signal ends it at once. ``--updater`` and ``--on-command`` name functions of modules that
can be imported from the current folder.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import ipaddress
import queue
import socket
import sys
from typing import Any

from .errors import InvalidArgumentError, KVStoreError
from .kvstore_server import KVStoreServer, signals_to, wait_for


def main() -> int:
    """Runs the command. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="mxkv", allow_abbrev=False)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    serve = commands.add_parser("serve", help="start a server", allow_abbrev=False)
    add = serve.add_argument
    add(
        "--address",
        metavar="HOST:PORT",
        default="127.0.0.1:9191",
        help="where to listen; port 0 selects a free port (default: %(default)s)",
    )
    add(
        "--store",
        metavar="TYPE",
        default="local",
        help="the store that holds the values, local or device (default: %(default)s)",
    )
    add("--checkpoints", metavar="FOLDER", help="the folder for checkpoint_on_servers")
    add("--lease", metavar="SECONDS", type=float, help="how long a silent member stays live")
    add("--updater", metavar="MODULE:FUNCTION", help="runs for each pushed key")
    add("--on-command", metavar="MODULE:FUNCTION", help="runs for each command of a worker")
    add("--insecure", action="store_true", help="allow an address that other machines reach")
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
    if not arguments.insecure:
        _check_loopback(arguments.address)
    functions = {
        "updater": _function("--updater", arguments.updater),
        "on_command": _function("--on-command", arguments.on_command),
    }
    ends: queue.SimpleQueue[None] = queue.SimpleQueue()
    # Before the server starts, so that a signal at any time ends it in order.
    with signals_to(ends):
        server = KVStoreServer(
            arguments.address,
            store=arguments.store,
            checkpoints=arguments.checkpoints,
            lease=arguments.lease,
            **functions,
        )
        _report(f"listening on {server.address}")
        wait_for(ends)
        _report("ending: completing the calls that run")
        server.close()


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


def _check_loopback(address: str) -> None:
    """Raises ``InvalidArgumentError`` if another machine can reach the address."""
    host, _, port = address.rpartition(":")
    expected = f"--address: expected HOST:PORT, found `{address}`"
    if not host or not port.isdecimal():
        raise InvalidArgumentError(expected)
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, OverflowError, UnicodeError) as error:
        raise InvalidArgumentError(f"{expected}: {error}") from None
    for *_, place in found:
        if not ipaddress.ip_address(place[0]).is_loopback:
            shown = f"[{place[0]}]" if ":" in str(place[0]) else place[0]
            raise InvalidArgumentError(
                f"--address: other machines can reach {shown}:{port}, and connections are neither "
                "authenticated nor encrypted: use a loopback address, or add --insecure in a "
                "private network"
            )


if __name__ == "__main__":
    sys.exit(main())
