# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The class :class:`LARS`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._builtin_optimizer import Named
from .options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class LARS(Named):
    """LARS: gradient descent that scales the learning rate of each key by the norms of weight and
    gradient.

    With ``q = clip(rescale * gradient)`` and Euclidean norms over all elements of a key:

    - ``rate = lr * eta * |w| / (|rescale * gradient| + wd * |w| + epsilon)``, or ``lr`` if a norm
      is 0
    - ``m = momentum * m - rate * wd * w - rate * q``
    - ``w = w + m``

    Keys that end in ``gamma``, ``beta`` or ``bias`` use ``rate = lr``. With
    ``momentum_correction``, ``momentum`` is multiplied by ``lr`` and divided by the ``lr`` of the
    key's last update.

    Source: You, Gitman and Ginsburg, "Large batch training of convolutional networks", 2017, with
    the options of MXNet 1.9; the correction is from Goyal et al., "Accurate, large minibatch SGD",
    2017.

    Args:
        momentum: Fraction of the last step that is added; 0 for no momentum.
        eta: Trust coefficient: norm of a step over norm of the weight, at learning rate 1.
        epsilon: Added to the divisor to avoid division by 0.
        momentum_correction: Whether a change of the learning rate also scales the momentum.
        learning_rate: Step size; with a schedule, its base.
        wd: Weight decay.
        options: The options that every optimizer has, :class:`mxkv.optimizer.Options`.
    """

    _name = "lars"

    def __init__(
        self,
        *,
        momentum: float = 0.0,
        eta: float = 0.001,
        epsilon: float = 0.0,
        momentum_correction: bool = True,
        learning_rate: float = 0.01,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...
