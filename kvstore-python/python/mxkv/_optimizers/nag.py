# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The class :class:`NAG`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._builtin_optimizer import Named
from .options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class NAG(Named):
    """Nesterov's accelerated gradient, as the operator of MXNet computes it.

    With ``q = clip(rescale * gradient)`` and the new weight ``w'``:

    - ``m = momentum * m``
    - ``w' = w - m + (momentum + 1) * (m - lr * (q + wd * w))``
    - ``m = m - lr * (q + wd * w')``

    Without momentum, it is the same as ``sgd``.

    Source: the operator ``nag_mom_update`` of Apache MXNet 1.9.

    Args:
        momentum: Fraction of the last step that is added; 0 for no momentum.
        learning_rate: Step size; with a schedule, its base.
        wd: Weight decay.
        options: The options that every optimizer has, :class:`mxkv.optimizer.Options`.
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
