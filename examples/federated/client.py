"""Trains with the digits of a file, and takes part in the rounds of a coordinator.

    python client.py --server HOST:PORT --name NAME --digits FILE --quorum N --grace SECONDS

The class `Client` in `src/main/java` does the same with gRPC alone. `--record FOLDER` writes what
the client sends in each round, and `--poison ROUND:NUMBER` makes it send this number.
"""

import argparse
import time
from pathlib import Path

import mxkv as mx
import numpy as np

NUM_DIGITS, NUM_COLUMNS = 10, 65
EPOCHS, LEARNING_RATE = 5, 0.1
POLL_SECONDS = 0.02


class Digits:
    """Handwritten digits, and logistic regression. A model has a row for each of 10 digits, with a
    factor for each of 64 pixels and a summand."""

    def __init__(self, lines):
        rows = np.array([[int(number) for number in line.split(",")] for line in lines])
        pixels = rows[:, :-1].astype(np.float32) / 16
        self.pixels = np.hstack([pixels, np.ones((len(rows), 1), np.float32)])
        self.labels = rows[:, -1]

    def __len__(self):
        return len(self.labels)

    def train(self, model):
        """Trains a copy of a model. Returns what the training subtracts from the model."""
        trained = model.copy()
        for _ in range(EPOCHS):
            for pixels, label in zip(self.pixels, self.labels):
                error = probabilities(trained @ pixels)
                error[label] -= 1
                trained -= (LEARNING_RATE * np.outer(error, pixels)).astype(np.float32)
        return model - trained

    def evaluate(self, model):
        """Returns the loss and the accuracy of a model. The loss of a damaged model is not
        finite."""
        with np.errstate(all="ignore"):
            found = probabilities(self.pixels @ model.T)
            loss = -np.log(found[np.arange(len(self)), self.labels]).mean()
        return float(loss), float((found.argmax(1) == self.labels).mean())


def probabilities(scores):
    odds = np.exp(scores - scores.max(-1, keepdims=True))
    return odds / odds.sum(-1, keepdims=True)


def take_part(store, digits, number, arguments):
    """Trains, and pushes the change with the number of digits as weight."""
    change = digits.train(store.pull("model").asnumpy())
    poisoned, _, element = arguments.poison.partition(":")
    if int(poisoned) == number:
        change[...] = float(element)
    if arguments.record:
        Path(arguments.record, f"{number}-{arguments.name}").write_bytes(change.tobytes())
    try:
        store.push("model", change)
    except mx.errors.LatePushError as error:
        print(f"{arguments.name}: late in round {number}: {error}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ["--server", "--name", "--digits"]:
        parser.add_argument(name, required=True)
    parser.add_argument("--quorum", type=int, required=True)
    parser.add_argument("--grace", type=float, required=True)
    parser.add_argument("--record")
    parser.add_argument("--poison", default="0:0")
    arguments = parser.parse_args()
    digits = Digits(Path(arguments.digits).read_text().splitlines())
    options = {"quorum": arguments.quorum, "grace": arguments.grace, "weight": float(len(digits))}
    last = 0
    with mx.kv.create(
        "dist_quorum", servers=arguments.server, member=arguments.name, **options
    ) as store:
        while (number := int(store.pull("round").asnumpy()[0])) >= 0:
            if number > last:
                last = number
                take_part(store, digits, number, arguments)
            else:
                time.sleep(POLL_SECONDS)
        store.leave()


if __name__ == "__main__":
    main()
