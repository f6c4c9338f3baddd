# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The class :class:`Nesterov`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._builtin_optimizer import Named
from .options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Nesterov(Named):
    """Nesterov's accelerated gradient, as most libraries compute it.

    With ``q = clip(rescale * gradient)`` and ``r = q + wd * w``:

    - ``m = momentum * m + r``
    - ``w = w - lr * (r + momentum * m)``

    Without momentum, it is the same as ``sgd``.

    Source: Sutskever, Martens, Dahl and Hinton, "On the importance of initialization and momentum
    in deep learning", 2013.

    Args:
        momentum: Decay of the sum of gradients; 0 for no momentum.
        learning_rate: Step size; with a schedule, its base.
        wd: Weight decay.
        options: The options that every optimizer has, :class:`mxkv.optimizer.Options`.
    """

    _name = "nesterov"

    def __init__(
        self,
        *,
        momentum: float = 0.0,
        learning_rate: float = 0.01,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...
