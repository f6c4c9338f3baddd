# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The options of every built-in optimizer."""

from __future__ import annotations

from typing import Any, Mapping, TypedDict

from .._native import LrScheduler


class Options(TypedDict, total=False):
    """The options that every built-in optimizer takes.

    Args:
        rescale_grad: Factor on the gradient.
        clip_gradient: Bound on each element of the rescaled gradient; 0 for none.
        begin_num_update: Update count that keys start with.
        staleness_power: Stores on servers divide the learning rate by ``1 + staleness`` to this
            power.
        lr_scheduler: A schedule of the learning rate.
        lr_mult: Factors of the learning rate by key.
        wd_mult: Factors of the weight decay by key.
        multi_precision: Changes nothing: half precision always has a copy in ``float32``.
        lr: Another name of ``learning_rate``.
        weight_decay: Another name of ``wd``.
        eps: Another name of ``epsilon``.
        lambda1: Another name of ``lamda1``.
        num_update: Another name of ``begin_num_update``.
    """

    rescale_grad: float
    clip_gradient: float | None
    begin_num_update: int
    staleness_power: float
    lr_scheduler: LrScheduler | None
    lr_mult: Mapping[Any, float] | None
    wd_mult: Mapping[Any, float] | None
    multi_precision: bool
    lr: float
    weight_decay: float
    eps: float
    lambda1: float
    num_update: int
