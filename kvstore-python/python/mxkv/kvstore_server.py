"""Servers: the class :class:`KVStoreServer`, and the roles of jobs that MXNet's launchers start.

Processes share the values of a server. Workers connect to it with ``dist_async``:

>>> import mxkv as mx
>>> with KVStoreServer('127.0.0.1:0') as server:
...     first = mx.kv.create('dist_async', servers=server.address)
...     second = mx.kv.create('dist_async', servers=server.address)
...     first.init('w', mx.nd.zeros(2))
...     first.push('w', mx.nd.ones(2) * 7)
...     print(second.pull('w').tolist())
[7.0, 7.0]

``python -m mxkv serve`` starts a server that runs until SIGTERM or SIGINT.

MXNet's ``tools/launch.py`` starts each process of a job with a role in ``DMLC_ROLE``. In a
``server`` or ``scheduler``, ``import mxkv`` runs that role until all workers have left, and then
ends the process. In a worker, ``mx.kv.create('dist_async')`` joins the job. If other machines can
reach the scheduler, the environment variable ``KVSTORE_CERTIFICATES`` names a folder with
certificates in each process, or ``KVSTORE_INSECURE=1`` permits other machines without certificates.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import signal
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable, Iterator

from . import _native, _options
from ._rows import Key
from .errors import BackendError, UnsupportedError
from .kvstore import KVStore, Member
from .nd import NDArray

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._options import NamedStrings, ServerOptions

__all__ = ["KVStoreServer"]

_Updater = Callable[[Key, NDArray, NDArray], object]
_CommandHandler = Callable[[int, str], object]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

#: The longest delay of a signal, in seconds.
_PERIOD = 0.2

#: The open servers. They are closed before the interpreter ends, because updaters cannot run then.
_open_servers: weakref.WeakSet[KVStoreServer] = weakref.WeakSet()


class KVStoreServer:
    """A server in this process. It runs in background threads until it is closed or
    garbage-collected, or the program ends.

    It listens on ``address``, by default ``'127.0.0.1:9191'``. Port 0 selects a free port. If other
    machines can reach the address, the server and its members need ``certificates``, or both set
    ``insecure``. The options:

    - ``config``: a TOML file; options given here override it.
    - ``store``: the type of the store that holds the values, ``'local'`` (the default) or
      ``'device'``.
    - ``checkpoints``: the folder for :meth:`KVStore.checkpoint_on_servers
      <mxkv.kvstore.KVStore.checkpoint_on_servers>`. By default, the server writes no files.
    - ``recovery``: the folder for recovery points, from which the server continues after it was
      killed. Without one, it starts empty. ``save_every`` is the number of seconds between points,
      30 by default.
    - ``journal``: the file for all calls that change values, by default none. The command
      ``kvstore replay`` reads it. ``journal_mode='order'`` keeps members and keys without values,
      and ``'full'`` (the default) also the values. If the file cannot be written, the journal
      stops. With ``journal_required=True``, calls fail instead.
    - ``lease``: the number of seconds that a silent member stays live, 10 by default.
    - ``certificates``: a folder with ``ca.pem``, ``cert.pem`` and ``key.pem``, as ``kvstore certs``
      makes. Connections are then encrypted, and a member needs a certificate with a role:
      ``reader`` may read, ``worker`` and ``server`` may also change values and settings, and
      ``admin`` may also remove keys, roll back, restore and send commands. The default is the
      environment variable ``KVSTORE_CERTIFICATES``.
    - ``insecure``: permits other machines without certificates. Their connections are neither
      authenticated nor encrypted. The default is the variable ``KVSTORE_INSECURE``, or ``False``.
      If ``certificates`` or ``insecure=True`` is an argument, neither option is read from the
      environment or the file.
    - ``peer_connections``: the most connections from one machine, 256 by default.
    - ``peer_bytes``: the most bytes in calls from one machine, by default half the memory limit, at
      least 64 MiB.
    - ``keys``: the most keys, 4 million by default.
    - ``metrics``: an address for ``/metrics`` (Prometheus) and ``/healthz`` over HTTP, by default
      none. ``status_page=True`` adds a page with members and keys.
    - ``followers``: for the first of several servers, the addresses of the others in the order of
      the workers' list, as a list or separated by commas. Stores of type ``dist_quorum`` need them,
      because all servers commit the same rounds. With certificates, the role of this server must be
      ``server`` or ``admin``. Servers with a ``server_index`` above 0 ignore the list.
    - ``coordinator``: ``'etcd://HOST:PORT,../GROUP'``, where the state of the group is, by default
      in this process. The server is number ``server_index`` (from 0, the default) of
      ``num_servers`` (1 by default). It waits until the lease of an earlier server with this index
      ends. The first server finds the others there, without ``followers``.
      ``coordinator_certificates`` is a folder with the certificates for etcd.
      ``advertise='HOST:PORT'`` is where members connect, by default the address.

    ``updater`` runs for the pushes of all workers, as in :meth:`KVStore.set_updater
    <mxkv.kvstore.KVStore.set_updater>`. Its keys are strings, unless the program uses integers as
    keys of the attribute ``store``. A worker in this process gets the updater's exception itself.
    Workers in other processes get an :class:`~mxkv.errors.UpdaterError` with its text.

    ``on_command(head, body)`` runs for each command of ``_send_command_to_servers``. Threads of the
    library call both functions, and the server keeps both alive until it is closed.

    >>> import mxkv as mx
    >>> def update(key, pushed, stored):
    ...     stored -= pushed / 2
    >>> with KVStoreServer('127.0.0.1:0', updater=update) as server:
    ...     kv = mx.kv.create('dist_async', servers=server.address)
    ...     kv.init('w', mx.nd.ones(2))
    ...     kv.push('w', mx.nd.ones(2))
    ...     print(server.store.pull('w').tolist())
    [0.5, 0.5]
    """

    #: The address that the server listens on, as ``'HOST:PORT'``.
    address: str
    #: The address of the HTTP endpoint, or ``None`` without the option ``metrics``.
    metrics_address: str | None
    #: The store that holds the values. It remains usable after the server is closed.
    store: KVStore

    def __init__(
        self,
        address: str | None = None,
        *,
        updater: _Updater | None = None,
        on_command: _CommandHandler | None = None,
        **options: Unpack[ServerOptions],
    ) -> None:
        self._start(_options.of_server({"address": address, **options}), updater, on_command)

    @classmethod
    def _of_strings(
        cls,
        options: NamedStrings,
        updater: _Updater | None,
        on_command: _CommandHandler | None,
    ) -> KVStoreServer:
        """Starts a server with options as the native module expects them."""
        server = cls.__new__(cls)
        server._start(options, updater, on_command)
        return server

    def _start(
        self,
        options: NamedStrings,
        updater: _Updater | None,
        on_command: _CommandHandler | None,
    ) -> None:
        for name, function in (("updater", updater), ("on_command", on_command)):
            if function is not None:
                _options.check_function(name, function)
        self._ends: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._loss: str | None = None
        self._watch: threading.Thread | None = None
        self._native = _native.Server(options)
        _open_servers.add(self)
        self.address = self._native.address
        self.metrics_address = self._native.metrics_address
        self.store = KVStore._of_server(self._native)
        if updater is not None:
            self.store.set_updater(updater)
        if on_command is not None:
            self._native.on_command(on_command)

    def members(self) -> list[Member]:
        """Returns the live members: workers, then readers, each in the order of their ranks.

        >>> with KVStoreServer('127.0.0.1:0') as server:
        ...     server.members()
        []
        """
        return self._native.members()

    def run(self) -> None:
        """Waits for SIGTERM, SIGINT or :meth:`close` in another thread, and closes the server.

        Raises ``UnsupportedError`` outside the main thread, and ``BackendError`` if another
        server has taken its place at the coordinator. A second signal ends the process at once.
        """
        with signals_to(self._ends):
            self._put_at_loss(self._ends)
            wait_for(self._ends)
            self.close()
        self._check_loss()

    def _put_at_loss(self, ends: queue.SimpleQueue[None]) -> None:
        """Puts an item into the queue when another server has taken the place of this one."""

        def watch() -> None:
            self._loss = self._native.wait_for_loss()
            if self._loss is not None:
                ends.put(None)

        self._watch = threading.Thread(target=watch, name="kvstore-loss", daemon=True)
        self._watch.start()

    def _check_loss(self) -> None:
        """Raises ``BackendError`` if another server has taken the place of this one. It is
        closed.
        """
        if self._watch is not None:
            self._watch.join()
        if self._loss is not None:
            raise BackendError(f"coordinator: {self._loss}")

    def close(self) -> None:
        """Rejects new calls that change the store, completes running calls for at most a minute,
        and stops the server. Does nothing when called again or in a forked child.

        An updater or command handler of the server cannot call it, because it would wait for
        itself.
        """
        self._native.close()
        self._ends.put(None)

    def __enter__(self) -> KVStoreServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._native._is_closed:
            return "<KVStoreServer, closed>"
        return f"<KVStoreServer {self.address}>"


@contextlib.contextmanager
def signals_to(ends: queue.SimpleQueue[None]) -> Iterator[None]:
    """Puts an item into the queue at SIGTERM or SIGINT. A second signal ends the process at once.

    Raises ``UnsupportedError`` outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        text = "a server can wait for signals in the main thread only: Python handles them there"
        raise UnsupportedError(text)

    # A signal handler may run during `get`. Only `SimpleQueue.put` is safe there: it is reentrant.
    def end(_number: int, _frame: Any) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        ends.put(None)

    earlier = [(number, signal.signal(number, end)) for number in _SIGNALS]
    try:
        yield
    finally:
        for number, handler in earlier:
            # `None` is a handler that was not set by Python.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def wait_for(ends: queue.SimpleQueue[None]) -> None:
    """Waits until the queue has an item."""
    while True:
        # A signal that arrives just before the wait does not interrupt it, and its handler runs
        # when the wait ends.
        with contextlib.suppress(queue.Empty):
            return ends.get(timeout=_PERIOD)


@atexit.register
def _close_all() -> None:
    for server in list(_open_servers):
        server.close()


def _init_kvstore_server_module() -> None:
    """Runs the server or the scheduler of a job until the job ends, and then ends the process. Does
    nothing in other processes. The name is MXNet's.
    """
    if os.environ.get("DMLC_ROLE") not in ("server", "scheduler"):
        return
    if threading.current_thread() is threading.main_thread():
        # Python's handler of Ctrl-C would run only after the job.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    _native.serve_job()
    sys.exit()
