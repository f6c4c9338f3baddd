# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The class :class:`Ftrl`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._builtin_optimizer import Named
from .options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Ftrl(Named):
    """FTRL: follows the regularized leader, per coordinate. Gives sparse weights of linear models.

    With ``q = clip(rescale * gradient)``:

    - ``z = z + q - (sqrt(n + q^2) - sqrt(n)) * w / lr``
    - ``n = n + q^2``
    - ``w = (sign(z) * lamda1 - z) / ((beta + sqrt(n)) / lr + wd)`` if ``|z| > lamda1``, else 0

    With learning rate 0, an update changes neither weight nor state.

    Source: McMahan and others, "Ad click prediction: a view from the trenches", 2013.

    Args:
        lamda1: Strength of the L1 penalty.
        beta: A larger value makes the first steps smaller.
        lazy_update: Whether a row-sparse gradient changes only its own rows of weight and
            state; otherwise missing rows count as 0.
        learning_rate: Step size; with a schedule, its base.
        wd: Weight decay.
        options: The options that every optimizer has, :class:`mxkv.optimizer.Options`.
    """

    _name = "ftrl"

    def __init__(
        self,
        *,
        lamda1: float = 0.01,
        beta: float = 1.0,
        lazy_update: bool = True,
        learning_rate: float = 0.1,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...
