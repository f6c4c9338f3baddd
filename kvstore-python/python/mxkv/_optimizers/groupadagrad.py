# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The class :class:`GroupAdaGrad`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._builtin_optimizer import Named
from .options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class GroupAdaGrad(Named):
    """GroupAdaGrad: AdaGrad with one learning rate for each row of the weight.

    With ``q = clip(rescale * gradient)``, for each row along the first axis:

    - ``h = h + mean(q^2)``, with the mean over the row
    - ``w = w - lr * (q / sqrt(h + epsilon) + wd * w)``

    Source: the operator ``group_adagrad_update`` of Apache MXNet 1.9, which has no weight decay,
    after Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and stochastic
    optimization", 2011.

    Args:
        epsilon: Added to the divisor to avoid division by 0.
        lazy_update: Whether a row-sparse gradient changes only its own rows of weight and
            state; otherwise missing rows count as 0.
        learning_rate: Step size; with a schedule, its base.
        wd: Weight decay.
        options: The options that every optimizer has, :class:`mxkv.optimizer.Options`.
    """

    _name = "groupadagrad"

    def __init__(
        self,
        *,
        epsilon: float = 1e-5,
        lazy_update: bool = True,
        learning_rate: float = 0.01,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...
