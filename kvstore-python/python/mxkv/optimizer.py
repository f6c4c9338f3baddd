"""Optimizers that run on a store. They update a weight in the same pass that sums a push.

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
mxkv.errors.InvalidArgumentError: optimizer `adam` has no hyper-parameter `momentum`: expected ...

Half-precision weights always have a ``float32`` copy, so ``multi_precision`` has no effect.

Subclass :class:`Optimizer` to write an optimizer in Python; an :class:`Updater` runs it.
"""

from typing import TYPE_CHECKING

from . import _native, _optimizers
from ._builtin_optimizer import Named as _Named
from ._native import OptimizerState as OptimizerState
from ._optimizers import *
from ._own_optimizer import Optimizer as Optimizer
from ._own_optimizer import ScheduledRateError as ScheduledRateError
from ._own_optimizer import Updater as Updater
from ._own_optimizer import create as create
from ._own_optimizer import get_updater as get_updater
from ._own_optimizer import register as register

if not TYPE_CHECKING:
    # Type checkers cannot add the names of another module to `__all__`. Without `__all__`, they
    # export all imports above.
    __all__ = [
        *_optimizers.__all__,
        "Optimizer",
        "OptimizerState",
        "ScheduledRateError",
        "Updater",
        "create",
        "get_updater",
        "names",
        "register",
    ]


def names() -> list[str]:
    """Returns the name of every optimizer."""
    return _native.optimizer_names()


class Test(_Named):
    """Adds the gradient. It exists to test programs, and :func:`names` omits it."""

    _name = "test"
    #: Prevents pytest from collecting the class.
    __test__ = False
