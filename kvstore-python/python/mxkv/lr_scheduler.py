"""Schedules of the learning rate: functions of a key's update number, counted from 1.

>>> from mxkv.lr_scheduler import FactorScheduler
>>> schedule = FactorScheduler(step=2, factor=0.5, base_lr=0.1)
>>> [schedule(n) for n in range(1, 6)]
[0.1, 0.1, 0.05, 0.05, 0.025]

An optimizer starts the schedule at its ``learning_rate`` if given, otherwise at ``base_lr``.
``base_lr`` can be changed through the optimizer's ``lr_scheduler``:

>>> from mxkv.optimizer import SGD
>>> sgd = SGD(lr_scheduler=schedule)
>>> sgd.lr_scheduler.base_lr = 0.2
>>> sgd.learning_rate, schedule(3)
(0.2, 0.1)
"""

from __future__ import annotations

from typing import Any, Sequence

from ._arguments import number, whole
from ._native import LrScheduler

__all__ = [
    "CosineScheduler",
    "FactorScheduler",
    "LRScheduler",
    "LrScheduler",
    "MultiFactorScheduler",
    "PolyScheduler",
]

#: MXNet's name of the base class of all schedules.
LRScheduler = LrScheduler


def _restored(
    kind: type[LrScheduler],
    name: str,
    steps: list[int],
    numbers: list[float],
    base_lr: float,
    warmup: tuple[int, float, str],
) -> LrScheduler:
    """Restores a pickled schedule."""
    # `base_lr` may be below the start of the warm-up, which the constructor rejects.
    schedule = LrScheduler.__new__(kind, name, steps, numbers, max(base_lr, warmup[1]), warmup)
    schedule.base_lr = base_lr
    return schedule


def _count(name: str, number: Any) -> int:
    """Returns an update count."""
    return whole(name, number, 64)


def _rates(**rates: Any) -> list[float]:
    return [number(name, rate) for name, rate in rates.items()]


def _warmup(steps: Any, begin: Any, mode: str) -> tuple[int, float, str]:
    return _count("warmup_steps", steps), number("warmup_begin_lr", begin), mode


class FactorScheduler(LrScheduler):
    """Multiplies the learning rate by ``factor`` after every ``step`` updates, down to
    ``stop_factor_lr``.
    """

    def __new__(
        cls,
        step: int,
        factor: float = 1,
        stop_factor_lr: float = 1e-8,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ):
        warmup = _warmup(warmup_steps, warmup_begin_lr, warmup_mode)
        steps = [_count("step", step)]
        rates, base = (
            _rates(factor=factor, stop_factor_lr=stop_factor_lr),
            number("base_lr", base_lr),
        )
        return super().__new__(cls, "factor", steps, rates, base, warmup)


class MultiFactorScheduler(LrScheduler):
    """Multiplies the learning rate by ``factor`` after each of the update counts in ``step``.

    >>> schedule = MultiFactorScheduler(step=[1, 3], factor=0.5, base_lr=1)
    >>> [schedule(n) for n in range(1, 5)]
    [1.0, 0.5, 0.5, 0.25]
    """

    def __new__(
        cls,
        step: Sequence[int],
        factor: float = 1,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ):
        warmup = _warmup(warmup_steps, warmup_begin_lr, warmup_mode)
        steps = [_count("step", one) for one in step]
        rates, base = _rates(factor=factor), number("base_lr", base_lr)
        return super().__new__(cls, "multi_factor", steps, rates, base, warmup)


class PolyScheduler(LrScheduler):
    """Lowers the learning rate from ``base_lr`` to ``final_lr`` at update ``max_update``, along a
    polynomial with the power ``pwr``.

    >>> schedule = PolyScheduler(max_update=4, base_lr=1, pwr=1)
    >>> [schedule(n) for n in range(1, 6)]
    [0.75, 0.5, 0.25, 0.0, 0.0]
    """

    def __new__(
        cls,
        max_update: int,
        base_lr: float = 0.01,
        pwr: float = 2,
        final_lr: float = 0,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ):
        warmup = _warmup(warmup_steps, warmup_begin_lr, warmup_mode)
        last = _count("max_update", max_update)
        rates, base = _rates(pwr=pwr, final_lr=final_lr), number("base_lr", base_lr)
        return super().__new__(cls, "poly", [last], rates, base, warmup)


class CosineScheduler(LrScheduler):
    """Lowers the learning rate from ``base_lr`` to ``final_lr`` at update ``max_update``, along
    half a cosine wave.

    >>> schedule = CosineScheduler(max_update=2, base_lr=1)
    >>> [round(schedule(n), 12) for n in range(1, 4)]
    [0.5, 0.0, 0.0]
    """

    def __new__(
        cls,
        max_update: int,
        base_lr: float = 0.01,
        final_lr: float = 0,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ):
        warmup = _warmup(warmup_steps, warmup_begin_lr, warmup_mode)
        last = _count("max_update", max_update)
        rates, base = _rates(final_lr=final_lr), number("base_lr", base_lr)
        return super().__new__(cls, "cosine", [last], rates, base, warmup)
