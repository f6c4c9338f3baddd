"""Values that both sides compute themselves. They are multiples of 1 / 1024, so with this learning
rate, every sum and every step of SGD is exact in `f32`, in any order."""

import numpy as np

LEARNING_RATE = 1 / 16


def pattern(seed, shape):
    numbers = (7 * np.arange(int(np.prod(shape)), dtype=np.int64) + 13 * seed) % 31 - 15
    return (numbers / 1024).astype(np.float32).reshape(shape)


def start(index, shape):
    """Returns the initial value of a key."""
    return pattern(index, shape)


def gradient(rank, index, shape):
    """Returns the value that a worker pushes to a key."""
    return pattern(index + 7 * (1 + rank), shape)


def after(num_workers, num_steps, index, shape):
    """Returns the value of a key after this number of rounds."""
    total = sum(gradient(rank, index, shape).astype(np.float64) for rank in range(num_workers))
    return (start(index, shape) - LEARNING_RATE * num_steps * total).astype(np.float32)


def after_momentum(momentum, num_pushes, index, shape):
    """Returns the value of a key after pushes of the gradient of rank 0, except for rounding."""
    steps = sum(1 - momentum**t for t in range(1, num_pushes + 1)) / (1 - momentum)
    total = gradient(0, index, shape).astype(np.float64) * steps
    return (start(index, shape) - LEARNING_RATE * total).astype(np.float32)
