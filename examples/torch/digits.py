"""Trains a network on handwritten digits, with four replicas and a store, and with plain PyTorch.

    python digits.py [EPOCHS]

Every replica computes the gradients of its part of a batch. The store sums them and steps, and the
replicas pull the new weights. The store reads the gradients and writes the parameters in place.
"""

import gzip
import statistics
import sys
import time
from pathlib import Path

import mxkv as mx
import torch
from torch import nn
from torch.nn import functional

DIGITS = Path(__file__).parents[1] / "resume/resources/digits.csv.gz"
SEED = 1998
NUM_REPLICAS = 4
BATCH_SIZE = 32
LEARNING_RATE, MOMENTUM = 0.1, 0.9


def network():
    """Returns a network with one hidden layer, always with the same weights."""
    torch.manual_seed(SEED)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def learn(network, part):
    """Adds the gradients of a part of a batch to the parameters' gradients. The parts add up to the
    mean of the batch."""
    pixels, labels = part
    loss = functional.cross_entropy(network(pixels), labels, reduction="sum") / BATCH_SIZE
    loss.backward()


class Replicas:
    """Four replicas of a network, and the store between them."""

    def __init__(self):
        self.networks = [network() for _ in range(NUM_REPLICAS)]
        self.names = [name for name, _ in self.networks[0].named_parameters()]
        # For each name, the parameter of every replica.
        self.parameters = list(zip(*(network.parameters() for network in self.networks)))
        self.store = mx.kv.create("local")
        self.store.set_optimizer(mx.optimizer.SGD(learning_rate=LEARNING_RATE, momentum=MOMENTUM))
        with torch.no_grad():
            self.store.init(self.names, [replicas[0] for replicas in self.parameters])

    def step(self, parts):
        for network, part in zip(self.networks, parts):
            network.zero_grad()
            learn(network, part)
        gradients = [[parameter.grad for parameter in replicas] for replicas in self.parameters]
        self.store.push(self.names, gradients)
        with torch.no_grad():
            self.store.pull(self.names, out=self.parameters)


class Plain:
    """One network. PyTorch sums the gradients of the parts and steps."""

    def __init__(self):
        self.networks = [network()]
        parameters = self.networks[0].parameters()
        self.optimizer = torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=MOMENTUM)

    def step(self, parts):
        self.optimizer.zero_grad()
        for part in parts:
            learn(self.networks[0], part)
        self.optimizer.step()


def digits():
    """Returns batches of four parts for training, and the pixels and labels of a fifth of the
    digits for the test."""
    with gzip.open(DIGITS, "rt") as lines:
        rows = torch.tensor([[int(number) for number in line.split(",")] for line in lines])
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(SEED))]
    pixels, labels = rows[:, :-1] / 16, rows[:, -1]
    num_learned = len(rows) * 4 // 5 // BATCH_SIZE * BATCH_SIZE
    size = BATCH_SIZE // NUM_REPLICAS
    parts = list(zip(pixels[:num_learned].split(size), labels[:num_learned].split(size)))
    batches = [parts[at : at + NUM_REPLICAS] for at in range(0, len(parts), NUM_REPLICAS)]
    return batches, (pixels[num_learned:], labels[num_learned:])


def epoch(trainer, batches):
    """Trains with every batch. Returns the milliseconds per step."""
    start = time.perf_counter()
    for parts in batches:
        trainer.step(parts)
    return (time.perf_counter() - start) * 1e3 / len(batches)


@torch.no_grad()
def accuracy(network, tested):
    pixels, labels = tested
    return (network(pixels).argmax(1) == labels).float().mean().item()


def train(epochs):
    """Trains both in turn. Returns for each the trainer, its accuracy, and the median time of a
    step."""
    batches, tested = digits()
    trainers = [Replicas(), Plain()]
    times = {trainer: [] for trainer in trainers}
    for _ in range(epochs):
        for trainer in trainers:
            times[trainer].append(epoch(trainer, batches))
        trainers.reverse()  # Each begins as often.
    return [
        (trainer, accuracy(trainer.networks[0], tested), statistics.median(of_trainer))
        for trainer, of_trainer in times.items()
    ]


def main():
    torch.set_num_threads(1)  # Matrices as small as these take longer on several.
    epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    (_, read, time_over_store), (_, read_by_plain, time_of_plain) = train(epochs)
    print(
        f"{NUM_REPLICAS} replicas over a store: {read:.1%} of new digits are read, "
        f"{time_over_store:.2f} ms a step; one network in plain PyTorch {torch.__version__}: "
        f"{read_by_plain:.1%}, {time_of_plain:.2f} ms; four networks and the store take "
        f"{time_over_store / time_of_plain:.2f} times as long"
    )


if __name__ == "__main__":
    main()
