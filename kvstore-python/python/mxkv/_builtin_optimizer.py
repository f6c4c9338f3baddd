"""Built-in optimizers, which a store runs without Python."""

from __future__ import annotations

import inspect
import warnings
from typing import Any, ClassVar, Mapping

import numpy

from . import _native
from ._arguments import number, option as _option, shown
from ._native import LrScheduler, OptimizerState
from ._own_optimizer import Optimizer, check_unscheduled, schedule_from
from .errors import ArgumentTypeError, LengthMismatchError, UnsupportedError


class Builtin(_native.Optimizer, Optimizer):
    """A built-in optimizer by name. A store copies its settings when the optimizer is set.

    Hyper-parameters are keyword arguments and attributes. ``lr_scheduler`` is a schedule of the
    learning rate. ``lr_mult`` and ``wd_mult`` are factors of the learning rate and the weight decay
    by key.

    A store runs the optimizer without Python. So :meth:`mxkv.kv.KVStore.set_optimizer` rejects a
    subclass that defines its own steps, and this class rejects a schedule that defines its own
    rates. Use an updater for both.
    """

    #: Whether a store has a copy of this optimizer.
    _is_taken = False
    _lr_factors: dict[str, float]
    _wd_factors: dict[str, float]

    def __new__(
        cls,
        name: str,
        *,
        lr_scheduler: LrScheduler | None = None,
        lr_mult: Mapping[Any, float] | None = None,
        wd_mult: Mapping[Any, float] | None = None,
        multi_precision: bool = False,
        **options: float | None,
    ):
        given = {name: value for name, value in options.items() if value is not None}
        if not isinstance(
            multi_precision, (bool, int, float, numpy.generic)
        ) or multi_precision not in (0, 1):
            text = f"option `multi_precision`: expected a boolean, found {shown(multi_precision)}"
            raise ArgumentTypeError(text)
        if lr_scheduler is not None:
            _check_schedule(lr_scheduler)
        numbers = dict(_numbers(name, given))
        rate = numbers.get("learning_rate", numbers.get("lr"))
        schedule = schedule_from(lr_scheduler, rate)
        optimizer = super().__new__(cls, name, list(numbers.items()), schedule)
        optimizer.set_lr_mult(lr_mult or {})
        optimizer.set_wd_mult(wd_mult or {})
        optimizer.multi_precision = bool(multi_precision)
        return optimizer

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        """Does nothing, because ``__new__`` creates the optimizer."""

    #: Weights per call from an :class:`Updater`. 0: one weight, not in a list.
    aggregate_num = 0

    def __getattr__(self, name: str) -> float:
        """Returns a hyper-parameter by its name, or the learning rate by MXNet's ``lr``."""
        found = None if name.startswith("_") else self.hyper_parameters.get(_NAMES.get(name, name))
        if found is None:
            text = f"optimizer `{self.name}` has no attribute or hyper-parameter `{name}`"
            raise AttributeError(text)
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets a hyper-parameter. A store that has the optimizer already keeps its own.

        >>> from mxkv.optimizer import SGD
        >>> sgd = SGD(learning_rate=0.5)
        >>> sgd.rescale_grad = 0.25
        >>> sgd.rescale_grad, sgd.lr
        (0.25, 0.5)
        >>> sgd.beta1 = 0.9
        Traceback (most recent call last):
         ..
        AttributeError: optimizer `sgd` has no hyper-parameter `beta1`: expected one of ...
        """
        if name.startswith("_") or name == "multi_precision":
            object.__setattr__(self, name, value)
            return
        self._warn_if_taken()
        if name == "lr_scheduler":
            if value is not None:
                _check_schedule(value)
            self._set_scheduler(value)
            return
        parameter = _NAMES.get(name, name)
        if parameter not in self.hyper_parameters:
            known = ", ".join(self.hyper_parameters)
            text = f"optimizer `{self.name}` has no hyper-parameter `{name}`"
            raise AttributeError(f"{text}: expected one of {known}")
        wanted = _option(parameter, 0.0 if value is None else value)
        if parameter == "learning_rate":
            # A schedule starts at the new rate.
            self._set_scheduler(schedule_from(self.lr_scheduler, wanted))
        self._set(parameter, wanted)

    @property
    def lr_scheduler(self) -> LrScheduler | None:  # type: ignore[override]
        """The schedule of the learning rate, or ``None``. Its ``base_lr`` can be set."""
        return self._scheduler

    @property
    def hyper_parameters(self) -> dict[str, float]:
        """Every hyper-parameter by name."""
        return dict(self._hyper_parameters())

    @property
    def learning_rate(self) -> float:
        """The learning rate. With a schedule, the rate at which the schedule starts."""
        return self.hyper_parameters["learning_rate"]

    def set_learning_rate(self, lr: float) -> None:
        """Changes the learning rate. A store that has the optimizer already keeps its own:
        :meth:`mxkv.kv.KVStore.set_hyper_parameters` changes that. If the optimizer has a schedule,
        raises a ``UserWarning``, as MXNet does.

        >>> from mxkv.lr_scheduler import FactorScheduler
        >>> from mxkv.optimizer import SGD
        >>> SGD(lr_scheduler=FactorScheduler(step=1)).set_learning_rate(0.5)
        Traceback (most recent call last):
         ..
        mxkv.optimizer.ScheduledRateError: learning_rate: the schedule sets it; ...
        """
        check_unscheduled(self)
        self._warn_if_taken()
        self._set("learning_rate", _option("learning_rate", lr))

    def set_lr_mult(self, args_lr_mult: Mapping[Any, float]) -> None:
        """Sets factors of the learning rate by key. Other keys have the factor 1 again.

        >>> from mxkv.optimizer import SGD
        >>> sgd = SGD(lr_mult={'w': 0.5})
        >>> sgd.set_lr_mult({'b': 0})
        >>> sgd.lr_mult
        {'b': 0.0}
        """
        self._warn_if_taken()
        self._set_factors("lr", args_lr_mult)

    def set_wd_mult(self, args_wd_mult: Mapping[Any, float]) -> None:
        """Sets factors of the weight decay by key. Other keys have the factor 1 again."""
        self._warn_if_taken()
        self._set_factors("wd", args_wd_mult)

    @property
    def lr_mult(self) -> dict[str, float]:  # type: ignore[override]
        """The factors of the learning rate by key."""
        return dict(self._lr_factors)

    @property
    def wd_mult(self) -> dict[str, float]:  # type: ignore[override]
        """The factors of the weight decay by key."""
        return dict(self._wd_factors)

    def _warn_if_taken(self) -> None:
        if self._is_taken:
            text = (
                "a store has taken this optimizer as it was: "
                "`set_hyper_parameters` of the store changes that one"
            )
            warnings.warn(text, stacklevel=3)

    def _set_factors(self, what: str, given: Mapping[Any, float]) -> None:
        if not isinstance(given, Mapping):
            text = f"{what}_mult: expected a map of keys to numbers, found {shown(given)}"
            raise ArgumentTypeError(text)
        factors = {
            str(key): number(f"{what}_mult of key `{key}`", factor)
            for key, factor in given.items()
        }
        name = f"_{what}_factors"
        before = self.__dict__.get(name, {})
        # Keys that had a factor and are not in the new mapping get the factor 1.
        for key, factor in {**dict.fromkeys(before, 1.0), **factors}.items():
            self._multiply(what, key, factor)
        object.__setattr__(self, name, factors)

    def create_state(self, index: Any, weight: Any) -> OptimizerState:
        """Creates the state of a new weight, dense or row-sparse."""
        return self._create_state(weight)

    def create_state_multi_precision(self, index: Any, weight: Any) -> OptimizerState:
        """The same as :meth:`create_state`: half precision always has a ``float32`` copy."""
        return self.create_state(index, weight)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Updates a weight by one step, without a store; with lists, updates each weight.

        A row-sparse gradient updates only its rows if the optimizer has ``lazy_update=1``,
        otherwise all rows. A row-sparse weight has every row afterwards.

        >>> from mxkv import nd, optimizer
        >>> sgd, weight = optimizer.SGD(learning_rate=0.5), nd.ones((2, 1))
        >>> state = sgd.create_state(0, weight)
        >>> sgd.update(0, weight, nd.ones((2, 1)), state)
        >>> sgd.update(0, weight, nd.sparse.row_sparse_array(([[1]], [0]), shape=(2, 1)), state)
        >>> weight.tolist()
        [[0.0], [0.5]]
        """
        if not isinstance(index, (list, tuple)):
            self._update(str(index), weight, grad, state)
            return
        if not len(index) == len(weight) == len(grad) == len(state):
            found = f"{len(index)}, {len(weight)}, {len(grad)}, {len(state)}"
            text = f"expected equally many indices, weights, gradients and states, found {found}"
            raise LengthMismatchError(text)
        for key, *arrays in zip(index, weight, grad, state):
            self._update(str(key), *arrays)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """The same as :meth:`update`: half precision always has a ``float32`` copy."""
        self.update(index, weight, grad, state)

    def _set_current_context(self, device_id: int) -> None:
        """Does nothing: each state has its own count."""

    def __reduce__(self) -> Any:
        """Supports ``pickle`` and ``copy``."""
        return _restored, (
            type(self),
            self.name,
            list(self.hyper_parameters.items()),
            self.lr_scheduler,
            (self._lr_factors, self._wd_factors, self.multi_precision),
        )


def _restored(
    kind: type[Builtin],
    name: str,
    numbers: list[tuple[str, float]],
    scheduler: LrScheduler | None,
    others: tuple[dict[str, float], dict[str, float], bool],
) -> Builtin:
    """Restores a pickled optimizer."""
    optimizer = _native.Optimizer.__new__(kind, name, numbers, scheduler)
    lr_mult, wd_mult, multi_precision = others
    optimizer.set_lr_mult(lr_mult)
    optimizer.set_wd_mult(wd_mult)
    optimizer.multi_precision = multi_precision
    return optimizer


#: Hyper-parameters by the names of MXNet's attributes.
_NAMES = {"lr": "learning_rate"}

#: The methods of an optimizer that MXNet calls. A store runs built-in optimizers without Python, so
#: it calls none of them.
_STEPS = (
    "create_state",
    "create_state_multi_precision",
    "fused_step",
    "step",
    "update",
    "update_multi_precision",
)


def check_own(optimizer: Optimizer) -> Builtin:
    """Returns a built-in optimizer. Rejects a class with its own steps, which a store would not
    call.
    """
    base = Builtin if isinstance(optimizer, Builtin) else Optimizer
    kind = type(optimizer)
    for name in _STEPS:
        if getattr(kind, name, None) is not getattr(base, name, None):
            hint = "use `set_updater(mxkv.optimizer.get_updater(optimizer))`"
            text = f"optimizer: `{kind.__name__}` defines `{name}`, which a store does not call"
            text = f"{text}: {hint}"
            raise UnsupportedError(text)
    if not isinstance(optimizer, Builtin):
        raise UnsupportedError(f"optimizer: `{kind.__name__}` does not define `update`")
    return optimizer


def _check_schedule(schedule: Any) -> None:
    if not isinstance(schedule, LrScheduler):
        raise ArgumentTypeError(
            f"lr_scheduler: expected one of mxkv.lr_scheduler, found {shown(schedule)}"
        )
    if type(schedule).__call__ is not LrScheduler.__call__:
        kind, hint = type(schedule).__name__, "use `set_hyper_parameters`"
        text = f"lr_scheduler: `{kind}` defines `__call__`, which a store does not call: {hint}"
        raise UnsupportedError(text)


def _numbers(name: str, options: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Returns the options of the optimizer with this name as a list for the native module."""
    known = dict(_native.Optimizer(name, [], None)._hyper_parameters())
    for parameter, value in options.items():
        if parameter not in known and (
            isinstance(value, bool) or not isinstance(value, (int, float))
        ):
            # Raises the error about the unknown name, which comes before an error about the value.
            _native.Optimizer(name, [(parameter, 0.0)], None)
    return [(parameter, _option(parameter, value)) for parameter, value in options.items()]


class Named(Builtin):
    """A built-in optimizer whose class has a fixed name."""

    _name: str
    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "_name" in cls.__dict__:
            cls.__module__ = "mxkv.optimizer"
            Optimizer.opt_registry[cls._name] = cls
        # Without this, `help` shows the signature of `__new__`, which does not list the options.
        signature = inspect.signature(cls.__init__)
        cls.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])

    def __new__(cls, **options: Any):
        # `options` contains only what the caller gave, not the defaults in the signature of
        # `__init__`. So a schedule keeps its own learning rate unless the caller gives one.
        return super().__new__(cls, cls._name, **options)
