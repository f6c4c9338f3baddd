# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The class :class:`AdaGrad`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._builtin_optimizer import Named
from .options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AdaGrad(Named):
    """AdaGrad: divides the gradient by the root of the sum of all squared gradients.

    With ``q = clip(rescale * gradient)``:

    - ``h = h + q^2``
    - ``w = w - lr * (q / sqrt(h + epsilon) + wd * w)``

    Source: Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and
    stochastic optimization", 2011.

    Args:
        epsilon: Added to the divisor to avoid division by 0.
        lazy_update: Whether a row-sparse gradient changes only its own rows of weight and
            state; otherwise missing rows count as 0.
        learning_rate: Step size; with a schedule, its base.
        wd: Weight decay.
        options: The options that every optimizer has, :class:`mxkv.optimizer.Options`.
    """

    _name = "adagrad"

    def __init__(
        self,
        *,
        epsilon: float = 1e-7,
        lazy_update: bool = True,
        learning_rate: float = 0.01,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...
