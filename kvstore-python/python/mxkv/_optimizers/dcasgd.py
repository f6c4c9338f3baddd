# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The class :class:`DCASGD`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._builtin_optimizer import Named
from .options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


class DCASGD(Named):
    """Gradient descent with delay compensation: corrects gradients that belong to an older weight.

    With ``q = clip(rescale * gradient)``, the weight ``p`` before the previous step, and ``u = -lr
    * (q + wd * w + lamda * q * q * (w - p))``:

    - without momentum: ``w = w + u``
    - with momentum: ``m = momentum * m + u``, ``w = w + m``

    Source: Zheng and others, "Asynchronous stochastic gradient descent with delay compensation",
    2017.

    Args:
        momentum: Fraction of the last step that is added; 0 for no momentum.
        lamda: Strength of the compensation.
        learning_rate: Step size; with a schedule, its base.
        wd: Weight decay.
        options: The options that every optimizer has, :class:`mxkv.optimizer.Options`.
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
