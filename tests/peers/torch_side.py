"""PyTorch without a store: the gradients of several replicas are summed, and an optimizer steps. There may be none."""

import os

from workloads import values

try:
    import torch
except ImportError:
    torch = None


def optimizer(weights, name, options):
    """Returns PyTorch's optimizer of this name, with options as MXNet calls them."""
    options = {"lr": options["learning_rate"], "weight_decay": options["wd"]} | (
        {"momentum": options["momentum"]} if "momentum" in options else {}
    )
    return {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[name](weights, **options)


class RunningTorch:
    """A workload that is pushes to whole values and an optimizer."""

    def __init__(self, workload):
        torch.set_num_threads(os.cpu_count())
        tensor = lambda seed, shape: torch.from_numpy(values(seed, shape))
        shapes = workload.shapes
        self.weights = [tensor(1 + i, shape) for i, shape in enumerate(shapes)]
        self.gradients = [
            [tensor(1000 * (1 + n) + i, shape) for n in range(workload.pushed)]
            for i, shape in enumerate(shapes)
        ]
        self.optimizer = optimizer(self.weights, *workload.optimizer)

    @staticmethod
    def is_there():
        return torch is not None

    @classmethod
    def can(cls, workload):
        return cls.is_there() and workload.torch_bar is not None

    def turn(self):
        for weight, gradients in zip(self.weights, self.gradients):
            weight.grad = torch.stack(gradients).sum(0)
        self.optimizer.step()

    def outputs(self):
        return [weight.numpy() for weight in self.weights]
