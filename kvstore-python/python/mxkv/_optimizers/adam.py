# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The class :class:`Adam`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._builtin_optimizer import Named
from .options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Adam(Named):
    """Adam: divides the mean gradient by the root of the mean squared gradient.

    With ``q = clip(rescale * gradient + wd * w)``, update number ``t`` and ``b1 = beta1 *
    decay_factor^(t - 1)``:

    - ``m = b1 * m + (1 - b1) * q``
    - ``v = beta2 * v + (1 - beta2) * q^2``
    - ``w = w - lr * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon)``

    With ``decoupled_wd``, the step subtracts ``lr * wd * w``, and ``q`` does not contain ``wd *
    w``. With ``pytorch_epsilon``, the step is ``lr / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) +
    epsilon)``.

    Source: Kingma and Ba, "Adam: a method for stochastic optimization", 2015, the efficient order
    of section 2.

    Args:
        beta1: Decay of the mean gradient.
        beta2: Decay of the mean squared gradient.
        epsilon: Added to the divisor to avoid division by 0.
        decay_factor: Factor on ``beta1`` after each update.
        decoupled_wd: Whether weight decay is subtracted from the weight instead of added to the
            gradient.
        pytorch_epsilon: Whether epsilon is added after the square root and the bias correction,
            as by PyTorch.
        lazy_update: Whether a row-sparse gradient changes only its own rows of weight and
            state; otherwise missing rows count as 0.
        learning_rate: Step size; with a schedule, its base.
        wd: Weight decay.
        options: The options that every optimizer has, :class:`mxkv.optimizer.Options`.
    """

    _name = "adam"

    def __init__(
        self,
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        decay_factor: float = 1.0,
        decoupled_wd: bool = False,
        pytorch_epsilon: bool = False,
        lazy_update: bool = True,
        learning_rate: float = 0.001,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...
