"""Stores: :class:`KVStore`, and other classes of stores that programs register.

>>> import mxkv as mx
>>> kv = mx.kv.create('local')
>>> kv.init(3, mx.nd.ones((2, 3)) * 2)
>>> kv.push(3, [mx.nd.ones((2, 3), mx.cpu(i)) for i in range(4)])
>>> kv.pull(3).asnumpy()
array([[4., 4., 4.],
       [4., 4., 4.]], dtype=float32)
"""

from __future__ import annotations

import operator
import os
import warnings
from typing import Any, Callable, ClassVar, Literal, Mapping, NamedTuple, Sequence

from . import _native, npx
from ._native import Checkpoint, NDArray, RowSparseNDArray, Snapshot
from ._rows import apart, as_list, assign, checked, is_nested, rows_of, side_by_side
from .context import Context
from .errors import ArgumentTypeError, InvalidArgumentError
from .optimizer import Optimizer

__all__ = [
    "Checkpoint",
    "Existing",
    "KVStore",
    "KVStoreBase",
    "KeyStats",
    "Snapshot",
    "TestStore",
    "create",
    "read_checkpoint",
]

Key = int | str
Existing = Literal["error", "keep", "replace"]


class KeyStats(NamedTuple):
    """What a store holds under a key."""

    key: Key
    shape: tuple[int, ...]
    dtype: str
    context: Context
    #: How many pushes have changed it since it was initialised.
    num_pushes: int
    value_bytes: int
    #: Optimizer state, and what compressed values have not sent.
    state_bytes: int


class KVStoreBase:
    """What every class of stores is, and the place where they are registered by name."""

    OPTIMIZER = "optimizer"

    #: The classes by their names in lower case.
    kv_registry: ClassVar[dict[str, type[KVStoreBase]]] = {}

    @staticmethod
    def register(klass: type[KVStoreBase]) -> type[KVStoreBase]:
        """Lets :func:`create` make stores of this class, by its name in any case.

        >>> @KVStoreBase.register
        ... class Horovod(KVStoreBase):
        ...     pass
        >>> type(create('horovod')).__name__
        'Horovod'
        """
        KVStoreBase.kv_registry[klass.__name__.lower()] = klass
        return klass

    def is_capable(self, capability: str) -> bool:
        """Returns whether the store can do more than ``broadcast`` and ``pushpull``."""
        if capability.lower() == KVStoreBase.OPTIMIZER:
            return False
        raise InvalidArgumentError(f"Unknown capability: {capability}")

    @property
    def type(self) -> str:
        """The name of the class in lower case."""
        return self.__class__.__name__.lower()

    @property
    def rank(self) -> int:
        """The number of this process among the workers."""
        return 0

    @property
    def num_workers(self) -> int:
        """How many processes share the store."""
        return 1


@KVStoreBase.register
class TestStore(KVStoreBase):
    """A store that keeps nothing: for tests of programs.

    >>> import mxkv as mx
    >>> store, out = create('teststore'), mx.nd.zeros(2)
    >>> store.pushpull('w', [mx.nd.ones(2), mx.nd.ones(2)], out=out)
    >>> out.tolist()
    [2.0, 2.0]
    """

    #: It is no test of pytest's.
    __test__ = False

    def broadcast(self, key: Key, value: Any, out: Any, priority: int = 0) -> None:
        """Copies the value into the outputs."""
        for one in as_list(out):
            one[:] = value

    def pushpull(self, key: Key, value: Any, out: Any = None, priority: int = 0) -> None:
        """Copies the sum of the values into the outputs, or into the values."""
        values = as_list(value)
        total = values[0].copy()
        for one in values[1:]:
            total += one
        for one in values if out is None else as_list(out):
            one[:] = total


class KVStore(KVStoreBase):
    """A store of named arrays; :func:`create` makes one.

    Keys and values come in four shapes: a key and a value; a key and a list of values, all for that key; a list of keys
    and as many values; a list of keys and as many lists. A key that stands several times has several values: pushed
    they are summed, pulled each gets the value. A key is a text or an integer, and one store has either.

    A value is an :class:`~mxkv.nd.NDArray`, a :class:`~mxkv.nd.RowSparseNDArray`, or an array of any library that has
    ``__dlpack__``: it is read where it lies, for the time of the call, and nobody may write to it meanwhile. An output
    may be of any such library, too, if it can be written to. So it is with arrays on GPUs: what their library has
    queued for them comes before, and when the call returns the work on them is done. Parameters of PyTorch are values
    and outputs under ``torch.no_grad()``.

    A call is checked whole before anything changes; a call that fails changes nothing. Every method may be called from
    any thread, and other threads run meanwhile.
    """

    def __init__(self, name: str = "local") -> None:
        self._store = _native.Store(name)
        self._key_kind = _KeyKind()

    # Making and ending.

    @property
    def type(self) -> str:
        """The name with which the store was created, in lower case."""
        return self._store.name

    @property
    def rank(self) -> int:
        """The number of this process among the workers, from 0."""
        return self._store.rank

    @property
    def num_workers(self) -> int:
        """How many processes share the store."""
        return self._store.num_workers

    def is_capable(self, capability: str) -> bool:
        """Returns whether the store runs optimizers: it does.

        >>> create().is_capable('optimizer')
        True
        """
        if capability.lower() == KVStoreBase.OPTIMIZER:
            return True
        raise InvalidArgumentError(f"Unknown capability: {capability}")

    def close(self) -> None:
        """Gives the memory back, and waits for other workers if there are any. A second time does nothing."""
        self._store.close()

    def __enter__(self) -> KVStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._store.is_closed:
            return "<KVStore, closed>"
        return f"<KVStore {self.type}, {len(self)} keys>"

    # The verbs.

    def init(self, key: Any, value: Any, existing: Existing = "error") -> None:
        """Stores a copy of a value under each key.

        ``existing`` says what becomes of keys that are there: they are an ``'error'``, they ``'keep'`` their value, or
        they are made anew (``'replace'``).

        >>> import mxkv as mx
        >>> kv = create()
        >>> kv.init(['a', 'b'], [mx.nd.ones(2), mx.nd.zeros(3)])
        >>> kv.keys()
        ['a', 'b']
        """
        self._store.init(self._key_kind.texts(key), value, existing)

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Sums the values of each key and gives the sum to the optimizer or updater; without one it replaces the
        stored value. A higher priority may travel earlier where a network is involved.

        >>> import numpy
        >>> kv = create()
        >>> kv.init('w', numpy.zeros(2))
        >>> kv.push('w', [numpy.ones(2), numpy.ones(2)])
        >>> kv.pull('w').tolist()
        [2.0, 2.0]
        """
        self._store.push(self._key_kind.texts(key), value, priority)

    def pull(self, key: Any, out: Any = None, priority: int = 0, ignore_sparse: bool = True) -> Any:
        """Gives each output the newest value of its key, cast to its dtype. Without outputs, returns new arrays: one for
        a key, a list for a list.

        Outputs of rows are left as they are, with a warning, or with ``ignore_sparse=False`` get every row that is not 0.

        >>> import numpy
        >>> kv = create()
        >>> kv.init('w', numpy.array([1.5, 2.5]))
        >>> out = numpy.zeros(2, dtype='float32')
        >>> kv.pull('w', out=out)
        >>> out
        array([1.5, 2.5], dtype=float32)
        """
        keys = self._key_kind.texts(key)
        if out is not None:
            pairs, outs, rows = apart(keys, out)
            if not rows:
                self._store.pull(pairs, outs, priority)
                return None
            if ignore_sparse:
                text = "pull leaves outputs of rows as they are: row_sparse_pull, or ignore_sparse=False, fills them"
                warnings.warn(text, stacklevel=2)
            pulled = self._whole_rows(rows, ignore_sparse)
            self._store.pull(pairs, outs, priority)
            assign(pulled)
            return None
        arrays = [_presented(array) for array in self._store.pull_new(keys)]
        return arrays[0] if isinstance(keys, str) else arrays

    def _whole_rows(
        self, outs: Sequence[tuple[str, RowSparseNDArray]], ignore: bool
    ) -> list[tuple[RowSparseNDArray, RowSparseNDArray]]:
        """Returns outputs and the rows for them, unless they are ignored, when there only have to be the keys."""
        pulled = []
        for key, out in outs:
            if ignore and self._store.contains(key):
                continue
            pulled.append((out, rows_of(self._store.pull_new(key)[0])))
        return checked(pulled)

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Pushes, then pulls the same keys: into ``out``, or into the values.

        >>> import mxkv as mx
        >>> kv, gradients = create(), [mx.nd.ones(2), mx.nd.ones(2)]
        >>> kv.init('g', mx.nd.zeros(2))
        >>> kv.pushpull('g', gradients)
        >>> gradients[1].tolist()
        [2.0, 2.0]
        """
        self._store.pushpull(self._key_kind.texts(key), value, value if out is None else out, priority)

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """Initialises keys, then pulls them.

        >>> import mxkv as mx
        >>> kv, replicas = create(), [mx.nd.zeros(2), mx.nd.zeros(2)]
        >>> kv.broadcast('w', mx.nd.ones(2), out=replicas)
        >>> replicas[1].tolist()
        [1.0, 1.0]
        """
        self._store.broadcast(self._key_kind.texts(key), value, out, priority)

    def row_sparse_pull(
        self, key: Any, out: Any = None, priority: int = 0, row_ids: Any = None
    ) -> Any:
        """Pulls the rows with these numbers, in any order and any number of times; the result has each once.

        Without ``out`` returns them: one array of rows for a key and its numbers, a list for lists.

        >>> import mxkv as mx
        >>> kv = create()
        >>> kv.init('w', mx.nd.array([[1, 2], [3, 4], [5, 6]]))
        >>> rows = kv.row_sparse_pull('w', row_ids=[2, 0, 2])
        >>> rows.indices.tolist(), rows.data.tolist()
        ([0, 2], [[1.0, 2.0], [5.0, 6.0]])
        """
        if row_ids is None:
            raise ArgumentTypeError("row_ids: the numbers of the rows are needed")
        keys, outs, ids = side_by_side(self._key_kind.texts(key), out, row_ids)
        pulled = self._store.pull_rows(keys, ids)
        if out is None:
            return pulled if isinstance(row_ids, list) and is_nested(row_ids) else pulled[0]
        assign(checked(zip(outs, pulled)))
        return None

    def remove(self, key: Any) -> None:
        """Forgets keys with their values and optimizer state."""
        self._store.remove(self._key_kind.texts(key))

    def keys(self) -> list[Key]:
        """Returns every key in the order of initialisation."""
        return [self._key_kind.as_given(text) for text in self._store.keys()]

    def __contains__(self, key: Key) -> bool:
        return self._store.contains(_text(key))

    def __len__(self) -> int:
        return len(self._store.keys())

    def __bool__(self) -> bool:
        return True

    def stats(self) -> list[KeyStats]:
        """Returns what every key holds, in the order of initialisation.

        >>> import mxkv as mx
        >>> kv = create()
        >>> kv.init(3, mx.nd.ones(2))
        >>> kv.stats()[0].shape, kv.stats()[0].num_pushes
        ((2,), 0)
        """
        stats = self._store.stats()
        return [one._replace(key=self._key_kind.as_given(str(one.key))) for one in stats]

    # What a push does.

    def set_updater(self, updater: Callable[[Key, NDArray, NDArray], object] | None) -> None:
        """Lets ``updater(key, pushed, stored)`` change the stored value on every push from now on.

        ``pushed`` is the sum; ``stored`` is changed in place. Both belong to the call: what is done to them later
        reaches nobody. What it raises, ``push`` raises; the key then keeps its old value. With ``None`` the sum replaces
        the stored value again.

        The store holds the updater; one that holds the store keeps it alive until another one is set.

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
            self._store.clear_updater()
            return
        if not callable(updater):
            raise ArgumentTypeError(f"updater: expected a function, found {updater!r}")
        self._store.set_updater(_calling(updater, self._key_kind))

    def _set_updater(self, updater: Callable[[Key, NDArray, NDArray], object] | None) -> None:
        """As :meth:`set_updater`, by MXNet's name."""
        self.set_updater(updater)

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """Lets an optimizer run on the store from now on; the states of all keys start anew."""
        if not isinstance(optimizer, _native.Optimizer):
            raise ArgumentTypeError(f"optimizer: expected one of mxkv.optimizer, found {optimizer!r}")
        self._store.set_optimizer(optimizer)

    def hyper_parameters(self) -> dict[str, float]:
        """Returns the hyper-parameters of the optimizer that runs on the store."""
        return dict(self._store.hyper_parameters())

    def set_hyper_parameters(
        self, changed: Mapping[str, float] | None = None, **more: float
    ) -> None:
        """Changes hyper-parameters of the running optimizer, all or none. States and counts stay.

        >>> import mxkv as mx
        >>> kv = create()
        >>> kv.set_optimizer(mx.optimizer.SGD())
        >>> kv.set_hyper_parameters(learning_rate=0.001)
        >>> kv.hyper_parameters()['learning_rate']
        0.001
        """
        options = {**(changed or {}), **more}
        self._store.set_hyper_parameters([(name, float(it)) for name, it in options.items()])

    def set_gradient_compression(self, compression_params: Mapping[str, Any] | None) -> None:
        """Compresses the values of every push: ``{'type': '2bit', 'threshold': 0.5}``, or ``'1bit'``; ``None`` ends it.

        >>> import mxkv as mx
        >>> kv = create()
        >>> kv.init('w', mx.nd.zeros(2))
        >>> kv.set_gradient_compression({'type': '2bit', 'threshold': 0.5})
        >>> kv.push('w', mx.nd.array([0.3, -0.7]))
        >>> kv.pull('w').tolist()
        [0.0, -0.5]
        """
        if compression_params is None:
            self._store.clear_gradient_compression()
            return
        options = dict(compression_params)
        kind, threshold = options.pop("type", None), options.pop("threshold", None)
        if options or not isinstance(kind, str):
            unknown = ", ".join(f"`{name}`" for name in options) or f"type {kind!r}"
            raise InvalidArgumentError(
                f"compression: expected `type` and `threshold`, found {unknown}"
            )
        self._store.set_gradient_compression(kind, _threshold(threshold))

    # The whole store.

    def snapshot(self) -> Snapshot:
        """Returns all that the store holds at one moment, without a copy of it."""
        return self._store.snapshot()

    def rollback(self, snapshot: Snapshot) -> None:
        """Makes the store hold what the snapshot does and nothing else."""
        self._store.rollback(snapshot)

    def checkpoint(self, fname: str | os.PathLike[str]) -> Checkpoint:
        """Begins to write all that the store holds to a file, and returns at once.

        >>> import os, tempfile, mxkv as mx
        >>> kv, other = create(), create()
        >>> kv.init('w', mx.nd.ones(2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     kv.checkpoint(os.path.join(folder, 'model')).wait()
        ...     other.restore(os.path.join(folder, 'model'))
        >>> other.pull('w').tolist()
        [1.0, 1.0]
        """
        return self._store.checkpoint(os.fspath(fname))

    def restore(self, fname: str | os.PathLike[str]) -> None:
        """Makes the store hold what the one did whose checkpoint the file is, and nothing else."""
        self._store.restore(os.fspath(fname))

    def save_optimizer_states(
        self, fname: str | os.PathLike[str], dump_optimizer: bool = False
    ) -> None:
        """Writes the states of the optimizer to a file, with ``dump_optimizer`` its hyper-parameters too."""
        self._store.save_optimizer_states(os.fspath(fname), dump_optimizer)

    def load_optimizer_states(self, fname: str | os.PathLike[str]) -> None:
        """Gives the keys of a file the states in it. Keys that are not in it begin anew."""
        self._store.load_optimizer_states(os.fspath(fname))

    # Other processes.

    def barrier(self) -> None:
        """Waits until every worker has called it."""
        self._store.barrier()

    def _barrier(self) -> None:
        """As :meth:`barrier`, by MXNet's name."""
        self._store.barrier()

    def set_barrier_before_exit(self, barrier_before_exit: bool = True) -> None:
        """Sets whether closing the store waits for the other workers."""
        self._store.set_barrier_before_exit(barrier_before_exit)

    def get_num_dead_node(self, node_id: int, timeout: int = 60) -> int:
        """Returns how many processes of a group are known to be dead."""
        return self._store.num_dead_node(node_id)

    def _send_command_to_servers(self, head: int, body: str) -> None:
        """Sends a command to the processes that hold the values, if those are others."""
        self._store.send_command_to_servers(head, body)


class _KeyKind:
    """Whether the keys of a store are integers, from the first call on."""

    __slots__ = ("_kind",)

    def __init__(self) -> None:
        self._kind: type | None = None

    def texts(self, key: Any) -> str | list[str]:
        """Returns the keys of a call as texts, and remembers what they are."""
        # The usual keys need no asking for what they are.
        if type(key) is self._kind:
            return str(key)
        if not isinstance(key, (list, tuple)):
            self._remember(_kind_of(key))
            return _text(key)
        if set(map(type, key)) == {int}:
            self._remember(int)
            return list(map(str, key))
        kinds = {_kind_of(one) for one in key}
        if len(kinds) > 1:
            raise ArgumentTypeError("inconsistent types of keys detected.")
        for kind in kinds:
            self._remember(kind)
        return [_text(one) for one in key]

    def _remember(self, kind: type) -> None:
        if self._kind is None:
            self._kind = kind
        elif self._kind is not kind:
            raise ArgumentTypeError("Mixed key types are not allowed")

    def as_given(self, text: str) -> Key:
        """Returns the key as the program writes it."""
        is_int = self._kind is int and text.removeprefix("-").isdecimal()
        return int(text) if is_int else text


def _threshold(given: Any) -> float | None:
    try:
        return None if given is None else float(given)
    except (TypeError, ValueError):
        text = f"threshold: expected a number, found {given!r}"
        raise InvalidArgumentError(text) from None


def _text(key: Any) -> str:
    return key if isinstance(key, str) else str(operator.index(key))


def _kind_of(key: Any) -> type:
    if isinstance(key, str):
        return str
    if hasattr(key, "__index__"):
        return int
    found = type(key).__name__
    text = f"unexpected type for keys: expected `int` or `str`, found `{found}`"
    raise ArgumentTypeError(text)


def _presented(array: NDArray) -> NDArray:
    """Returns an array of the kind that :func:`mxkv.npx.set_np` has chosen."""
    if not npx.is_np_array():
        return array
    from .np import ndarray

    return ndarray(array)


def _calling(
    updater: Callable[[Key, NDArray, NDArray], object], kind: _KeyKind
) -> Callable[[str, NDArray, NDArray], None]:
    def update(key: str, pushed: NDArray, stored: NDArray) -> None:
        updater(kind.as_given(key), _presented(pushed), _presented(stored))

    return update


def read_checkpoint(fname: str | os.PathLike[str]) -> Snapshot:
    """Returns what a checkpoint holds, without a store."""
    return Snapshot._read(os.fspath(fname))


def create(name: str = "local") -> Any:
    """Returns an empty store: of a registered class if one has this name, otherwise a :class:`KVStore`.

    ``local`` sums on the host, ``device`` on the device of a key's first value, ``dist_sync`` and ``dist_device_sync``
    over all processes that a launcher of MPI has started.

    >>> create('device').type
    'device'
    >>> create('locale')
    Traceback (most recent call last):
     ..
    mxkv.errors.InvalidArgumentError: unknown store type `locale`: did you mean `local`? Known are ...
    """
    if not isinstance(name, str):
        raise ArgumentTypeError(f"name must be a string, found {name!r}")
    registered = KVStoreBase.kv_registry.get(name.lower())
    if registered is not None:
        return registered()
    return KVStore(name)
