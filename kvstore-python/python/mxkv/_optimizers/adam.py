# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The class :class:`Adam`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._builtin_optimizer import Named
from .options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Adam(Named):
    """Adam: steps of the mean gradient over the root of the mean squared gradient.

    With ``q = clip(rescale * gradient + wd * w)``, ``t`` the number of the update and ``b1 = beta1 *
    decay_factor^(t - 1)``: ``m = b1 * m + (1 - b1) * q``, ``v = beta2 * v + (1 - beta2) * q^2`` and ``w = w -
    lr * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon)``.

    With ``decoupled_wd`` the weight decay does not enter ``q``; the step subtracts ``lr * wd * w`` instead.
    With ``pytorch_epsilon`` the divisor is ``sqrt(v / (1 - beta2^t)) + epsilon``, and the step size before it
    ``lr / (1 - beta1^t)``.

    Source: Kingma and Ba, "Adam: a method for stochastic optimization", 2015, the efficient order of section
    2.

    Args:
        beta1: Decay of the mean of the gradients.
        beta2: Decay of the mean of their squares.
        epsilon: Is added so that the quotient is finite.
        decay_factor: ``beta1`` is multiplied by it after each update.
        decoupled_wd: Whether the weight decay is subtracted from the weight, and not part of the
            gradient.
        pytorch_epsilon: Whether epsilon is added after the square root and the bias correction, as
            PyTorch does.
        lazy_update: Whether a gradient of some rows changes weight and state in those rows only;
            otherwise the other rows count as 0.
        learning_rate: Size of a step; with a schedule, where that starts.
        wd: Weight decay.
        options: Those of every optimizer, :class:`mxkv.optimizer.Options`.
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
