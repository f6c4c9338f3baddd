# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The class :class:`SGLD`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._builtin_optimizer import Named
from .options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class SGLD(Named):
    """Stochastic gradient Langevin dynamics: gradient descent with noise, which samples the
    posterior of the weights.

    With ``q = clip(rescale * gradient)`` and standard normal noise ``e``:

    - ``w = w - lr / 2 * (q + wd * w) + sqrt(lr) * e``

    The noise depends only on ``seed``, the key, the number of the update and the index of the
    element.

    Source: Welling and Teh, "Bayesian learning via stochastic gradient Langevin dynamics", 2011.

    Args:
        seed: Seed of the noise.
        learning_rate: Step size; with a schedule, its base.
        wd: Weight decay.
        options: The options that every optimizer has, :class:`mxkv.optimizer.Options`.
    """

    _name = "sgld"

    def __init__(
        self,
        *,
        seed: int = 0,
        learning_rate: float = 0.01,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...
