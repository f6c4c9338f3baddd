"""Optimizers compared with the algorithms of their papers in NumPy, and with optax if installed."""

from typing import Any, Callable

import numpy
import pytest

import mxkv as mx

SHAPE = (3, 7)
#: Options that every optimizer has.
COMMON = [
    {},
    {"learning_rate": 0.1, "wd": 0.05},
    {"rescale_grad": 0.5, "clip_gradient": 0.3},
]


class AdamW:
    """Loshchilov and Hutter, "Decoupled weight decay regularization", 2019, algorithm 2."""

    own = [{}, {"beta1": 0.5, "beta2": 0.9, "epsilon": 1e-3}]

    def __init__(self, weight):
        self.m, self.v = numpy.zeros_like(weight), numpy.zeros_like(weight)

    def step(self, w, g, t, *, learning_rate, wd, beta1, beta2, epsilon):
        self.m = beta1 * self.m + (1 - beta1) * g
        self.v = beta2 * self.v + (1 - beta2) * g**2
        m, v = self.m / (1 - beta1**t), self.v / (1 - beta2**t)
        return w - learning_rate * (m / (numpy.sqrt(v) + epsilon) + wd * w)

    @staticmethod
    def optax(optax, *, learning_rate, wd, beta1, beta2, epsilon):
        return optax.adamw(learning_rate, b1=beta1, b2=beta2, eps=epsilon, weight_decay=wd)


class Lion:
    """Chen et al., "Symbolic discovery of optimization algorithms", 2023, algorithm 2."""

    own = [{}, {"beta1": 0.5, "beta2": 0.9}]

    def __init__(self, weight):
        self.m = numpy.zeros_like(weight)

    def step(self, w, g, t, *, learning_rate, wd, beta1, beta2):
        update = numpy.sign(beta1 * self.m + (1 - beta1) * g)
        self.m = beta2 * self.m + (1 - beta2) * g
        return w - learning_rate * (update + wd * w)

    @staticmethod
    def optax(optax, *, learning_rate, wd, beta1, beta2):
        return optax.lion(learning_rate, b1=beta1, b2=beta2, weight_decay=wd)


class AdaBelief:
    """Zhuang et al., "AdaBelief optimizer: adapting stepsizes by the belief in observed gradients",
    2020, algorithm 2.
    """

    own = [{}, {"beta1": 0.5, "beta2": 0.9, "epsilon": 1e-3}]

    def __init__(self, weight):
        self.m, self.s = numpy.zeros_like(weight), numpy.zeros_like(weight)

    def step(self, w, g, t, *, learning_rate, wd, beta1, beta2, epsilon):
        self.m = beta1 * self.m + (1 - beta1) * g
        self.s = beta2 * self.s + (1 - beta2) * (g - self.m) ** 2 + epsilon
        m, s = self.m / (1 - beta1**t), self.s / (1 - beta2**t)
        return w - learning_rate * (m / (numpy.sqrt(s) + epsilon) + wd * w)

    @staticmethod
    def optax(optax, *, learning_rate, wd, beta1, beta2, epsilon):
        return optax.chain(
            optax.scale_by_belief(b1=beta1, b2=beta2, eps=epsilon, eps_root=epsilon),
            optax.add_decayed_weights(wd),
            optax.scale(-learning_rate),
        )


class Lamb:
    """You et al., "Large batch optimization for deep learning", 2020, algorithm 2, for one layer.
    """

    own = [{}, {"beta1": 0.5, "beta2": 0.9, "epsilon": 1e-3}]

    def __init__(self, weight):
        self.m, self.v = numpy.zeros_like(weight), numpy.zeros_like(weight)

    def step(self, w, g, t, *, learning_rate, wd, beta1, beta2, epsilon, **_):
        self.m = beta1 * self.m + (1 - beta1) * g
        self.v = beta2 * self.v + (1 - beta2) * g**2
        m, v = self.m / (1 - beta1**t), self.v / (1 - beta2**t)
        direction = m / (numpy.sqrt(v) + epsilon) + wd * w
        return w - learning_rate * numpy.linalg.norm(w) / numpy.linalg.norm(direction) * direction

    @staticmethod
    def optax(optax, *, learning_rate, wd, beta1, beta2, epsilon, **_):
        return optax.lamb(learning_rate, b1=beta1, b2=beta2, eps=epsilon, weight_decay=wd)


PAPERS = {"adamw": AdamW, "lion": Lion, "adabelief": AdaBelief, "lamb": Lamb}
CASES = [
    pytest.param(name, {**own, **common}, id=f"{name}-{index}")
    for name, paper in PAPERS.items()
    for index, (own, common) in enumerate((own, common) for own in paper.own for common in COMMON)
]


def numbers(seed: int) -> Any:
    return numpy.random.default_rng(seed).normal(size=SHAPE)


def hyper_parameters(name: str, options: dict[str, float]) -> dict[str, float]:
    """Returns the hyper-parameters of the algorithm."""
    values = mx.optimizer.create(name, **options).hyper_parameters
    others = {"rescale_grad", "clip_gradient", "begin_num_update", "staleness_power"}
    return {name: value for name, value in values.items() if name not in others}


def clipped(gradient: Any, options: dict[str, float]) -> Any:
    """Returns the gradient that the algorithm receives: rescaled and clipped."""
    bound = options.get("clip_gradient", numpy.inf)
    return numpy.clip(gradient * options.get("rescale_grad", 1), -bound, bound)


def weights_of_store(name: str, options: dict[str, float], dtype: str) -> list[Any]:
    """Returns the weights in a store after each of 11 steps."""
    kv = mx.kv.create()
    kv.init("w", numbers(0).astype(dtype))
    kv.set_optimizer(mx.optimizer.create(name, **options))
    weights = []
    for seed in range(1, 12):
        kv.push("w", numbers(seed).astype(dtype))
        weights.append(kv.pull("w").asnumpy())
    return weights


def weights_of(step: Callable[[Any, Any, int], Any], options: dict[str, float]) -> list[Any]:
    """Returns the weights of a Python function after each of 11 steps."""
    weight, weights = numbers(0), []
    for t in range(1, 12):
        weight = numpy.asarray(step(weight, clipped(numbers(t), options), t))
        weights.append(weight)
    return weights


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_store_agrees_with_the_paper(name, options):
    paper = PAPERS[name](numbers(0))
    expected = weights_of(
        lambda w, g, t: paper.step(w, g, t, **hyper_parameters(name, options)), options
    )
    numpy.testing.assert_allclose(weights_of_store(name, options, "float64"), expected, rtol=1e-9)
    numpy.testing.assert_allclose(
        weights_of_store(name, options, "float32"), expected, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_store_agrees_with_optax(name, options):
    optax = pytest.importorskip("optax", reason="optax is not installed")
    jax = pytest.importorskip("jax")
    with jax.experimental.enable_x64():
        optimizer = PAPERS[name].optax(optax, **hyper_parameters(name, options))
        state = optimizer.init(numbers(0))

        def step(weight, gradient, _):
            nonlocal state
            update, state = optimizer.update(gradient, state, weight)
            return optax.apply_updates(weight, update)

        expected = weights_of(step, options)
    numpy.testing.assert_allclose(weights_of_store(name, options, "float64"), expected, rtol=1e-9)
