"""PyTorch without a store: sums the replicas' gradients, steps, and copies the weights to the
replicas.

PyTorch may be missing."""

import itertools
import math
import os
from typing import NamedTuple

import numpy as np

from workloads import values

# Makes PyTorch request huge pages, as NumPy does.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
try:
    import torch
except ImportError:
    torch = None


class Form(NamedTuple):
    """The form in which PyTorch does each part of a workload. The names are those in `SUMS`,
    `STEPS` and `PULLS`."""

    sum: str
    step: str | None
    pull: str | None

    def __str__(self):
        names = [self.sum, self.step and f"{self.step} step", self.pull and f"{self.pull} pull"]
        return ", ".join(name for name in names if name)


class Inputs:
    """The gradients of a workload. Every form reads the same tensors."""

    def __init__(self, workload):
        tensor = lambda n, i, shape: torch.from_numpy(values(1000 * (1 + n) + i, shape))
        shapes, count = workload.shapes, workload.pushed
        self.by_key = [
            [tensor(n, i, shape) for n in range(count)] for i, shape in enumerate(shapes)
        ]
        self.by_replica = [list(gradients) for gradients in zip(*self.by_key)]
        # The gradients of a key stacked into one tensor, for `sum(out=)`.
        self.together = [torch.stack(gradients) for gradients in self.by_key]


def empty(shape):
    return torch.from_numpy(np.empty(shape, np.float32))


# Sums take the inputs and one kept tensor per key, and return the tensors with the sums.


def stack_sums(inputs, _kept):
    """Not fused. Allocates a new tensor for every sum."""
    return [torch.stack(gradients).sum(0) for gradients in inputs.by_key]


def add_sums(inputs, kept):
    for total, (first, second, *others) in zip(kept, inputs.by_key):
        torch.add(first, second, out=total)
        for gradient in others:
            total.add_(gradient)
    return kept


def foreach_sums(inputs, kept):
    first, second, *others = inputs.by_replica
    for total, one, other in zip(kept, first, second):  # `_foreach_add` has no `out`
        torch.add(one, other, out=total)
    for gradients in others:
        torch._foreach_add_(kept, gradients)
    return kept


def row_sums(inputs, kept):
    for total, gradients in zip(kept, inputs.together):
        torch.sum(gradients, 0, out=total)
    return kept


SUMS = {
    "stack().sum": stack_sums,
    "add_": add_sums,
    "_foreach_add_": foreach_sums,
    "sum(out=)": row_sums,
}

# Optimizers: the options of `torch.optim`.
STEPS = {"default": {}, "foreach": {"foreach": True}, "fused": {"fused": True}}


def optimizer(weights, workload, step):
    """Returns PyTorch's optimizer of a workload, whose options have MXNet's names."""
    name, given = workload.optimizer
    options = {"lr": given["learning_rate"], "weight_decay": given["wd"]}
    options |= {"momentum": given["momentum"]} if "momentum" in given else {}
    return {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[name](
        weights, **options, **STEPS[step]
    )


def step_error(workload, step):
    """Returns the reason why this PyTorch cannot run the step on the CPU, or `None`."""
    weight = torch.ones(2)
    weight.grad = torch.ones(2)
    try:
        optimizer([weight], workload, step).step()
    except (TypeError, ValueError, RuntimeError) as error:
        return str(error)
    return None


# Pulls take the weights and a list of tensors per replica.


def copy_pull(weights, replicas):
    for weight, *outputs in zip(weights, *replicas):
        for output in outputs:
            output.copy_(weight)


def foreach_pull(weights, replicas):
    for outputs in replicas:
        torch._foreach_copy_(outputs, weights)


PULLS = {"copy_": copy_pull, "_foreach_copy_": foreach_pull}


def pull_error(pull):
    """Returns the reason why this PyTorch cannot pull in this form, or `None`."""
    try:
        PULLS[pull]([torch.ones(2)], [[torch.ones(2)]])
    except AttributeError as error:
        return str(error)
    return None


def is_installed():
    return torch is not None


def can(workload):
    """Returns whether PyTorch can run a workload."""
    return is_installed() and workload.has_torch


def forms(workload):
    """Returns every form that this PyTorch supports, and a line for each missing part."""
    steps = (
        {step: step_error(workload, step) for step in STEPS} if workload.optimizer else {None: None}
    )
    pulls = {pull: pull_error(pull) for pull in PULLS} if workload.pulled else {None: None}
    names = itertools.product(SUMS, available(steps), available(pulls))
    missing = [f"{step} step: {error}" for step, error in steps.items() if error]
    missing += [f"{pull} pull: {error}" for pull, error in pulls.items() if error]
    return [Form(*parts) for parts in names], missing


def available(errors):
    return [name for name, error in errors.items() if error is None]


class RunningTorch:
    """A workload of dense values in one form."""

    def __init__(self, workload, inputs, form):
        torch.set_num_threads(os.cpu_count())
        self.inputs = inputs
        self.sums, self.pull = SUMS[form.sum], PULLS.get(form.pull)
        shapes = workload.shapes
        self.kept = [empty(shape) for shape in shapes]
        self.weights = [torch.from_numpy(values(1 + i, shape)) for i, shape in enumerate(shapes)]
        self.optimizer = form.step and optimizer(self.weights, workload, form.step)
        self.replicas = [[empty(shape) for shape in shapes] for _ in range(workload.pulled)]

    def turn(self):
        """Runs the part that is timed."""
        sums = self.sums(self.inputs, self.kept)
        if self.optimizer:
            for weight, total in zip(self.weights, sums):
                weight.grad = total
            self.optimizer.step()
        else:
            self.weights = sums
        if self.pull:
            self.pull(self.weights, self.replicas)

    def outputs(self):
        """Returns the same as `Running.outputs`: the outputs of each key, or the value of each."""
        outputs = zip(*self.replicas) if self.pull else [[weight] for weight in self.weights]
        return [output.numpy() for outputs_of_key in outputs for output in outputs_of_key]


# One pass over a key for `torch.compile`: the sum and the optimizer's formula.


def compiled_sum(total, gradients):
    total.copy_(sum(gradients))


def compiled_sgd(weight, momentum, gradients, decay, factor, rate):
    momentum.mul_(factor).add_(sum(gradients) + decay * weight)
    weight.sub_(rate * momentum)


def compiled_adam(weight, mean, variance, gradients, decay, rate):
    gradient = sum(gradients) + decay * weight
    mean.mul_(0.9).add_(0.1 * gradient)
    variance.mul_(0.999).add_(0.001 * gradient * gradient)
    weight.sub_(rate * mean / (variance.sqrt() + 1e-8))


def compile_error():
    """Returns the reason why this PyTorch cannot compile here, or `None`."""
    total = torch.zeros(64)
    try:
        torch.compile(compiled_sum)(total, [torch.ones(64)] * 2)
    except Exception as error:  # any kind of error: no compiler, no Python headers, another system
        return str(error).strip().partition("\n")[0]
    return None


class RunningCompiled:
    """A workload of dense values, in one compiled pass per key."""

    def __init__(self, workload, inputs):
        torch.set_num_threads(os.cpu_count())
        # Flat tensors, so that one compiled function serves all shapes.
        flat = lambda tensor: tensor.view(-1)
        self.shapes = workload.shapes
        self.gradients = [[flat(gradient) for gradient in gradients] for gradients in inputs.by_key]
        self.weights = [flat(torch.from_numpy(values(1 + i, s))) for i, s in enumerate(self.shapes)]
        self.replicas = [
            [flat(empty(shape)) for shape in self.shapes] for _ in range(workload.pulled)
        ]
        self.name, self.options = workload.optimizer or ("sum", {})
        num_states = {"sum": 0, "sgd": 1, "adam": 2}[self.name]
        zeros = lambda shape: flat(torch.from_numpy(np.zeros(shape, np.float32)))
        self.states = [[zeros(shape) for _ in range(num_states)] for shape in self.shapes]
        function = {"sum": compiled_sum, "sgd": compiled_sgd, "adam": compiled_adam}[self.name]
        self.update = torch.compile(function, dynamic=True)
        self.num_turns = 0

    def turn(self):
        """Runs the part that is timed."""
        self.num_turns += 1
        numbers = self.numbers()
        for weight, states, gradients in zip(self.weights, self.states, self.gradients):
            self.update(weight, *states, gradients, *numbers)
        if self.replicas:
            copy_pull(self.weights, self.replicas)

    def numbers(self):
        """Returns the last arguments of the function."""
        options, turn = self.options, self.num_turns
        if self.name == "sum":
            return []
        if self.name == "sgd":
            return [options["wd"], options["momentum"], options["learning_rate"]]
        # A tensor, because a changing Python number triggers a recompilation.
        rate = options["learning_rate"] * math.sqrt(1 - 0.999**turn) / (1 - 0.9**turn)
        return [options["wd"], torch.tensor(rate)]

    def outputs(self):
        """Returns the same as `RunningTorch.outputs`."""
        outputs = list(zip(*self.replicas)) or [[weight] for weight in self.weights]
        pairs = zip(self.shapes, outputs)
        return [
            output.view(shape).numpy()
            for shape, outputs_of_key in pairs
            for output in outputs_of_key
        ]
