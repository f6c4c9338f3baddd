# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The class :class:`Lion`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._builtin_optimizer import Named
from .options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Lion(Named):
    """Lion: steps of one size, in the direction of the sign of a mean gradient.

    With ``q = clip(rescale * gradient)``:

    - ``c = beta1 * m + (1 - beta1) * q``
    - ``w = w - lr * (sign(c) + wd * w)``
    - ``m = beta2 * m + (1 - beta2) * q``

    The state is half of Adam's. The authors recommend a third to a tenth of the learning rate of
    AdamW, and a weight decay that is larger by the same factor.

    Source: Chen et al., "Symbolic discovery of optimization algorithms", 2023, algorithm 2.

    Args:
        beta1: Weight of the mean gradient in the direction of a step.
        beta2: Decay of the mean gradient.
        learning_rate: Step size; with a schedule, its base.
        wd: Weight decay.
        options: The options that every optimizer has, :class:`mxkv.optimizer.Options`.
    """

    _name = "lion"

    def __init__(
        self,
        *,
        beta1: float = 0.9,
        beta2: float = 0.99,
        learning_rate: float = 0.0001,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...
