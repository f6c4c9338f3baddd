# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The class :class:`RMSProp`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._builtin_optimizer import Named
from .options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class RMSProp(Named):
    """RMSProp: divides the gradient by the root of the mean squared gradient, plain or centered.

    With ``q = clip(rescale * gradient + wd * w)`` and ``n = gamma1 * n + (1 - gamma1) * q^2``:

    - plain: ``w = w - lr * q / sqrt(n + epsilon)``
    - centered: ``G = gamma1 * G + (1 - gamma1) * q``, ``d = gamma2 * d - lr * q / sqrt(n - G^2 +
      epsilon)``, ``w = w + d``; a negative ``n - G^2`` counts as 0

    With ``decoupled_wd``, ``wd * w`` is added to the quotient, and not part of ``q``. With
    ``clip_weights`` above 0, the new weight is clipped. With ``pytorch_epsilon``, epsilon is added
    to the root, not under it.

    Source: Tieleman and Hinton, "Neural networks for machine learning", lecture 6.5, 2012; Graves,
    "Generating sequences with recurrent neural networks", 2013, equations 38 to 45.

    Args:
        gamma1: Decay of the mean gradient and the mean squared gradient.
        gamma2: Fraction of the last step that is added, if ``centered``.
        epsilon: Added to the divisor to avoid division by 0.
        centered: Whether the mean gradient is subtracted, as by Graves.
        clip_weights: Bound on each element of the new weight; 0 for none.
        decoupled_wd: Whether weight decay is subtracted from the weight instead of added to the
            gradient.
        pytorch_epsilon: Whether epsilon is added after the square root and the bias correction,
            as by PyTorch.
        learning_rate: Step size; with a schedule, its base.
        wd: Weight decay.
        options: The options that every optimizer has, :class:`mxkv.optimizer.Options`.
    """

    _name = "rmsprop"

    def __init__(
        self,
        *,
        gamma1: float = 0.9,
        gamma2: float = 0.9,
        epsilon: float = 1e-8,
        centered: bool = False,
        clip_weights: float = 0.0,
        decoupled_wd: bool = False,
        pytorch_epsilon: bool = False,
        learning_rate: float = 0.001,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...
