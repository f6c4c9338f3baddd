# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The class :class:`DCASGD`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._builtin_optimizer import Named
from .options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class DCASGD(Named):
    """Gradient descent with delay compensation: a gradient that was computed for an older weight ``p`` is
    corrected towards the present one.

    With ``q = clip(rescale * gradient)`` and ``u = -lr * (q + wd * w + lamda * q * q * (w - p))``: without
    momentum ``w = w + u``; with it ``m = momentum * m + u`` and ``w = w + m``. Then ``p`` is the weight from
    before the step.

    Source: Zheng and others, "Asynchronous stochastic gradient descent with delay compensation", 2017.

    Args:
        momentum: The share of the last step that is kept; 0 for none.
        lamda: Strength of the compensation.
        learning_rate: Size of a step; with a schedule, where that starts.
        wd: Weight decay.
        options: Those of every optimizer, :class:`mxkv.optimizer.Options`.
    """

    _name = "dcasgd"

    def __init__(
        self,
        *,
        momentum: float = 0.0,
        lamda: float = 0.04,
        learning_rate: float = 0.01,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...
