# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The class :class:`Signum`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._builtin_optimizer import Named
from .options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Signum(Named):
    """Signum: steps of one size, in the direction of the sign of the momentum.

    With ``q = clip(rescale * gradient)``:

    - with momentum: ``m = momentum * m - (1 - momentum) * (q + wd * w)``, ``w = (1 - lr * wd_lh) *
      w + lr * sign(m)``
    - without momentum: ``w = (1 - lr * (wd + wd_lh)) * w - lr * sign(q)``

    Source: Bernstein, Wang, Azizzadenesheli and Anandkumar, "signSGD: compressed optimisation for
    non-convex problems", 2018.

    Args:
        momentum: Decay of the momentum; if 0, the step uses the sign of the gradient.
        wd_lh: Decoupled weight decay.
        learning_rate: Step size; with a schedule, its base.
        wd: Weight decay.
        options: The options that every optimizer has, :class:`mxkv.optimizer.Options`.
    """

    _name = "signum"

    def __init__(
        self,
        *,
        momentum: float = 0.9,
        wd_lh: float = 0.0,
        learning_rate: float = 0.01,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...
