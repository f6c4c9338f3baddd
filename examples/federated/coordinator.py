"""The coordinator of federated averaging: begins rounds, checks each, and rolls back if needed."""

import time

import mxkv as mx
import numpy as np
from client import NUM_COLUMNS, NUM_DIGITS

POLL_SECONDS = 0.02
#: The loss may grow by this factor in a round.
GROWTH = 1.5
SECONDS = 150


class Coordinator:
    """A reader of the store, with digits that no client has.

    The key `round` has the number of the round that clients may begin. A negative one ends the
    training.
    """

    def __init__(self, server, tested):
        self.tested, self.number, self.deadline = tested, 0, time.monotonic() + SECONDS
        self.store = mx.kv.create("dist_async", servers=server, reader=True, timeout=SECONDS)
        # The store subtracts the mean change of a round from the model.
        self.store.set_optimizer(mx.optimizer.SGD(learning_rate=1.0))
        self.store.init("model", np.zeros((NUM_DIGITS, NUM_COLUMNS), np.float32))
        self.store.init("round", np.zeros(1, np.int32))
        self.loss, self.accuracy = tested.evaluate(self.model())

    def model(self):
        return self.store.pull("model").asnumpy().copy()

    def wait(self, text, is_true):
        while not is_true():
            if time.monotonic() > self.deadline:
                raise SystemExit(f"coordinator: waited in vain for {text}")
            time.sleep(POLL_SECONDS)

    def wait_for_workers(self, names):
        """Waits until these workers are members."""

        def are_live():
            return {one.name for one in self.store.members() if not one.is_reader} == set(names)

        self.wait(f"the members {names}", are_live)

    def begin(self, number):
        self.number = number
        self.store.init("round", np.full(1, number, np.int32), on_existing="replace")

    def make_round(self):
        """Makes a round. Returns the models before and after it, and whether it was good. The store
        continues with the model before a bad round."""
        good, before, version = self.store.snapshot(), self.model(), self.store.version("model")
        self.begin(self.number + 1)
        number = self.number
        self.wait(f"round {number}", lambda: self.store.version("model") > version)
        after = self.model()
        loss, accuracy = self.tested.evaluate(after)
        is_good = bool(np.isfinite(loss)) and loss < GROWTH * self.loss
        if is_good:
            self.loss, self.accuracy = loss, accuracy
            print(f"round {number}: loss {loss:.3f}, {accuracy:.1%} of new digits are read")
        else:
            self.store.rollback(good)
            print(f"round {number}: loss {loss}, rolled back")
        return before, after, is_good

    def close(self):
        """Ends the training."""
        self.begin(-1)
        self.store.close()
