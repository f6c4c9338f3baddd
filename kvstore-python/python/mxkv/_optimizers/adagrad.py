# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The class :class:`AdaGrad`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._builtin_optimizer import Named
from .options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AdaGrad(Named):
    """AdaGrad: each element's steps shrink with the sum of its squared gradients.

    With ``q = clip(rescale * gradient)``: ``h = h + q^2`` and ``w = w - lr * (q / sqrt(h + epsilon) + wd *
    w)``.

    Source: Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and stochastic
    optimization", 2011.

    Args:
        epsilon: Is added so that the quotient is finite.
        lazy_update: Whether a gradient of some rows changes weight and state in those rows only;
            otherwise the other rows count as 0.
        learning_rate: Size of a step; with a schedule, where that starts.
        wd: Weight decay.
        options: Those of every optimizer, :class:`mxkv.optimizer.Options`.
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
