# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The class :class:`Nadam`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._builtin_optimizer import Named
from .options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Nadam(Named):
    """Nadam: Adam with Nesterov momentum that grows on a schedule.

    With ``q = clip(rescale * gradient + wd * w)``, update number ``t``, ``f(t) = beta1 * (1 - 0.5 *
    0.96^(t * schedule_decay))``, ``S = f(1) * .. * f(t)`` and ``S' = S * f(t + 1)``:

    - ``m = beta1 * m + (1 - beta1) * q``
    - ``v = beta2 * v + (1 - beta2) * q^2``
    - ``d = (1 - f(t)) * q / (1 - S) + f(t + 1) * m / (1 - S')``
    - ``w = w - lr * d / (sqrt(v / (1 - beta2^t)) + epsilon)``

    Source: Dozat, "Incorporating Nesterov momentum into Adam", 2016.

    Args:
        beta1: Decay of the mean gradient.
        beta2: Decay of the mean squared gradient.
        epsilon: Added to the divisor to avoid division by 0.
        schedule_decay: Speed at which the momentum approaches ``beta1``.
        learning_rate: Step size; with a schedule, its base.
        wd: Weight decay.
        options: The options that every optimizer has, :class:`mxkv.optimizer.Options`.
    """

    _name = "nadam"

    def __init__(
        self,
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        schedule_decay: float = 0.004,
        learning_rate: float = 0.001,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...
