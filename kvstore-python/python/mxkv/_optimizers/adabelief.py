# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The class :class:`AdaBelief`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._builtin_optimizer import Named
from .options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AdaBelief(Named):
    """AdaBelief: Adam with the variance of the gradient around its mean, so an expected gradient
    makes a large step.

    With ``q = clip(rescale * gradient)`` and update number ``t``:

    - ``m = beta1 * m + (1 - beta1) * q``
    - ``s = beta2 * s + (1 - beta2) * (q - m)^2 + epsilon``
    - ``w = (1 - lr * wd) * w - lr * (m / (1 - beta1^t)) / (sqrt(s / (1 - beta2^t)) + epsilon)``

    Source: Zhuang et al., "AdaBelief optimizer: adapting stepsizes by the belief in observed
    gradients", 2020, algorithm 2, with decoupled weight decay.

    Args:
        beta1: Decay of the mean gradient.
        beta2: Decay of the variance.
        epsilon: Added to the divisor to avoid division by 0.
        learning_rate: Step size; with a schedule, its base.
        wd: Weight decay.
        options: The options that every optimizer has, :class:`mxkv.optimizer.Options`.
    """

    _name = "adabelief"

    def __init__(
        self,
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        learning_rate: float = 0.001,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...
