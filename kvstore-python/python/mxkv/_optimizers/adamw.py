# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The class :class:`AdamW`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._builtin_optimizer import Named
from .options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AdamW(Named):
    """AdamW: Adam with decoupled weight decay.

    With ``q = clip(rescale * gradient)`` and update number ``t``:

    - ``m = beta1 * m + (1 - beta1) * q``
    - ``v = beta2 * v + (1 - beta2) * q^2``
    - ``w = w - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) - lr * wd * w``

    Source: Loshchilov and Hutter, "Decoupled weight decay regularization", 2019.

    Args:
        beta1: Decay of the mean gradient.
        beta2: Decay of the mean squared gradient.
        epsilon: Added to the divisor to avoid division by 0.
        learning_rate: Step size; with a schedule, its base.
        wd: Weight decay.
        options: The options that every optimizer has, :class:`mxkv.optimizer.Options`.
    """

    _name = "adamw"

    def __init__(
        self,
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        learning_rate: float = 0.001,
        wd: float = 0.01,
        **options: Unpack[Options],
    ) -> None: ...
