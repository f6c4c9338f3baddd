# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The class :class:`SGD`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._builtin_optimizer import Named
from .options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class SGD(Named):
    """Stochastic gradient descent, with or without momentum.

    With ``q = clip(rescale * gradient)``:

    - without momentum: ``w = (1 - lr * wd) * w - lr * q``
    - with momentum: ``m = momentum * m - lr * wd * w - lr * q``, ``w = w + m``

    Source: the operators ``sgd_update`` and ``sgd_mom_update`` of Apache MXNet 1.9.

    Args:
        momentum: Fraction of the last step that is added; 0 for no momentum.
        lazy_update: Whether a row-sparse gradient changes only its own rows of weight and
            state; otherwise missing rows count as 0.
        learning_rate: Step size; with a schedule, its base.
        wd: Weight decay.
        options: The options that every optimizer has, :class:`mxkv.optimizer.Options`.
    """

    _name = "sgd"

    def __init__(
        self,
        *,
        momentum: float = 0.0,
        lazy_update: bool = True,
        learning_rate: float = 0.01,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...
