# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The class :class:`NAG`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._builtin_optimizer import Named
from .options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class NAG(Named):
    """Nesterov's accelerated gradient as an operator of MXNet computes it.

    With ``q = clip(rescale * gradient)``: ``m = momentum * m``, then ``w' = w - m + (momentum + 1) * (m - lr
    * (q + wd * w))`` and ``m = m - lr * (q + wd * w')``, with the new weight in the last term. Without
    momentum it is gradient descent.

    Source: the operator ``nag_mom_update`` of Apache MXNet 1.9.

    Args:
        momentum: The share of the last step that is kept; 0 for none.
        learning_rate: Size of a step; with a schedule, where that starts.
        wd: Weight decay.
        options: Those of every optimizer, :class:`mxkv.optimizer.Options`.
    """

    _name = "nag"

    def __init__(
        self,
        *,
        momentum: float = 0.0,
        learning_rate: float = 0.01,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...
