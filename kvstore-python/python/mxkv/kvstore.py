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

import os
from typing import Any, Callable, ClassVar, Literal, Mapping, NamedTuple, Sequence, overload

from . import _native, npx
from ._arguments import number, option, shown
from ._native import Checkpoint, NDArray, RowSparseNDArray, Snapshot
from ._rows import Key, as_list, assign, checked, is_nested, side_by_side
from .context import Context
from .errors import ArgumentTypeError, InvalidArgumentError, UnsupportedError
from .nd import array_of
from ._builtin_optimizer import check_own
from .optimizer import Optimizer

__all__ = [
    "Checkpoint",
    "KVStore",
    "KVStoreBase",
    "KeyStats",
    "OnExisting",
    "Snapshot",
    "TestStore",
    "create",
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
]


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
    """The base class of stores, and the registry of their classes by name. Methods that a subclass
    does not define raise ``NotImplementedError``.
    """

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

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Returns whether the store can do more than ``broadcast`` and ``pushpull``."""
        if str(capability).lower() == KVStoreBase.OPTIMIZER:
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

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """Initialises keys, then copies their values into the outputs."""
        raise self._lacks("broadcast")

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Sums the values of each key into the outputs, or back into the values."""
        raise self._lacks("pushpull")

    def set_optimizer(self, optimizer: Any) -> None:
        """Runs an optimizer on every push."""
        raise self._lacks("set_optimizer")

    def save_optimizer_states(self, fname: Any, dump_optimizer: bool = False) -> None:
        """Writes the states of the optimizer to a file."""
        raise self._lacks("save_optimizer_states")

    def load_optimizer_states(self, fname: Any) -> None:
        """Reads the states of the optimizer from a file."""
        raise self._lacks("load_optimizer_states")

    def _lacks(self, verb: str) -> UnsupportedError:
        return UnsupportedError(f"store class `{type(self).__name__}` does not define `{verb}`")


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
        self._give(as_list(out), value)

    def pushpull(self, key: Key, value: Any, out: Any = None, priority: int = 0) -> None:
        """Copies the sum of the values into the outputs, or into the values."""
        values = as_list(value)
        if not values:
            return
        total = array_of(values[0]).copy()
        for one in values[1:]:
            total += one
        self._give(values if out is None else as_list(out), total)

    def _give(self, outs: Sequence[Any], value: Any) -> None:
        """Gives arrays of ours the value, and those of other libraries by a store, which can write to them."""
        for one in outs:
            if isinstance(one, NDArray):
                one[:] = value
        others = [one for one in outs if not isinstance(one, NDArray)]
        if others:
            KVStore().broadcast(0, value, others)


class KVStore(_native.Store, KVStoreBase):
    """A store of named arrays; :func:`create` makes one.

    Keys and values come in four shapes: a key and a value; a key and a list of values, all for that key; a list of keys
    and as many values; a list of keys and as many lists. A key that stands several times has several values: pushed
    they are summed, pulled each gets the value. A key is a text or an integer, and one store has either. A dictionary of key
    to array, or to list of arrays, stands for both; all else is then given by its name, and ``out`` of ``pushpull`` and
    ``broadcast`` is a dictionary, too:

    >>> import numpy
    >>> kv, model = create(), {'weight': numpy.ones((2, 2)), 'bias': numpy.zeros(2)}
    >>> kv.init(model)
    >>> kv.push({'weight': [numpy.ones((2, 2))] * 3})
    >>> kv.pull(model, priority=1)
    >>> model['weight'][0], model['bias']
    (array([3., 3.]), array([0., 0.]))

    A value is an :class:`~mxkv.nd.NDArray`, a :class:`~mxkv.nd.RowSparseNDArray`, or an array of any library that has
    ``__dlpack__``: it is read where it lies, for the time of the call, and nobody may write to it meanwhile. An output
    may be of any such library, too, if it can be written to. So it is with arrays on GPUs: what their library has
    queued for them comes before, and when the call returns the work on them is done. Parameters of PyTorch are values
    and outputs under ``torch.no_grad()``.

    A call is checked whole before anything changes; a call that fails changes nothing. What a call does is done when it
    returns. Every method may be called from any thread, and other threads run meanwhile.

    Python runs signal handlers while a call reads its arguments, or after the call has returned. So
    Ctrl-C leaves a call either not begun or complete, with these exceptions: an updater in Python
    is interrupted at its key, and the keys before it are updated; :func:`mxkv.nd.dot` runs handlers
    every 10^9 multiplications, and ends when one raises; ``close`` and ``Checkpoint.wait`` run
    handlers while they wait for checkpoints.

    A store belongs to the process that created it. In a forked child (``os.fork``,
    :mod:`multiprocessing`) every use except ``close`` raises
    :class:`~mxkv.errors.UnsupportedError`. The child can create its own store. It can use inherited
    arrays, except arrays on a GPU and arrays that another thread was using at the fork.
    """

    def __init__(self, name: str = "local") -> None:
        self._open(_checked_name(name))

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Returns whether the store runs optimizers: it does.

        >>> create().is_capable('optimizer')
        True
        """
        if str(capability).lower() == KVStoreBase.OPTIMIZER:
            return True
        raise InvalidArgumentError(f"Unknown capability: {capability}")

    def __enter__(self) -> KVStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._is_closed:
            return "<KVStore, closed>"
        if self._is_inherited:
            return "<KVStore, created before this process was forked>"
        return f"<KVStore {self.type}, {len(self)} keys>"

    def __bool__(self) -> bool:
        return True

    def row_sparse_pull(
        self, key: Any, out: Any = None, priority: int = 0, row_ids: Any = None
    ) -> Any:
        """Pulls the rows with these numbers, in any order and any number of times; the result has each once.

        Without ``out`` returns them: one array of rows for a key and its numbers, a list for lists. The numbers are those of
        every key, or a list of numbers for each.

        >>> import mxkv as mx
        >>> kv = create()
        >>> kv.init('w', mx.nd.array([[1, 2], [3, 4], [5, 6]]))
        >>> rows = kv.row_sparse_pull('w', row_ids=[2, 0, 2])
        >>> rows.indices.tolist(), rows.data.tolist()
        ([0, 2], [[1.0, 2.0], [5.0, 6.0]])
        """
        if row_ids is None:
            raise ArgumentTypeError("row_ids: the numbers of the rows are needed")
        if isinstance(key, Mapping):
            if out is not None:
                raise ArgumentTypeError("out: a map of key to output has them already")
            items = list(key.items())
            key, out = [name for name, _ in items], [one for _, one in items]
        keys, outs, ids = side_by_side(key, out, row_ids)
        pulled = self._pull_rows(keys, ids, priority)
        if out is None:
            is_list = isinstance(key, (list, tuple)) or is_nested(row_ids)
            return pulled if is_list else pulled[0]
        assign(checked(zip(outs, pulled), keys), keys)
        return None

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
            self._clear_updater()
            return
        if not callable(updater):
            raise ArgumentTypeError(f"updater: expected a function, found {shown(updater)}")
        self._set_function(_calling(updater))

    def _set_updater(self, updater: Callable[[Key, NDArray, NDArray], object] | None) -> None:
        """As :meth:`set_updater`, by MXNet's name."""
        self.set_updater(updater)

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """Lets an optimizer run on the store from now on; the states of all keys start anew.

        The store takes it as it is now: later changes are those of :meth:`set_hyper_parameters`.

        >>> import mxkv as mx
        >>> kv = create()
        >>> kv.init('w', mx.nd.ones(2))
        >>> kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.5))
        >>> kv.push('w', mx.nd.ones(2))
        >>> kv.pull('w').tolist()
        [0.5, 0.5]
        """
        if not isinstance(optimizer, Optimizer):
            raise ArgumentTypeError(f"optimizer: expected one of mxkv.optimizer, found {shown(optimizer)}")
        built_in = check_own(optimizer)
        self._set_optimizer(built_in)
        built_in._is_taken = True

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
        if not isinstance(changed, (Mapping, type(None))):
            raise ArgumentTypeError(f"changed: expected a map of name to number, found {shown(changed)}")
        twice = set(changed or {}) & set(more)
        if twice:
            names = ", ".join(f"`{name}`" for name in sorted(twice))
            text = f"{names}: given in `changed` and as keyword, expected one of them"
            raise InvalidArgumentError(text)
        options = {**(changed or {}), **more}
        numbers = [(str(name), option(str(name), it)) for name, it in options.items()]
        self._set_hyper_parameters(numbers)

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
            self._clear_compression()
            return
        if not isinstance(compression_params, Mapping):
            text = "compression_params: expected such as {'type': '2bit', 'threshold': 0.5}"
            raise ArgumentTypeError(f"{text}, found {shown(compression_params)}")
        options = dict(compression_params)
        kind, threshold = options.pop("type", None), options.pop("threshold", None)
        if options or not isinstance(kind, str):
            unknown = ", ".join(f"`{name}`" for name in options) or f"type {shown(kind)}"
            raise InvalidArgumentError(
                f"compression: expected `type` and `threshold`, found {unknown}"
            )
        wanted = None if threshold is None else number("threshold", threshold)
        self._set_compression(kind, wanted)

    def set_clip_global_norm(self, max_norm: float | None) -> None:
        """Scales the sums of every push, so that the norm over all of its keys is at most ``max_norm``.

        ``None`` ends it. The factor is ``max_norm / (norm + 1e-8)``, as in ``gluon.utils.clip_global_norm``. Each
        push has a norm of its own, so the gradients of a model belong in one push. An optimizer or updater gets the
        clipped sums; ``rescale_grad`` comes after. A norm that is not finite clips nothing.

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

    # MXNet's names.

    def _barrier(self) -> None:
        """As :meth:`barrier`, by MXNet's name."""
        self.barrier()

    def get_num_dead_node(self, node_id: int, timeout: int = 60) -> int:
        """Returns how many processes of a group are known to be dead."""
        return self._num_dead_node(node_id)


def _presented(array: NDArray) -> NDArray:
    """Returns an array of the kind that :func:`mxkv.npx.set_np` has chosen."""
    if not npx.is_np_array():
        return array
    from .np import ndarray

    return ndarray(array)


def _calling(
    updater: Callable[[Key, NDArray, NDArray], object],
) -> Callable[[Key, NDArray, NDArray], None]:
    def update(key: Key, pushed: NDArray, stored: NDArray) -> None:
        updater(key, _presented(pushed), _presented(stored))

    return update


def _checked_name(name: Any) -> str:
    if not isinstance(name, str):
        raise ArgumentTypeError(f"name: expected a string, found {shown(name)}")
    return name


def read_checkpoint(fname: str | os.PathLike[str]) -> Snapshot:
    """Returns what a checkpoint holds, without a store."""
    return Snapshot._read(os.fspath(fname))


@overload
def create(name: _Known = "local") -> KVStore: ...


@overload
def create(name: str) -> Any: ...


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
    registered = KVStoreBase.kv_registry.get(_checked_name(name).lower())
    if registered is not None:
        return registered()
    return KVStore(name)
