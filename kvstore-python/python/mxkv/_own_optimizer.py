"""Optimizers that programs write in Python, and updaters that run them: what MXNet's ``Optimizer`` and ``Updater`` are."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any, ClassVar, Mapping, TypeVar

import numpy

from ._arguments import shown
from ._native import LrScheduler, NDArray, RowSparseNDArray
from .base import py_str
from .errors import ArgumentTypeError, InvalidArgumentError, UnsupportedError

_Class = TypeVar("_Class", bound="type[Optimizer]")


class ScheduledRateError(InvalidArgumentError, UserWarning):
    """The optimizer has a schedule, which sets its learning rate. MXNet raises a ``UserWarning`` for it."""

    __module__ = "mxkv.optimizer"


class Optimizer:
    """The base of all optimizers. A class of a program's own defines ``update``, and ``create_state`` if it has states:

    >>> from mxkv import nd
    >>> @register
    ... class Plain(Optimizer):
    ...     def update(self, index, weight, grad, state):
    ...         self._update_count(index)
    ...         weight -= grad * (self._get_lr(index) * self.rescale_grad)
    >>> updater, weight = get_updater(create('plain', learning_rate=0.5)), nd.ones(2)
    >>> updater('w', nd.ones(2), weight)
    >>> weight.tolist()
    [0.5, 0.5]

    A store runs it by ``kv.set_updater(get_updater(optimizer))``; :meth:`mxkv.kv.KVStore.set_optimizer` takes the
    optimizers of this module, which run without Python.

    ``lr``, ``wd``, ``rescale_grad`` and ``clip_gradient`` are attributes, ``num_update`` is the largest count of any key,
    and a schedule is asked with that. ``lr_mult`` and ``wd_mult`` are factors by key, or by the name that
    ``param_idx2name`` has for it.
    """

    #: The classes by their names in lower case.
    opt_registry: ClassVar[dict[str, type[Optimizer]]] = {}

    def __init__(
        self,
        rescale_grad: float = 1.0,
        param_idx2name: Mapping[Any, str] | None = None,
        wd: float = 0.0,
        clip_gradient: float | None = None,
        learning_rate: float | None = None,
        lr_scheduler: LrScheduler | None = None,
        sym: None = None,
        begin_num_update: int = 0,
        multi_precision: bool = False,
        param_dict: Mapping[Any, Any] | None = None,
    ) -> None:
        if sym is not None:
            raise UnsupportedError("sym: there are no symbols here; `param_idx2name` names parameters")
        if not isinstance(param_idx2name, (Mapping, type(None))):
            text = "param_idx2name: expected a map of index to name"
            raise ArgumentTypeError(f"{text}, found {shown(param_idx2name)}")
        self.rescale_grad, self.wd, self.clip_gradient = rescale_grad, wd, clip_gradient
        self.lr_scheduler = schedule_from(lr_scheduler, learning_rate)
        self.lr = 0.01 if learning_rate is None and lr_scheduler is None else learning_rate
        self.begin_num_update = self.num_update = begin_num_update
        self._all_index_update_counts: dict[int, dict[Any, int]] = {0: {}}
        self._index_update_count = self._all_index_update_counts[0]
        self.multi_precision = multi_precision
        self.aggregate_num = 0
        self.idx2name = dict(param_idx2name or {})
        self.param_dict = dict(param_dict or {})
        self.set_lr_mult({})
        self.set_wd_mult({})

    @staticmethod
    def register(klass: _Class) -> _Class:
        """Lets :func:`mxkv.optimizer.create` make optimizers of this class, by its name in any case."""
        if not (isinstance(klass, type) and issubclass(klass, Optimizer)):
            text = f"register: expected a class of optimizers, found {shown(klass)}"
            raise ArgumentTypeError(text)
        name = klass.__name__.lower()
        known = Optimizer.opt_registry.get(name)
        if known is not None and known is not klass:
            text = f"optimizer {klass.__module__}.{klass.__name__} replaces {known.__module__}.{known.__name__}"
            warnings.warn(text, stacklevel=2)
        Optimizer.opt_registry[name] = klass
        return klass

    @staticmethod
    def create_optimizer(name: str, **kwargs: Any) -> Optimizer:
        """Returns the optimizer with this name, as :func:`mxkv.optimizer.create` does."""
        return create(name, **kwargs)

    @property
    def learning_rate(self) -> Any:
        """The learning rate of now: that of the schedule if there is one."""
        return self.lr if self.lr_scheduler is None else self.lr_scheduler(self.num_update)

    def set_learning_rate(self, lr: float) -> None:
        """Changes the learning rate. A schedule sets it, so beside one this is a ``UserWarning``, raised as an error."""
        check_unscheduled(self)
        self.lr = lr

    def create_state(self, index: Any, weight: Any) -> Any:
        """Returns the state of a weight that has not been updated yet."""

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        """Returns the state of a weight; with ``multi_precision``, for ``float16`` a copy in ``float32`` beside the state
        of that.
        """
        if weight.dtype != numpy.float16:
            return self.create_state(index, weight)
        if self.multi_precision:
            master = weight.astype(numpy.float32)
            return master, self.create_state(index, master)
        text = "steps in float16 lose digits; multi_precision=True steps a copy of the weight in float32"
        warnings.warn(text, stacklevel=2)
        return self.create_state(index, weight)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Changes a weight by one step: what a class has to define."""
        raise UnsupportedError(f"optimizers of class `{type(self).__name__}` have no `update`")

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Changes a weight by one step, with the state of :meth:`create_state_multi_precision`."""
        if not self.multi_precision or weight.dtype != numpy.float16:
            self.update(index, weight, grad, state)
            return
        master, inner = state
        self.update(index, master, grad.astype(numpy.float32), inner)
        master.copyto(weight)

    def set_lr_mult(self, args_lr_mult: Mapping[Any, float]) -> None:
        """Multiplies the learning rate of these keys, and of no others any more."""
        self.lr_mult = dict(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: Mapping[Any, float]) -> None:
        """Multiplies the weight decay of these keys, and of no others any more. Parameters that ``param_idx2name`` names,
        but not as ``.._weight`` or ``.._gamma``, have no weight decay otherwise.
        """
        names = self.idx2name.values()
        plain = [name for name in names if not name.endswith(("_weight", "_gamma"))]
        self.wd_mult = {**dict.fromkeys(plain, 0.0), **args_wd_mult}

    # What MXNet's classes call.

    def _set_current_context(self, device_id: int) -> None:
        self._index_update_count = self._all_index_update_counts.setdefault(device_id, {})

    def _update_count(self, index: Any) -> None:
        """Counts an update of a key, or of each of several."""
        for one in index if isinstance(index, (list, tuple)) else [index]:
            count = self._index_update_count.get(one, self.begin_num_update) + 1
            self._index_update_count[one] = count
            self.num_update = max(count, self.num_update)

    def _get_lrs(self, indices: Any) -> list[Any]:
        return [self.learning_rate * self._factor("lr_mult", index) for index in indices]

    def _get_lr(self, index: Any) -> Any:
        return self._get_lrs([index])[0]

    def _get_wds(self, indices: Any) -> list[Any]:
        return [self.wd * self._factor("wd_mult", index) for index in indices]

    def _get_wd(self, index: Any) -> Any:
        return self._get_wds([index])[0]

    def _factor(self, name: str, index: Any) -> float:
        factors = getattr(self, name)
        if index in self.param_dict:
            return getattr(self.param_dict[index], name)
        return factors[index] if index in factors else factors.get(self.idx2name.get(index), 1.0)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "param_dict"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.param_dict = {}


#: MXNet's name of :meth:`Optimizer.register`.
register = Optimizer.register


def create(name: str | Optimizer, **options: Any) -> Optimizer:
    """Returns the optimizer with this name, in any case, and these options.

    >>> create('sgd', learning_rate=0.1).learning_rate
    0.1
    """
    if isinstance(name, Optimizer):
        return name
    if not isinstance(name, str):
        raise ArgumentTypeError(f"name must be a string, found {shown(name)}")
    made = Optimizer.opt_registry.get(name.lower())
    return _unknown(name, **options) if made is None else made(**options)


def _unknown(name: str, **options: Any) -> Optimizer:
    """Returns what has this name, but no class; otherwise fails with the names that there are."""
    from .optimizer import _Native

    return _Native(name, **options)


def schedule_from(
    schedule: LrScheduler | None, learning_rate: float | None
) -> LrScheduler | None:
    """Returns a schedule that begins at the learning rate: a new one if the schedule begins elsewhere, for other optimizers
    may have that one.
    """
    if schedule is None or learning_rate is None or schedule.base_lr == learning_rate:
        return schedule
    own = copy.copy(schedule)
    own.base_lr = learning_rate
    return own


def check_unscheduled(optimizer: Any) -> None:
    """Fails if an optimizer has a schedule."""
    if optimizer.lr_scheduler is not None:
        text = "learning_rate: the optimizer has a schedule, which sets it"
        raise ScheduledRateError(f"{text}: change `lr_scheduler.base_lr`, or set `lr_scheduler` to None first")


class Updater:
    """A function ``updater(key, gradient, weight)`` that steps weights with an optimizer, and keeps a state for each key.

    The optimizer is a built-in one or one of a program's own. A store runs the updater by
    :meth:`mxkv.kv.KVStore.set_updater`, and it runs without a store, too:

    >>> from mxkv import nd, optimizer
    >>> updater, weight = get_updater(optimizer.SGD(learning_rate=0.5, momentum=0.5)), nd.ones(1)
    >>> updater('w', nd.ones(1), weight)
    >>> updater('w', nd.ones(1), weight)
    >>> weight.tolist(), updater.states['w'].num_updates
    ([-0.25], 2)
    """

    def __init__(self, optimizer: Optimizer) -> None:
        if not isinstance(optimizer, Optimizer):
            raise ArgumentTypeError(f"optimizer: expected an optimizer, found {shown(optimizer)}")
        self.optimizer = optimizer
        self.states: dict[Any, Any] = {}
        self.states_synced: dict[Any, bool] = {}
        self.aggregate_updates = optimizer.aggregate_num > 0

    def __call__(self, index: Any, grad: Any, weight: Any) -> None:
        """Steps a weight with its gradient, or each of a list of weights."""
        is_list = isinstance(index, (list, tuple))
        given = list(index) if is_list else [index]
        indices = [py_str(one) if isinstance(one, bytes) else one for one in given]
        grads, weights = (list(grad), list(weight)) if is_list else ([grad], [weight])
        if weights:
            self.optimizer._set_current_context(weights[0].context.device_id)
        for one, its_weight in zip(indices, weights):
            self._prepare(one, its_weight)
        if self.aggregate_updates:
            self._update_together(indices, grads, weights)
            return
        for one, its_grad, its_weight in zip(indices, grads, weights):
            self.optimizer.update_multi_precision(one, its_weight, its_grad, self.states[one])

    def _prepare(self, index: Any, weight: Any) -> None:
        """Makes the state of a key, or brings a loaded one to the device of its weight."""
        if index not in self.states:
            made = self.optimizer.create_state_multi_precision(index, weight)
            self.states[index] = made
        elif not self.states_synced[index]:
            self.states[index] = self.sync_state_context(self.states[index], weight.context)
        self.states_synced[index] = True

    def _update_together(self, indices: list, grads: list, weights: list) -> None:
        """Gives the optimizer up to ``aggregate_num`` weights of one dtype at a time, in lists."""
        kinds: dict[str, list[tuple[Any, Any, Any]]] = {}
        for one in zip(indices, weights, grads):
            kinds.setdefault(str(one[1].dtype), []).append(one)
        step = self.optimizer.aggregate_num
        for kind in kinds.values():
            for first in range(0, len(kind), step):
                some, their_weights, their_grads = zip(*kind[first : first + step])
                states = [self.states[one] for one in some]
                self.optimizer.update_multi_precision(some, their_weights, their_grads, states)

    def sync_state_context(self, state: Any, context: Any) -> Any:
        """Returns a state with its arrays on a device."""
        if isinstance(state, (NDArray, RowSparseNDArray)):
            return state.as_in_context(context)
        if isinstance(state, (list, tuple)):
            return type(state)(self.sync_state_context(one, context) for one in state)
        return state

    def get_states(self, dump_optimizer: bool = False) -> bytes:
        """Returns the states as bytes, with ``dump_optimizer`` those of the optimizer, too.

        >>> from mxkv import nd, optimizer
        >>> updater, weight = get_updater(optimizer.Adam()), nd.ones(1)
        >>> updater('w', nd.ones(1), weight)
        >>> again = get_updater(optimizer.Adam())
        >>> again.set_states(updater.get_states())
        >>> again.states['w'].num_updates
        1
        """
        return pickle.dumps((self.states, self.optimizer) if dump_optimizer else self.states)

    def set_states(self, states: bytes) -> None:
        """Takes the states that :meth:`get_states` returned. They are a pickle, which can run any code: take only bytes
        that you trust.
        """
        loaded = pickle.loads(states)
        if isinstance(loaded, tuple) and len(loaded) == 2:
            loaded, self.optimizer = loaded
        if not isinstance(loaded, dict):
            text = "states: expected what `get_states` returned"
            raise ArgumentTypeError(f"{text}, found {shown(loaded)}")
        self.states = loaded
        self.states_synced = dict.fromkeys(loaded, False)


def get_updater(optimizer: Optimizer) -> Updater:
    """Returns an updater that steps with this optimizer."""
    return Updater(optimizer)
