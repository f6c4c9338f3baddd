# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The class :class:`Adamax`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._builtin_optimizer import Named
from .options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Adamax(Named):
    """Adamax: Adam with the infinity norm in place of the variance.

    With ``q = clip(rescale * gradient + wd * w)``: ``m = beta1 * m + (1 - beta1) * q``, ``u = max(beta2 * u,
    |q|)`` and ``w = w - lr / (1 - beta1^t) * m / u``. Where ``u`` is 0 there has been no gradient yet, and
    the weight stays.

    Source: Kingma and Ba, "Adam: a method for stochastic optimization", 2015, algorithm 2.

    Args:
        beta1: Decay of the mean of the gradients.
        beta2: Decay of the greatest gradient.
        learning_rate: Size of a step; with a schedule, where that starts.
        wd: Weight decay.
        options: Those of every optimizer, :class:`mxkv.optimizer.Options`.
    """

    _name = "adamax"

    def __init__(
        self,
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        learning_rate: float = 0.002,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...
