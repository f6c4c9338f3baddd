# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The class :class:`GroupAdaGrad`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._builtin_optimizer import Named
from .options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class GroupAdaGrad(Named):
    """GroupAdaGrad: AdaGrad with one learning rate for each row of the weight.

    With ``q = clip(rescale * gradient)``, and for each row of the weight, along its first axis: ``h = h +
    mean(q^2)`` over the row and ``w = w - lr * (q / sqrt(h + epsilon) + wd * w)``.

    Its state is one number for each row.

    Source: the operator ``group_adagrad_update`` of Apache MXNet 1.9, without weight decay, after Duchi,
    Hazan and Singer, "Adaptive subgradient methods for online learning and stochastic optimization", 2011.

    Args:
        epsilon: Is added so that the quotient is finite.
        lazy_update: Whether a gradient of some rows changes weight and state in those rows only;
            otherwise the other rows count as 0.
        learning_rate: Size of a step; with a schedule, where that starts.
        wd: Weight decay.
        options: Those of every optimizer, :class:`mxkv.optimizer.Options`.
    """

    _name = "groupadagrad"

    def __init__(
        self,
        *,
        epsilon: float = 1e-5,
        lazy_update: bool = True,
        learning_rate: float = 0.01,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...
