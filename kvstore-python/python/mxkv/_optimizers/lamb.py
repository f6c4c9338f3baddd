# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The class :class:`LAMB`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._builtin_optimizer import Named
from .options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class LAMB(Named):
    """LAMB: Adam with weight decay that scales the step of each key by the norm of the weight.

    With ``q = clip(rescale * gradient)``, update number ``t`` and Euclidean norms over all elements
    of a key:

    - ``m = beta1 * m + (1 - beta1) * q``
    - ``v = beta2 * v + (1 - beta2) * q^2``
    - ``u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + wd * w``
    - ``w = w - lr * |w| / |u| * u``

    ``|w|`` is first clamped to ``lower_bound`` and ``upper_bound``. If ``|w|`` or ``|u|`` is 0, the
    quotient counts as 1. Without ``bias_correction``, the divisors ``1 - beta1^t`` and ``1 -
    beta2^t`` are 1.

    Source: You et al., "Large batch optimization for deep learning: training BERT in 76 minutes",
    2020, algorithm 2, with the options of MXNet 1.9.

    Args:
        beta1: Decay of the mean gradient.
        beta2: Decay of the mean squared gradient.
        epsilon: Added to the divisor to avoid division by 0.
        lower_bound: Lower limit of the weight norm; 0 for none.
        upper_bound: Upper limit of the weight norm; 0 for none.
        bias_correction: Whether to correct the bias of means that start at 0.
        learning_rate: Step size; with a schedule, its base.
        wd: Weight decay.
        options: The options that every optimizer has, :class:`mxkv.optimizer.Options`.
    """

    _name = "lamb"

    def __init__(
        self,
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        lower_bound: float = 0.0,
        upper_bound: float = 0.0,
        bias_correction: bool = True,
        learning_rate: float = 0.001,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...
