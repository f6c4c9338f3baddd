"""Optimizers that run on a store, in one pass with the sum of a push.

>>> import mxkv as mx
>>> kv = mx.kv.create()
>>> kv.init(0, mx.nd.ones(2))
>>> kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.5, momentum=0.9))
>>> kv.push(0, mx.nd.ones(2))
>>> kv.pull(0).tolist()
[0.5, 0.5]

Options have the names of MXNet's Python package. An unknown option is an error. ``lr`` is an alias
of ``learning_rate``; giving both is an error. Boolean options, such as ``centered``, take booleans,
0 and 1; other options do not take booleans. :attr:`Optimizer.hyper_parameters` shows MXNet's
defaults:

>>> mx.optimizer.create('adam').hyper_parameters['beta2']
0.999
>>> mx.optimizer.Adam(momentum=0.9)
Traceback (most recent call last):
 ..
mxkv.errors.InvalidArgumentError: optimizer `adam` has no hyper-parameter `momentum`: expected one of ...

Weights of half floats always have a copy in ``float32`` beside them, so ``multi_precision`` changes nothing.

Subclass :class:`Optimizer` to write an optimizer in Python; an :class:`Updater` runs it.
"""

from __future__ import annotations

from . import _native
from ._builtin_optimizer import Named
from ._native import OptimizerState
from ._optimizers import (
    DCASGD,
    FTML,
    NAG,
    SGD,
    SGLD,
    AdaDelta,
    AdaGrad,
    Adam,
    AdamW,
    Adamax,
    Ftrl,
    Nadam,
    Nesterov,
    Options,
    RMSProp,
    Signum,
)
from ._own_optimizer import Optimizer, ScheduledRateError, Updater, create, get_updater, register

__all__ = [
    "DCASGD",
    "FTML",
    "NAG",
    "SGD",
    "SGLD",
    "AdaDelta",
    "AdaGrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "Nadam",
    "Nesterov",
    "Optimizer",
    "OptimizerState",
    "Options",
    "RMSProp",
    "ScheduledRateError",
    "Signum",
    "Test",
    "Updater",
    "create",
    "get_updater",
    "names",
    "register",
]


def names() -> list[str]:
    """Returns the name of every optimizer."""
    return _native.optimizer_names()


class Test(Named):
    """Adds the gradient. It exists to test programs, and :func:`names` omits it."""

    _name = "test"
    #: It is no test of pytest's.
    __test__ = False
