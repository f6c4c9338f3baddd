"""Stores: the class :class:`KVStore`, and classes that programs register.

>>> import mxkv as mx
>>> kv = mx.kv.create('local')
>>> kv.init(3, mx.nd.ones((2, 3)) * 2)
>>> kv.push(3, [mx.nd.ones((2, 3), mx.cpu(i)) for i in range(4)])
>>> kv.pull(3).asnumpy()
array([[4., 4., 4.],
       [4., 4., 4.]], dtype=float32)
"""

from __future__ import annotations

import os
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    ClassVar,
    Literal,
    Mapping,
    Sequence,
    overload,
)

from . import _native, _options, npx
from ._arguments import number, option, shown
from ._native import Checkpoint, NDArray, RowSparseNDArray, Snapshot
from ._records import KeyStats, Member, Rewound
from ._rows import Key, as_list, assign, checked, is_nested, side_by_side
from .errors import ArgumentTypeError, InvalidArgumentError, UnsupportedError
from .nd import array_of
from ._builtin_optimizer import check_own
from .optimizer import Optimizer

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._options import StoreOptions

__all__ = [
    "Checkpoint",
    "KVStore",
    "KVStoreBase",
    "KeyStats",
    "Member",
    "OnExisting",
    "Rewound",
    "Snapshot",
    "TestStore",
    "create",
    "push_staleness",
    "read_checkpoint",
]

OnExisting = Literal["reject", "keep", "replace"]

_Known = Literal[
    "local",
    "local_update_cpu",
    "local_allreduce_cpu",
    "device",
    "local_allreduce_device",
    "dist",
    "dist_sync",
    "dist_device_sync",
    "dist_sync_device",
    "dist_async",
    "dist_device_async",
    "dist_async_device",
    "dist_quorum",
]


class KVStoreBase:
    """The base class of stores, and the registry of their classes by name. Methods that a subclass
    does not define raise ``NotImplementedError``.
    """

    OPTIMIZER = "optimizer"

    #: The classes by their names in lower case.
    kv_registry: ClassVar[dict[str, type[KVStoreBase]]] = {}

    @staticmethod
    def register(klass: type[KVStoreBase]) -> type[KVStoreBase]:
        """Registers a class for :func:`create`, by its name in any case.

        >>> @KVStoreBase.register
        ... class Horovod(KVStoreBase):
        ...     pass
        >>> type(create('horovod')).__name__
        'Horovod'
        """
        KVStoreBase.kv_registry[klass.__name__.lower()] = klass
        return klass

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Returns whether the store has a capability besides ``broadcast`` and ``pushpull``."""
        if str(capability).lower() == KVStoreBase.OPTIMIZER:
            return False
        raise InvalidArgumentError(f"Unknown capability: {capability}, expected `optimizer`")

    @property
    def type(self) -> str:
        """The name of the class in lower case."""
        return self.__class__.__name__.lower()

    @property
    def rank(self) -> int:
        """The rank of this process among the workers."""
        return 0

    @property
    def num_workers(self) -> int:
        """The number of processes that share the store."""
        return 1

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """Initialises keys, then copies their values into the outputs."""
        raise self._lacks("broadcast")

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Sums the values of each key into the outputs, or back into the values."""
        raise self._lacks("pushpull")

    def set_optimizer(self, optimizer: Any) -> None:
        """Sets the optimizer of all later pushes."""
        raise self._lacks("set_optimizer")

    def save_optimizer_states(self, fname: Any, dump_optimizer: bool = False) -> None:
        """Writes the optimizer states to a file."""
        raise self._lacks("save_optimizer_states")

    def load_optimizer_states(self, fname: Any) -> None:
        """Reads the optimizer states from a file."""
        raise self._lacks("load_optimizer_states")

    def _lacks(self, verb: str) -> UnsupportedError:
        return UnsupportedError(f"store class `{type(self).__name__}` does not define `{verb}`")


@KVStoreBase.register
class TestStore(KVStoreBase):
    """A store that keeps no values, for tests of programs.

    >>> import mxkv as mx
    >>> store, out = create('teststore'), mx.nd.zeros(2)
    >>> store.pushpull('w', [mx.nd.ones(2), mx.nd.ones(2)], out=out)
    >>> out.tolist()
    [2.0, 2.0]
    """

    #: Prevents pytest from collecting the class.
    __test__ = False

    def broadcast(self, key: Key, value: Any, out: Any, priority: int = 0) -> None:
        """Copies the value into the outputs."""
        self._give(as_list(out), value)

    def pushpull(self, key: Key, value: Any, out: Any = None, priority: int = 0) -> None:
        """Copies the sum of the values into the outputs, or into the values."""
        values = as_list(value)
        if not values:
            return
        total = array_of(values[0], "value").copy()
        for one in values[1:]:
            total += one
        self._give(values if out is None else as_list(out), total)

    def _give(self, outs: Sequence[Any], value: Any) -> None:
        """Copies the value into the outputs. Uses a store for outputs of other libraries, because
        only a store can write to them.
        """
        for one in outs:
            if isinstance(one, NDArray):
                one[:] = value
        others = [one for one in outs if not isinstance(one, NDArray)]
        if others:
            KVStore().broadcast(0, value, others)


class KVStore(_native.Store, KVStoreBase):
    """A store of named arrays. :func:`create` creates one.

    Keys and values have one of these forms:

    - a key and a value
    - a key and a list of values, all of them for that key
    - a list of keys and a list of as many values
    - a list of keys and a list of as many lists of values

    A key may appear in a list more than once. It then has several values: a push sums them, and a
    pull copies the value to each of them. A key is a string or an integer, and all keys of a store
    have the same type.

    A dictionary from key to array, or to list of arrays, replaces both arguments. All other
    arguments are then keyword arguments, and ``out`` of ``pushpull`` and ``broadcast`` is also a
    dictionary:

    >>> import numpy
    >>> kv, model = create(), {'weight': numpy.ones((2, 2)), 'bias': numpy.zeros(2)}
    >>> kv.init(model)
    >>> kv.push({'weight': [numpy.ones((2, 2))] * 3})
    >>> kv.pull(model, priority=1)
    >>> model['weight'][0], model['bias']
    (array([3., 3.]), array([0., 0.]))

    A value is an :class:`~mxkv.nd.NDArray`, a :class:`~mxkv.nd.RowSparseNDArray`, or an array of
    any library with ``__dlpack__``. The store reads it in place during the call. No other thread
    may write to it meanwhile. An output may also be an array of another library, if it is writable.
    For arrays on a GPU, the store waits for work that their library has queued, and the store's
    work on them is complete when the call returns. Parameters of PyTorch can be values and outputs
    under ``torch.no_grad()``.

    A call checks all its arguments before it changes anything, and a failed call changes nothing.
    The effects of a call are complete when it returns. Any thread may call any method, and other
    threads run meanwhile.

    Python runs signal handlers while a call reads its arguments, or after the call has returned. So
    Ctrl-C interrupts a call before it changes anything, or after it is complete. The exceptions
    are:

    - An updater in Python is interrupted at its key. Earlier keys are updated.
    - :func:`mxkv.nd.dot` runs handlers every 10^9 multiplications, and ends if a handler raises.
    - ``close`` and ``Checkpoint.wait`` run handlers while they wait for checkpoints.

    A store belongs to the process that created it. In a forked child (``os.fork``,
    :mod:`multiprocessing`) every use except ``close`` raises
    :class:`~mxkv.errors.UnsupportedError`. The child can create its own store. It can use inherited
    arrays, except arrays on a GPU and arrays that another thread was using at the fork.
    """

    def __init__(self, name: str = "local", **options: Unpack[StoreOptions]) -> None:
        self._open(_options.text("name", name), _options.of_store(options))

    @classmethod
    def _of_server(cls, server: _native.Server) -> KVStore:
        """Returns the store that holds the values of a server."""
        store = cls.__new__(cls)
        store._open_on(server)
        return store

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Returns whether the store can run optimizers, which is true.

        >>> create().is_capable('optimizer')
        True
        """
        if str(capability).lower() == KVStoreBase.OPTIMIZER:
            return True
        raise InvalidArgumentError(f"Unknown capability: {capability}, expected `optimizer`")

    def __enter__(self) -> KVStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._is_closed:
            return "<KVStore, closed>"
        if self._is_inherited:
            return "<KVStore, created before this process was forked>"
        # Counting the keys on servers waits for the network.
        if "async" in self.type or self.type == "dist_quorum":
            return f"<KVStore {self.type}>"
        return f"<KVStore {self.type}, {len(self)} keys>"

    def __bool__(self) -> bool:
        return True

    def row_sparse_pull(
        self, key: Any, out: Any = None, priority: int = 0, row_ids: Any = None
    ) -> Any:
        """Pulls the rows with these indices. The indices may have any order and may contain
        duplicates. The result contains each row once.

        Without ``out``, returns the rows: one row-sparse array for a single key and its indices, a
        list of them for a list of keys or of index lists. ``row_ids`` has the indices for all keys,
        or a list of indices for each key.

        >>> import mxkv as mx
        >>> kv = create()
        >>> kv.init('w', mx.nd.array([[1, 2], [3, 4], [5, 6]]))
        >>> rows = kv.row_sparse_pull('w', row_ids=[2, 0, 2])
        >>> rows.indices.tolist(), rows.data.tolist()
        ([0, 2], [[1.0, 2.0], [5.0, 6.0]])
        """
        if row_ids is None:
            raise ArgumentTypeError("row_ids: expected row indices, found None")
        if isinstance(key, Mapping):
            if out is not None:
                text = "out: a map of keys to outputs has them already, expected None"
                raise ArgumentTypeError(f"{text}, found {shown(out)}")
            items = list(key.items())
            key, out = [name for name, _ in items], [one for _, one in items]
        keys, outs, ids = side_by_side(key, out, row_ids)
        pulled = self._pull_rows(keys, ids, priority)
        if out is None:
            is_list = isinstance(key, (list, tuple)) or is_nested(row_ids)
            return pulled if is_list else pulled[0]
        assign(checked(zip(outs, pulled), keys), keys)
        return None

    # Settings of all later pushes.

    def set_updater(self, updater: Callable[[Key, NDArray, NDArray], object] | None) -> None:
        """Sets a function ``updater(key, pushed, stored)`` that every later push calls. With
        ``None``, the sum of a push replaces the stored value again.

        ``pushed`` is the sum. The function changes ``stored`` in place. Both arrays are valid
        during the call only: later changes to them have no effect. If the function raises an
        exception, ``push`` raises it, and the key keeps its old value.

        The store keeps the updater alive. An updater that refers to the store keeps the store alive
        until another updater is set.

        >>> import mxkv as mx
        >>> kv = create()
        >>> kv.init('w', mx.nd.ones(2))
        >>> def update(key, pushed, stored):
        ...     stored += pushed * 2
        >>> kv.set_updater(update)
        >>> kv.push('w', mx.nd.ones(2))
        >>> kv.pull('w').tolist()
        [3.0, 3.0]
        """
        if updater is None:
            self._clear_updater()
            return
        _options.check_function("updater", updater)
        self._set_function(_calling(updater))

    def _set_updater(self, updater: Callable[[Key, NDArray, NDArray], object] | None) -> None:
        """MXNet's name of :meth:`set_updater`."""
        self.set_updater(updater)

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """Sets the optimizer of all later pushes. The optimizer states of all keys start anew.

        The store copies the optimizer. Use :meth:`set_hyper_parameters` for later changes.

        >>> import mxkv as mx
        >>> kv = create()
        >>> kv.init('w', mx.nd.ones(2))
        >>> kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.5))
        >>> kv.push('w', mx.nd.ones(2))
        >>> kv.pull('w').tolist()
        [0.5, 0.5]
        """
        if not isinstance(optimizer, Optimizer):
            raise ArgumentTypeError(
                f"optimizer: expected one of mxkv.optimizer, found {shown(optimizer)}"
            )
        built_in = check_own(optimizer)
        self._set_optimizer(built_in)
        built_in._is_taken = True

    def set_hyper_parameters(
        self, changed: Mapping[str, float] | None = None, **more: float
    ) -> None:
        """Changes hyper-parameters of the store's optimizer, all or none. States and update counts
        stay.

        >>> import mxkv as mx
        >>> kv = create()
        >>> kv.set_optimizer(mx.optimizer.SGD())
        >>> kv.set_hyper_parameters(learning_rate=0.001)
        >>> kv.hyper_parameters()['learning_rate']
        0.001
        """
        if not isinstance(changed, (Mapping, type(None))):
            raise ArgumentTypeError(
                f"changed: expected a map of names to numbers, found {shown(changed)}"
            )
        twice = set(changed or {}) & set(more)
        if twice:
            names = ", ".join(f"`{name}`" for name in sorted(twice))
            text = f"{names}: given in `changed` and as keyword, expected one of them"
            raise InvalidArgumentError(text)
        options = {**(changed or {}), **more}
        numbers = [(str(name), option(str(name), it)) for name, it in options.items()]
        self._set_hyper_parameters(numbers)

    def set_gradient_compression(self, compression_params: Mapping[str, Any] | None) -> None:
        """Compresses the values of all later pushes. ``None`` turns compression off.

        ``type`` is ``'1bit'`` or ``'2bit'``. ``threshold`` is optional.

        >>> import mxkv as mx
        >>> kv = create()
        >>> kv.init('w', mx.nd.zeros(2))
        >>> kv.set_gradient_compression({'type': '2bit', 'threshold': 0.5})
        >>> kv.push('w', mx.nd.array([0.3, -0.7]))
        >>> kv.pull('w').tolist()
        [0.0, -0.5]
        """
        if compression_params is None:
            self._clear_compression()
            return
        if not isinstance(compression_params, Mapping):
            text = "compression_params: expected a map such as {'type': '2bit', 'threshold': 0.5}"
            raise ArgumentTypeError(f"{text}, found {shown(compression_params)}")
        options = dict(compression_params)
        kind, threshold = options.pop("type", None), options.pop("threshold", None)
        if options or not isinstance(kind, str):
            unknown = ", ".join(f"`{name}`" for name in options) or f"type {shown(kind)}"
            raise InvalidArgumentError(
                f"compression_params: expected `type` and `threshold`, found {unknown}"
            )
        wanted = None if threshold is None else number("threshold", threshold)
        self._set_compression(kind, wanted)

    def set_clip_global_norm(self, max_norm: float | None) -> None:
        """Clips the sums of all later pushes: scales them so that the Euclidean norm over all keys
        of a push is at most ``max_norm``. ``None`` turns clipping off.

        The factor is ``max_norm / (norm + 1e-8)``, as in ``gluon.utils.clip_global_norm``. Each
        push has its own norm, so push all gradients of a model in one call. The store clips before
        the optimizer or updater runs, and so before ``rescale_grad`` applies. A norm that is NaN or
        infinite does not clip.

        >>> import mxkv as mx
        >>> kv = create()
        >>> kv.init(['a', 'b'], [mx.nd.zeros(1), mx.nd.zeros(1)])
        >>> kv.set_clip_global_norm(5)
        >>> kv.push(['a', 'b'], [mx.nd.array([6]), mx.nd.array([8])])
        >>> [array.tolist() for array in kv.pull(['a', 'b'])]
        [[3.0], [4.0]]
        """
        if max_norm is None:
            self._clear_clip_global_norm()
        else:
            self._set_clip_global_norm(number("max_norm", max_norm))

    def on_member(self, function: Callable[[list[Member]], object]) -> None:
        """Sets a function that a thread of the library calls with the live members after each
        change. Replaces an earlier function. Only stores on servers have members that come and go.

        ``sys.unraisablehook`` reports exceptions of the function. The store keeps the function
        alive, and a function that refers to the store keeps the store alive until it is closed.

        >>> import queue, mxkv as mx
        >>> server, changes = mx.kvstore_server.KVStoreServer('127.0.0.1:0'), queue.SimpleQueue()
        >>> kv = create('dist_async', servers=server.address, member='a')
        >>> kv.on_member(changes.put)
        >>> other = create('dist_async', servers=server.address, member='b')
        >>> [member.name for member in changes.get()]
        ['a', 'b']
        >>> for store in (kv, other, server):
        ...     store.close()
        """
        _options.check_function("function", function)
        self._on_member(function)

    def on_rewind(self, function: Callable[[Rewound], object]) -> None:
        """Sets a function that a thread of the library calls each time a server that was killed
        continues from a recovery point. Pushes after the point are lost. Calls without a reply are
        repeated, and none takes effect twice. Replaces an earlier function.

        ``sys.unraisablehook`` reports exceptions of the function.

        >>> import queue, tempfile, mxkv as mx
        >>> folder, rewinds = tempfile.mkdtemp(), queue.SimpleQueue()
        >>> server = mx.kvstore_server.KVStoreServer('127.0.0.1:0', recovery=folder)
        >>> kv = create('dist_async', servers=server.address)
        >>> kv.init('w', mx.nd.zeros(1))
        >>> kv.on_rewind(rewinds.put)
        >>> server.close()
        >>> server = mx.kvstore_server.KVStoreServer(server.address, recovery=folder)
        >>> rewinds.get().version, kv.pull('w').tolist()
        (0, [0.0])
        >>> kv.close()
        >>> server.close()
        """
        _options.check_function("function", function)
        self._on_rewind(function)

    # MXNet's names of other methods.

    def _barrier(self) -> None:
        """MXNet's name of :meth:`barrier`."""
        self.barrier()

    def get_num_dead_node(self, node_id: int, timeout: int = 60) -> int:
        """Returns the number of processes of a group that are known to be dead."""
        return self._num_dead_node(node_id)


def _presented(array: NDArray) -> NDArray:
    """Returns the array as an instance of the class that :func:`mxkv.npx.set_np` selected."""
    if not npx.is_np_array():
        return array
    from .np import ndarray

    return ndarray(array)


def _calling(
    updater: Callable[[Key, NDArray, NDArray], object],
) -> Callable[[Key, NDArray, NDArray], None]:
    # Updaters receive arrays of `mxkv.np` after `set_np`.
    def update(key: Key, pushed: NDArray, stored: NDArray) -> None:
        updater(key, _presented(pushed), _presented(stored))

    return update


def read_checkpoint(fname: str | os.PathLike[str]) -> Snapshot:
    """Returns the contents of a checkpoint file as a snapshot."""
    return Snapshot._read(os.fspath(fname))


def push_staleness(key: Key) -> int | None:
    """Returns the staleness of the push for which an updater runs: the number of pushes that have
    changed the key since the worker pulled it. Returns ``None`` outside of updaters, and in stores
    that are not on servers.

    >>> import mxkv as mx
    >>> def update(key, pushed, stored):
    ...     stored += pushed / (1 + push_staleness(key))
    >>> with mx.kvstore_server.KVStoreServer('127.0.0.1:0', updater=update) as server:
    ...     kv = create('dist_async', servers=server.address)
    ...     kv.init('w', mx.nd.zeros(1))
    ...     kv.push('w', mx.nd.ones(1))
    ...     kv.push('w', mx.nd.ones(1))
    ...     kv.pull('w').tolist()
    [1.5]
    """
    return _native.push_staleness(key)


@overload
def create(name: _Known = "local", **options: Unpack[StoreOptions]) -> KVStore: ...


@overload
def create(name: str, **options: Unpack[StoreOptions]) -> Any: ...


def create(name: str = "local", **options: Unpack[StoreOptions]) -> Any:
    """Returns a store: an instance of the class registered under this name, otherwise a
    :class:`KVStore`. It is empty unless servers hold its values.

    ``local`` sums on the host, ``device`` sums on the device of a key's first value, and
    ``dist_sync`` and ``dist_device_sync`` sum over all processes of an MPI job. ``dist_async``
    connects to servers, which :class:`mxkv.kvstore_server.KVStoreServer` and ``python -m mxkv
    serve`` start. ``dist_quorum`` is the same with rounds: a push waits for those of other workers,
    and their sum is one push. Only stores on servers have options:

    - ``servers``: their addresses ``'HOST:PORT'``, a list or a string with commas. The default is
      the environment variable ``KVSTORE_SERVERS``, or the servers of the job if one of MXNet's
      launchers has started this process.
    - ``member``: the name of this member of the group, by default a new one. A process that reuses
      the name of a dead member gets its rank.
    - ``timeout``: how many seconds a call waits, by default ``KVSTORE_DIST_TIMEOUT`` or 300.
    - ``staleness``: a pull waits while a live worker is more than this number of pushes of the key
      behind this one. By default, no pull waits.
    - ``reader``: whether this member never pushes, so that others do not wait for it.
    - ``connections``: the number of connections to each server, 1 by default.
    - ``divide_above``: values of more than this number of bytes are divided among the servers,
      4 MiB by default.
    - ``certificates``: a folder with ``ca.pem``, ``cert.pem`` and ``key.pem``, for servers with
      certificates. The role in ``cert.pem`` limits what this member may do, as in
      :class:`mxkv.kvstore_server.KVStoreServer`. The default is the environment variable
      ``KVSTORE_CERTIFICATES``.
    - ``insecure``: permits connections to other machines without certificates. The default is the
      variable ``KVSTORE_INSECURE``, or ``False``. If ``certificates`` or ``insecure`` is an
      argument, neither is read from the environment.
    - ``quorum``: the least number of members of a round, which ``dist_quorum`` needs. A round
      closes when all live workers have pushed, or when this number has and the grace period is
      over.
    - ``grace``: how many seconds such a round waits for the other workers, 1 by default.
    - ``late``: ``'reject'`` if a push that is late for its round fails with
      :class:`mxkv.errors.LatePushError`, which is the default, or ``'next'`` if it belongs to the
      next round.
    - ``weight``: the weight of this worker. A round then computes the weighted mean of its pushes
      instead of their sum. :meth:`KVStore.set_weight` changes it.
    - ``coordinator``: ``'etcd://HOST:PORT,../GROUP'``, which lists the servers, by default
      ``KVSTORE_COORDINATOR``. ``coordinator_certificates``: a folder with the certificates for it.

    >>> create('device').type
    'device'
    >>> create('locale')
    Traceback (most recent call last):
     ..
    mxkv.errors.InvalidArgumentError: unknown store type `locale`: did you mean `local`? ...
    """
    registered = KVStoreBase.kv_registry.get(_options.text("name", name).lower())
    if registered is None:
        return KVStore(name, **options)
    if _options.of_store(options):
        text = f"unknown option `{next(iter(options))}`: stores of type `{name}` have no options"
        raise InvalidArgumentError(text)
    return registered()
