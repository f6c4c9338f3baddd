# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The class :class:`Adamax`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._builtin_optimizer import Named
from .options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Adamax(Named):
    """Adamax: Adam with the infinity norm instead of the variance.

    With ``q = clip(rescale * gradient + wd * w)`` and update number ``t``:

    - ``m = beta1 * m + (1 - beta1) * q``
    - ``u = max(beta2 * u, |q|)``
    - ``w = w - lr / (1 - beta1^t) * m / u``; the weight stays if ``u`` is 0

    Source: Kingma and Ba, "Adam: a method for stochastic optimization", 2015, algorithm 2.

    Args:
        beta1: Decay of the mean gradient.
        beta2: Decay of the largest gradient.
        learning_rate: Step size; with a schedule, its base.
        wd: Weight decay.
        options: The options that every optimizer has, :class:`mxkv.optimizer.Options`.
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
