# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The class :class:`AdaDelta`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._builtin_optimizer import Named
from .options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AdaDelta(Named):
    """AdaDelta: scales steps by the size of earlier steps, and ignores the learning rate.

    With ``q = clip(rescale * gradient)``:

    - ``a = rho * a + (1 - rho) * q^2``
    - ``d = sqrt(D + epsilon) / sqrt(a + epsilon) * q``
    - ``D = rho * D + (1 - rho) * d^2``
    - ``w = w - (d + wd * w)``

    Source: Zeiler, "ADADELTA: an adaptive learning rate method", 2012.

    Args:
        rho: Decay of the mean squared gradient and the mean squared step.
        epsilon: Added to the divisor to avoid division by 0.
        learning_rate: Step size; with a schedule, its base.
        wd: Weight decay.
        options: The options that every optimizer has, :class:`mxkv.optimizer.Options`.
    """

    _name = "adadelta"

    def __init__(
        self,
        *,
        rho: float = 0.9,
        epsilon: float = 1e-5,
        learning_rate: float = 0.01,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...
