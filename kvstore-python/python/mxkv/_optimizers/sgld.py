# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The class :class:`SGLD`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._builtin_optimizer import Named
from .options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class SGLD(Named):
    """Stochastic gradient Langevin dynamics: gradient descent with noise, so that the weights become samples
    of the posterior.

    With ``q = clip(rescale * gradient)``: ``w = w - lr / 2 * (q + wd * w) + sqrt(lr) * e``, where ``e`` is
    standard normal. The noise is a function of the hyper-parameter ``seed``, the key, the number of the
    update and the element's index, so it does not depend on threads or on other keys.

    Source: Welling and Teh, "Bayesian learning via stochastic gradient Langevin dynamics", 2011.

    Args:
        seed: Chooses the noise.
        learning_rate: Size of a step; with a schedule, where that starts.
        wd: Weight decay.
        options: Those of every optimizer, :class:`mxkv.optimizer.Options`.
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
