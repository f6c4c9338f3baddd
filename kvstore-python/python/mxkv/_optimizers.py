# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The classes of the built-in optimizers, which :mod:`mxkv.optimizer` offers.

In the formulas ``w`` is the weight, ``lr`` the learning rate, ``rescale`` is ``rescale_grad``, and ``clip`` bounds every
element by ``clip_gradient``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, TypedDict

from ._builtin_optimizer import Named
from ._native import LrScheduler

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "AdaBelief",
    "AdaDelta",
    "AdaGrad",
    "Adam",
    "AdamW",
    "Adamax",
    "DCASGD",
    "FTML",
    "Ftrl",
    "Lion",
    "NAG",
    "Nadam",
    "Nesterov",
    "Options",
    "RMSProp",
    "SGD",
    "SGLD",
    "Signum",
]


class Options(TypedDict, total=False):
    """The options that every built-in optimizer takes.

    Args:
        rescale_grad: Factor on the gradient.
        clip_gradient: Bound on each element of the rescaled gradient; 0 for none.
        begin_num_update: How many updates a key is taken to have had before.
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
    lr_scheduler: LrScheduler | None
    lr_mult: Mapping[Any, float] | None
    wd_mult: Mapping[Any, float] | None
    multi_precision: bool
    lr: float
    weight_decay: float
    eps: float
    lambda1: float
    num_update: int


class SGD(Named):
    """Stochastic gradient descent, with and without momentum.

    With ``q = clip(rescale * gradient)``:

    - without momentum ``w = (1 - lr * wd) * w - lr * q``;
    - with momentum ``m = momentum * m - lr * wd * w - lr * q`` and ``w = w + m``.

    Source: the operators ``sgd_update`` and ``sgd_mom_update`` of Apache MXNet 1.9.

    Args:
        momentum: The share of the last step that is kept; 0 for none.
        lazy_update: Whether a gradient of some rows changes weight and state in those rows only;
            otherwise the other rows count as 0.
        learning_rate: Size of a step; with a schedule, where that starts.
        wd: Weight decay.
        options: Those of every optimizer, :class:`mxkv.optimizer.Options`.
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


class Nesterov(Named):
    """Nesterov's accelerated gradient as most libraries compute it.

    With ``q = clip(rescale * gradient)`` and ``r = q + wd * w``: ``m = momentum * m + r`` and ``w = w - lr *
    (r + momentum * m)``. Without momentum it is gradient descent.

    Source: Sutskever, Martens, Dahl and Hinton, "On the importance of initialization and momentum in deep
    learning", 2013.

    Args:
        momentum: The share of the last gradients that is kept; 0 for none.
        learning_rate: Size of a step; with a schedule, where that starts.
        wd: Weight decay.
        options: Those of every optimizer, :class:`mxkv.optimizer.Options`.
    """

    _name = "nesterov"

    def __init__(
        self,
        *,
        momentum: float = 0.0,
        learning_rate: float = 0.01,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...


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


class SGLD(Named):
    """Stochastic gradient Langevin dynamics: gradient descent with noise, so that the weights become samples
    of the posterior.

    With ``q = clip(rescale * gradient)``: ``w = w - lr / 2 * (q + wd * w) + sqrt(lr) * e``, where ``e`` is
    standard normal. The noise is a function of the hyper-parameter ``seed``, the key, the number of the
    update and the element's index, so it does not depend on threads or on other keys.

    Source: Welling and Teh, "Bayesian learning via stochastic gradient Langevin dynamics", 2011.

    Args:
        seed: Chooses the noise.
        learning_rate: Size of a step; with a schedule, where that starts.
        wd: Weight decay.
        options: Those of every optimizer, :class:`mxkv.optimizer.Options`.
    """

    _name = "sgld"

    def __init__(
        self,
        *,
        seed: int = 0,
        learning_rate: float = 0.01,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...


class Adam(Named):
    """Adam: steps of the mean gradient over the root of the mean squared gradient.

    With ``q = clip(rescale * gradient + wd * w)``, ``t`` the number of the update and ``b1 = beta1 *
    decay_factor^(t - 1)``: ``m = b1 * m + (1 - b1) * q``, ``v = beta2 * v + (1 - beta2) * q^2`` and ``w = w -
    lr * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon)``.

    With ``decoupled_wd`` the weight decay does not enter ``q``; the step subtracts ``lr * wd * w`` instead.
    With ``pytorch_epsilon`` the divisor is ``sqrt(v / (1 - beta2^t)) + epsilon``, and the step size before it
    ``lr / (1 - beta1^t)``.

    Source: Kingma and Ba, "Adam: a method for stochastic optimization", 2015, the efficient order of section
    2.

    Args:
        beta1: Decay of the mean of the gradients.
        beta2: Decay of the mean of their squares.
        epsilon: Is added so that the quotient is finite.
        decay_factor: ``beta1`` is multiplied by it after each update.
        decoupled_wd: Whether the weight decay is subtracted from the weight, and not part of the
            gradient.
        pytorch_epsilon: Whether epsilon is added to the divisor when that is complete, as PyTorch does.
        lazy_update: Whether a gradient of some rows changes weight and state in those rows only;
            otherwise the other rows count as 0.
        learning_rate: Size of a step; with a schedule, where that starts.
        wd: Weight decay.
        options: Those of every optimizer, :class:`mxkv.optimizer.Options`.
    """

    _name = "adam"

    def __init__(
        self,
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        decay_factor: float = 1.0,
        decoupled_wd: bool = False,
        pytorch_epsilon: bool = False,
        lazy_update: bool = True,
        learning_rate: float = 0.001,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...


class AdamW(Named):
    """AdamW: Adam with decoupled weight decay.

    With ``q = clip(rescale * gradient)`` and ``t`` the number of the update: ``m = beta1 * m + (1 - beta1) *
    q``, ``v = beta2 * v + (1 - beta2) * q^2`` and ``w = w - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 -
    beta2^t)) + epsilon) - lr * wd * w``.

    Source: Loshchilov and Hutter, "Decoupled weight decay regularization", 2019.

    Args:
        beta1: Decay of the mean of the gradients.
        beta2: Decay of the mean of their squares.
        epsilon: Is added so that the quotient is finite.
        learning_rate: Size of a step; with a schedule, where that starts.
        wd: Weight decay.
        options: Those of every optimizer, :class:`mxkv.optimizer.Options`.
    """

    _name = "adamw"

    def __init__(
        self,
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        learning_rate: float = 0.001,
        wd: float = 0.01,
        **options: Unpack[Options],
    ) -> None: ...


class AdaGrad(Named):
    """AdaGrad: each element's steps shrink with the sum of its squared gradients.

    With ``q = clip(rescale * gradient)``: ``h = h + q^2`` and ``w = w - lr * (q / sqrt(h + epsilon) + wd *
    w)``.

    Source: Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and stochastic
    optimization", 2011.

    Args:
        epsilon: Is added so that the quotient is finite.
        lazy_update: Whether a gradient of some rows changes weight and state in those rows only;
            otherwise the other rows count as 0.
        learning_rate: Size of a step; with a schedule, where that starts.
        wd: Weight decay.
        options: Those of every optimizer, :class:`mxkv.optimizer.Options`.
    """

    _name = "adagrad"

    def __init__(
        self,
        *,
        epsilon: float = 1e-7,
        lazy_update: bool = True,
        learning_rate: float = 0.01,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...


class AdaDelta(Named):
    """AdaDelta: steps measured by the size of earlier steps, without a learning rate.

    With ``q = clip(rescale * gradient)``: ``a = rho * a + (1 - rho) * q^2``, ``d = sqrt(D + epsilon) / sqrt(a
    + epsilon) * q``, ``D = rho * D + (1 - rho) * d^2`` and ``w = w - (d + wd * w)``.

    Source: Zeiler, "ADADELTA: an adaptive learning rate method", 2012.

    Args:
        rho: Decay of the means of the squared gradients and of the squared steps.
        epsilon: Is added so that the quotient is finite.
        learning_rate: Size of a step; with a schedule, where that starts.
        wd: Weight decay.
        options: Those of every optimizer, :class:`mxkv.optimizer.Options`.
    """

    _name = "adadelta"

    def __init__(
        self,
        *,
        rho: float = 0.9,
        epsilon: float = 1e-5,
        learning_rate: float = 0.01,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...


class RMSProp(Named):
    """RMSProp: steps divided by the root of the mean squared gradient, plain or centered.

    With ``q = clip(rescale * gradient + wd * w)`` and ``n = gamma1 * n + (1 - gamma1) * q^2``:

    - plain ``w = w - lr * q / sqrt(n + epsilon)``;
    - centered also ``G = gamma1 * G + (1 - gamma1) * q``, ``d = gamma2 * d - lr * q / sqrt(n - G^2 +
      epsilon)`` and ``w = w + d``. The variance ``n - G^2`` counts as 0 when rounding makes it negative.

    With ``decoupled_wd`` the weight decay does not enter ``q``: ``wd * w`` is added to the quotient instead.
    With ``clip_weights`` above 0 the new weight is moved into that bound. With ``pytorch_epsilon`` epsilon is
    added to the root, not under it.

    Source: Tieleman and Hinton, "Neural networks for machine learning", lecture 6.5, 2012; Graves,
    "Generating sequences with recurrent neural networks", 2013, equations 38 to 45.

    Args:
        gamma1: Decay of the means of the gradients and of their squares.
        gamma2: The share of the last step that is kept, if ``centered``.
        epsilon: Is added so that the quotient is finite.
        centered: Whether the mean of the gradients is subtracted: the form of Graves.
        clip_weights: Bound on each element of the new weight; 0 for none.
        decoupled_wd: Whether the weight decay is subtracted from the weight, and not part of the
            gradient.
        pytorch_epsilon: Whether epsilon is added to the divisor when that is complete, as PyTorch does.
        learning_rate: Size of a step; with a schedule, where that starts.
        wd: Weight decay.
        options: Those of every optimizer, :class:`mxkv.optimizer.Options`.
    """

    _name = "rmsprop"

    def __init__(
        self,
        *,
        gamma1: float = 0.9,
        gamma2: float = 0.9,
        epsilon: float = 1e-8,
        centered: bool = False,
        clip_weights: float = 0.0,
        decoupled_wd: bool = False,
        pytorch_epsilon: bool = False,
        learning_rate: float = 0.001,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...


class Ftrl(Named):
    """Follow the regularized leader, per coordinate: sparse weights for linear models.

    With ``q = clip(rescale * gradient)``: ``z = z + q - (sqrt(n + q^2) - sqrt(n)) * w / lr``, ``n = n +
    q^2``, and ``w = (sign(z) * lamda1 - z) / ((beta + sqrt(n)) / lr + wd)`` where ``|z| > lamda1``, else 0.

    An update with learning rate 0 is skipped: weight and state do not change.

    Source: McMahan and others, "Ad click prediction: a view from the trenches", 2013.

    Args:
        lamda1: Strength of the L1 penalty.
        beta: The greater, the smaller the first steps.
        lazy_update: Whether a gradient of some rows changes weight and state in those rows only;
            otherwise the other rows count as 0.
        learning_rate: Size of a step; with a schedule, where that starts.
        wd: Weight decay.
        options: Those of every optimizer, :class:`mxkv.optimizer.Options`.
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


class Adamax(Named):
    """Adamax: Adam with the infinity norm in place of the variance.

    With ``q = clip(rescale * gradient + wd * w)``: ``m = beta1 * m + (1 - beta1) * q``, ``u = max(beta2 * u,
    |q|)`` and ``w = w - lr / (1 - beta1^t) * m / u``. Where ``u`` is 0 there has been no gradient yet, and
    the weight stays.

    Source: Kingma and Ba, "Adam: a method for stochastic optimization", 2015, algorithm 2.

    Args:
        beta1: Decay of the mean of the gradients.
        beta2: Decay of the greatest gradient.
        learning_rate: Size of a step; with a schedule, where that starts.
        wd: Weight decay.
        options: Those of every optimizer, :class:`mxkv.optimizer.Options`.
    """

    _name = "adamax"

    def __init__(
        self,
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        learning_rate: float = 0.002,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...


class Nadam(Named):
    """Nadam: Adam with Nesterov momentum, whose momentum grows on a schedule.

    With ``q = clip(rescale * gradient + wd * w)``, ``t`` the number of the update and ``f(t) = beta1 * (1 -
    0.5 * 0.96^(t * schedule_decay))``; ``S`` is the product of ``f(1) .. f(t)`` and ``S' = S * f(t + 1)``:
    ``m = beta1 * m + (1 - beta1) * q``, ``v = beta2 * v + (1 - beta2) * q^2`` and ``w = w - lr * ((1 - f(t))
    * q / (1 - S) + f(t + 1) * m / (1 - S')) / (sqrt(v / (1 - beta2^t)) + epsilon)``.

    Source: Dozat, "Incorporating Nesterov momentum into Adam", 2016.

    Args:
        beta1: Decay of the mean of the gradients.
        beta2: Decay of the mean of their squares.
        epsilon: Is added so that the quotient is finite.
        schedule_decay: How fast the momentum approaches ``beta1``.
        learning_rate: Size of a step; with a schedule, where that starts.
        wd: Weight decay.
        options: Those of every optimizer, :class:`mxkv.optimizer.Options`.
    """

    _name = "nadam"

    def __init__(
        self,
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        schedule_decay: float = 0.004,
        learning_rate: float = 0.001,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...


class Signum(Named):
    """Signum: steps of one size, in the direction of the momentum's sign.

    With ``q = clip(rescale * gradient)``:

    - with momentum ``m = momentum * m - (1 - momentum) * (q + wd * w)`` and ``w = (1 - lr * wd_lh) * w + lr *
      sign(m)``;
    - without ``w = (1 - lr * (wd + wd_lh)) * w - lr * sign(q)``.

    Source: Bernstein, Wang, Azizzadenesheli and Anandkumar, "signSGD: compressed optimisation for non-convex
    problems", 2018.

    Args:
        momentum: The share of the last momentum that is kept; with 0 the step has the sign of the
            gradient.
        wd_lh: Weight decay beside the gradient.
        learning_rate: Size of a step; with a schedule, where that starts.
        wd: Weight decay.
        options: Those of every optimizer, :class:`mxkv.optimizer.Options`.
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


class FTML(Named):
    """Follow the moving leader.

    With ``q = clip(rescale * gradient + wd * w)``: ``v = beta2 * v + (1 - beta2) * q^2``, ``D = (1 - beta1^t)
    / lr * (sqrt(v / (1 - beta2^t)) + epsilon)``, ``z = beta1 * z + (1 - beta1) * q - (D - beta1 * d) * w``,
    then ``d = D`` and ``w = -z / d``.

    An update with learning rate 0 is skipped: weight, state and ``t`` do not change.

    Source: Zheng and Kwok, "Follow the moving leader in deep learning", 2017.

    Args:
        beta1: Decay of the mean of the gradients.
        beta2: Decay of the mean of their squares.
        epsilon: Is added so that the quotient is finite.
        learning_rate: Size of a step; with a schedule, where that starts.
        wd: Weight decay.
        options: Those of every optimizer, :class:`mxkv.optimizer.Options`.
    """

    _name = "ftml"

    def __init__(
        self,
        *,
        beta1: float = 0.6,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        learning_rate: float = 0.01,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...


class Lion(Named):
    """Lion: steps of one size, in the direction of the sign of a mean gradient.

    With ``q = clip(rescale * gradient)``: ``c = beta1 * m + (1 - beta1) * q``, ``w = w - lr * (sign(c) + wd *
    w)`` and ``m = beta2 * m + (1 - beta2) * q``.

    Its state is half of Adam's. The authors recommend a third to a tenth of the learning rate of AdamW, and a
    weight decay that is as much larger.

    Source: Chen et al., "Symbolic discovery of optimization algorithms", 2023, algorithm 2.

    Args:
        beta1: Decay of the mean of the gradients.
        beta2: Decay of the mean of their squares.
        learning_rate: Size of a step; with a schedule, where that starts.
        wd: Weight decay.
        options: Those of every optimizer, :class:`mxkv.optimizer.Options`.
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


class AdaBelief(Named):
    """AdaBelief: Adam with the variance of the gradient around its mean, so that a gradient as it was
    expected makes a large step.

    With ``q = clip(rescale * gradient)`` and ``t`` the number of the update: ``m = beta1 * m + (1 - beta1) *
    q``, ``s = beta2 * s + (1 - beta2) * (q - m)^2 + epsilon`` and ``w = (1 - lr * wd) * w - lr * (m / (1 -
    beta1^t)) / (sqrt(s / (1 - beta2^t)) + epsilon)``.

    Source: Zhuang et al., "AdaBelief optimizer: adapting stepsizes by the belief in observed gradients",
    2020, algorithm 2, with decoupled weight decay.

    Args:
        beta1: Decay of the mean of the gradients.
        beta2: Decay of the mean of their squares.
        epsilon: Is added so that the quotient is finite.
        learning_rate: Size of a step; with a schedule, where that starts.
        wd: Weight decay.
        options: Those of every optimizer, :class:`mxkv.optimizer.Options`.
    """

    _name = "adabelief"

    def __init__(
        self,
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        learning_rate: float = 0.001,
        wd: float = 0.0,
        **options: Unpack[Options],
    ) -> None: ...
