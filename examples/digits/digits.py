"""The model of the examples for clusters: a linear classifier of handwritten digits, in NumPy.

Workers compute gradients with :func:`gradients`. The store adds the steps. To use another kind of
store, change ``KIND``.
"""

import gzip
import hashlib
from pathlib import Path

import numpy

#: The kind of the store.
KIND = "dist_async"
#: The names of the parameters. Each has its first value in :func:`initial`.
KEYS = ["weights", "bias"]
BATCH_SIZE = 32
LEARNING_RATE = 0.2
#: Servers share the rows of values above this number of bytes. The weights have 2560 bytes.
DIVIDE_ABOVE = 1024

_FILE = Path(__file__).parents[1] / "resume/resources/digits.csv.gz"
_SEED = 1998


def initial():
    """Returns the first value of each parameter."""
    return [numpy.zeros((64, 10), "float32"), numpy.zeros((1, 10), "float32")]


def load():
    """Returns the batches for training, and the pixels and labels of a fifth of the digits for the
    test. All processes get the same order."""
    with gzip.open(_FILE, "rt") as lines:
        rows = numpy.loadtxt(lines, delimiter=",", dtype="float32")
    numpy.random.default_rng(_SEED).shuffle(rows)
    pixels, labels = rows[:, :-1] / 16, rows[:, -1].astype("int64")
    num_learned = len(rows) * 4 // 5 // BATCH_SIZE * BATCH_SIZE
    ends = range(BATCH_SIZE, num_learned, BATCH_SIZE)
    learned = zip(numpy.split(pixels[:num_learned], ends), numpy.split(labels[:num_learned], ends))
    return list(learned), (pixels[num_learned:], labels[num_learned:])


def _probabilities(parameters, pixels):
    weights, bias = parameters
    logits = pixels @ weights + bias
    powers = numpy.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def gradients(parameters, batch):
    """Returns the gradient of each parameter for the mean loss of a batch."""
    pixels, labels = batch
    errors = _probabilities(parameters, pixels)
    errors[numpy.arange(len(labels)), labels] -= 1
    errors /= len(labels)
    return [pixels.T @ errors, errors.sum(0, keepdims=True)]


def loss(parameters, tested):
    """Returns the mean of -log p of the true labels."""
    pixels, labels = tested
    of_true = _probabilities(parameters, pixels)[numpy.arange(len(labels)), labels]
    return float(-numpy.log(of_true).mean())


def accuracy(parameters, tested):
    """Returns the share of digits that are read correctly."""
    pixels, labels = tested
    return float((_probabilities(parameters, pixels).argmax(1) == labels).mean())


def pull(store):
    """Returns the parameters in the store."""
    return [value.asnumpy() for value in store.pull(KEYS)]


def train(store, batches, epochs):
    """Goes over the batches a number of times. Each batch is a push of gradients and a pull."""
    parameters = pull(store)
    for _ in range(epochs):
        for batch in batches:
            store.push(KEYS, gradients(parameters, batch))
            parameters = pull(store)


def digest(parameters):
    """Returns a text that differs if a bit of the parameters differs."""
    content = b"".join(parameter.tobytes() for parameter in parameters)
    return hashlib.sha256(content).hexdigest()[:16]
