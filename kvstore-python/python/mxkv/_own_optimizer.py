"""Optimizers written in Python, and the updaters that run them."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any, ClassVar, Mapping, TypeVar

import numpy

from ._arguments import shown
from ._native import LrScheduler, NDArray, RowSparseNDArray
from .base import py_str
from .errors import (
    ArgumentTypeError,
    InvalidArgumentError,
    LengthMismatchError,
    UnsupportedError,
)

_Class = TypeVar("_Class", bound="type[Optimizer]")


class ScheduledRateError(InvalidArgumentError, UserWarning):
    """Raised when a learning rate is set beside a schedule. A ``UserWarning``, as in MXNet."""

    __module__ = "mxkv.optimizer"


class Optimizer:
    """The base class of all optimizers. A subclass defines ``update``, and ``create_state`` if it
    has state:

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

    Run it on a store with ``kv.set_updater(get_updater(optimizer))``.
    :meth:`mxkv.kv.KVStore.set_optimizer` takes only the built-in optimizers, which run without
    Python.

    ``lr``, ``wd``, ``rescale_grad`` and ``clip_gradient`` are attributes. ``num_update`` is the
    largest update count of any key, and the argument of the schedule. ``lr_mult`` and ``wd_mult``
    are factors by key, or by the key's name in ``param_idx2name``.
    """

    #: Classes by lower-case name.
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
            raise UnsupportedError(
                "sym: symbols are not supported; use `param_idx2name` to name parameters"
            )
        if not isinstance(param_idx2name, (Mapping, type(None))):
            text = "param_idx2name: expected a mapping from index to name"
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
        """Registers a class for :func:`mxkv.optimizer.create`, by its name in any case."""
        if not (isinstance(klass, type) and issubclass(klass, Optimizer)):
            text = f"register: expected a subclass of `Optimizer`, found {shown(klass)}"
            raise ArgumentTypeError(text)
        name = klass.__name__.lower()
        known = Optimizer.opt_registry.get(name)
        if known is not None and known is not klass:
            text = (
                f"optimizer {klass.__module__}.{klass.__name__} replaces "
                f"{known.__module__}.{known.__name__}"
            )
            warnings.warn(text, stacklevel=2)
        Optimizer.opt_registry[name] = klass
        return klass

    @staticmethod
    def create_optimizer(name: str, **kwargs: Any) -> Optimizer:
        """Returns the optimizer with this name, as :func:`mxkv.optimizer.create` does."""
        return create(name, **kwargs)

    @property
    def learning_rate(self) -> Any:
        """The current learning rate, from the schedule if there is one."""
        return self.lr if self.lr_scheduler is None else self.lr_scheduler(self.num_update)

    def set_learning_rate(self, lr: float) -> None:
        """Sets the learning rate. Raises a ``UserWarning`` if the optimizer has a schedule."""
        check_unscheduled(self)
        self.lr = lr

    def create_state(self, index: Any, weight: Any) -> Any:
        """Returns the state of a new weight. The default has no state."""

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        """Returns the state of a weight. For ``float16`` with ``multi_precision``: a ``float32``
        copy and its state.
        """
        if weight.dtype != numpy.float16:
            return self.create_state(index, weight)
        if self.multi_precision:
            master = weight.astype(numpy.float32)
            return master, self.create_state(index, master)
        text = "float16 updates lose precision; multi_precision=True updates a float32 copy"
        warnings.warn(text, stacklevel=2)
        return self.create_state(index, weight)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Updates a weight by one step. Subclasses define this."""
        raise UnsupportedError(f"optimizer class `{type(self).__name__}` does not define `update`")

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Updates a weight by one step with the state of :meth:`create_state_multi_precision`."""
        if not self.multi_precision or weight.dtype != numpy.float16:
            self.update(index, weight, grad, state)
            return
        master, inner = state
        self.update(index, master, grad.astype(numpy.float32), inner)
        master.copyto(weight)

    def set_lr_mult(self, args_lr_mult: Mapping[Any, float]) -> None:
        """Sets factors of the learning rate by key. Other keys have the factor 1 again."""
        self.lr_mult = dict(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: Mapping[Any, float]) -> None:
        """Sets factors of the weight decay by key. Other keys have the factor 1 again, or 0 if
        ``param_idx2name`` gives them a name that ends neither in ``_weight`` nor in ``_gamma``.
        """
        names = self.idx2name.values()
        plain = [name for name in names if not name.endswith(("_weight", "_gamma"))]
        self.wd_mult = {**dict.fromkeys(plain, 0.0), **args_wd_mult}

    # Methods that MXNet's subclasses call.

    def _set_current_context(self, device_id: int) -> None:
        self._index_update_count = self._all_index_update_counts.setdefault(device_id, {})

    def _update_count(self, index: Any) -> None:
        """Counts an update of one key, or of each key in a list."""
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


#: An alias, as in MXNet.
register = Optimizer.register


def create(name: str | Optimizer, **options: Any) -> Optimizer:
    """Returns the optimizer with this name, in any case, and these options.

    >>> create('sgd', learning_rate=0.1).learning_rate
    0.1
    """
    if isinstance(name, Optimizer):
        if options:
            found = ", ".join(map(str, options))
            text = f"create: expected no options beside an optimizer, found {found}"
            raise InvalidArgumentError(text)
        return name
    if not isinstance(name, str):
        raise ArgumentTypeError(f"name: expected a string, found {shown(name)}")
    made = Optimizer.opt_registry.get(name.lower())
    return _unknown(name, **options) if made is None else made(**options)


def _unknown(name: str, **options: Any) -> Optimizer:
    """Returns a built-in optimizer without a class, or fails with the list of known names."""
    from ._builtin_optimizer import Builtin

    return Builtin(name, **options)


def schedule_from(
    schedule: LrScheduler | None, learning_rate: float | None
) -> LrScheduler | None:
    """Returns a schedule that begins at the learning rate. Copies the schedule if it begins
    elsewhere, because other optimizers may share it.
    """
    if schedule is None or learning_rate is None or schedule.base_lr == learning_rate:
        return schedule
    own = copy.copy(schedule)
    own.base_lr = learning_rate
    return own


def check_unscheduled(optimizer: Any) -> None:
    """Fails if an optimizer has a schedule."""
    if optimizer.lr_scheduler is not None:
        text = "learning_rate: the schedule sets it; change `lr_scheduler.base_lr`, or set "
        raise ScheduledRateError(text + "`lr_scheduler` to None")


class Updater:
    """A function ``updater(key, gradient, weight)`` that updates weights with an optimizer.

    It keeps a state per key. The optimizer is built-in or written in Python. Pass the updater to
    :meth:`mxkv.kv.KVStore.set_updater`, or call it without a store:

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
        """Updates a weight with its gradient, or lists of both."""
        is_list = isinstance(index, (list, tuple))
        given = list(index) if is_list else [index]
        indices = [py_str(key) if isinstance(key, bytes) else key for key in given]
        grads, weights = (list(grad), list(weight)) if is_list else ([grad], [weight])
        if not len(indices) == len(grads) == len(weights):
            found = f"{len(indices)} indices, {len(grads)} gradients, {len(weights)} weights"
            text = "expected equally many indices, gradients and weights"
            raise LengthMismatchError(f"{text}, found {found}")
        if weights:
            self.optimizer._set_current_context(weights[0].context.device_id)
        for key, weight in zip(indices, weights):
            self._prepare(key, weight)
        if self.aggregate_updates:
            self._update_together(indices, grads, weights)
            return
        for key, gradient, weight in zip(indices, grads, weights):
            self.optimizer.update_multi_precision(key, weight, gradient, self.states[key])

    def _prepare(self, index: Any, weight: Any) -> None:
        """Creates the state of a key, or moves a loaded state to the weight's device."""
        if index not in self.states:
            state = self.optimizer.create_state_multi_precision(index, weight)
            self.states[index] = state
        elif not self.states_synced[index]:
            self.states[index] = self.sync_state_context(self.states[index], weight.context)
        self.states_synced[index] = True

    def _update_together(self, indices: list, grads: list, weights: list) -> None:
        """Updates up to ``aggregate_num`` weights of one dtype per call of the optimizer."""
        updates_by_dtype: dict[str, list[tuple[Any, Any, Any]]] = {}
        for index, weight, grad in zip(indices, weights, grads):
            updates_by_dtype.setdefault(str(weight.dtype), []).append((index, weight, grad))
        step = self.optimizer.aggregate_num
        for updates in updates_by_dtype.values():
            for first in range(0, len(updates), step):
                keys, some_weights, some_grads = zip(*updates[first : first + step])
                states = [self.states[key] for key in keys]
                self.optimizer.update_multi_precision(keys, some_weights, some_grads, states)

    def sync_state_context(self, state: Any, context: Any) -> Any:
        """Moves the arrays of a state to a device."""
        if isinstance(state, (NDArray, RowSparseNDArray)):
            return state.as_in_context(context)
        if isinstance(state, (list, tuple)):
            return type(state)(self.sync_state_context(one, context) for one in state)
        return state

    def get_states(self, dump_optimizer: bool = False) -> bytes:
        """Returns the states as bytes, followed by the optimizer with ``dump_optimizer``.

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
        """Restores states from :meth:`get_states`. Unpickling can run any code: pass only trusted
        bytes.
        """
        loaded = pickle.loads(states)
        if isinstance(loaded, tuple) and len(loaded) == 2:
            loaded, self.optimizer = loaded
        if not isinstance(loaded, dict):
            text = "states: expected the result of `get_states`"
            raise ArgumentTypeError(f"{text}, found {shown(loaded)}")
        self.states = loaded
        self.states_synced = dict.fromkeys(loaded, False)


def get_updater(optimizer: Optimizer) -> Updater:
    """Returns an updater that steps with this optimizer."""
    return Updater(optimizer)
