# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The class :class:`FTML`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._builtin_optimizer import Named
from .options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class FTML(Named):
    """FTML: follows the moving leader.

    With ``q = clip(rescale * gradient + wd * w)`` and update number ``t``:

    - ``v = beta2 * v + (1 - beta2) * q^2``
    - ``D = (1 - beta1^t) / lr * (sqrt(v / (1 - beta2^t)) + epsilon)``
    - ``z = beta1 * z + (1 - beta1) * q - (D - beta1 * d) * w``
    - ``d = D``, ``w = -z / d``

    With learning rate 0, an update changes neither weight nor state, and ``t`` does not count it.

    Source: Zheng and Kwok, "Follow the moving leader in deep learning", 2017.

    Args:
        beta1: Decay of the mean gradient.
        beta2: Decay of the mean squared gradient.
        epsilon: Added to the divisor to avoid division by 0.
        learning_rate: Step size; with a schedule, its base.
        wd: Weight decay.
        options: The options that every optimizer has, :class:`mxkv.optimizer.Options`.
    """

    _name = "ftml"

    def __init__(
        self,
        *,
        beta1: float = 0.6,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        learning_rate: float = 0.01,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...
