"""A process of MXNet for `dist.py` and `net.py`, with the role in `DMLC_ROLE`. Its arguments are
the type of the store and the momentum. A worker executes the same lines as
`src/bin/dist/main.rs`, except `overlap`."""

import os

# In a scheduler or server, this import does not return.
import mxnet as mx

import json
import socket
import sys
import time

import numpy as np

from pattern import LEARNING_RATE, gradient, start


class Workload:
    """The keys of the store, with the values that this worker pushes."""

    def __init__(self, store, rank, first, shapes):
        """`rank` is the one whose gradients are pushed."""
        self.keys = list(range(first, first + len(shapes)))
        starts = [mx.nd.array(start(i, shape)) for i, shape in enumerate(shapes)]
        self.gradients = [mx.nd.array(gradient(rank, i, shape)) for i, shape in enumerate(shapes)]
        self.outs = [mx.nd.zeros(shape) for shape in shapes]
        self.made = []
        store.init(self.keys, starts)

    def round(self, store, mode, gradients):
        if mode == "pushpull":
            store.pushpull(self.keys, gradients, out=self.outs)
            mx.nd.waitall()
            return
        if len(self.keys) == 1:
            store.push(self.keys[0], gradients[0])
            store.pull(self.keys[0], out=self.outs[0])
            self.outs[0].wait_to_read()
            return
        if mode == "list":
            store.push(self.keys, gradients)
            store.pull(self.keys, out=self.outs)
        else:
            # In the same order as MXNet's `Module`.
            for index, (key, pushed, out) in enumerate(zip(self.keys, gradients, self.outs)):
                store.push(key, pushed, priority=-index)
                store.pull(key, out=out, priority=-index)
        mx.nd.waitall()

    def rounds(self, store, mode, warm, count):
        # On CPUs, a pull writes to the array that was pushed last. A training step has computed new
        # gradients by then.
        while len(self.made) < warm + count:
            self.made.append([gradient.copy() for gradient in self.gradients])
        for made in self.made:
            for gradient, copy in zip(self.gradients, made):
                gradient.copyto(copy)
        mx.nd.waitall()
        seconds = []
        for gradients in self.made:
            begun = time.perf_counter()
            self.round(store, mode, gradients)
            seconds.append(time.perf_counter() - begun)
        return seconds[warm:]


class Worker:
    def __init__(self, store, momentum):
        self.store = mx.kv.create(store)
        sgd = mx.optimizer.create("sgd", learning_rate=LEARNING_RATE, momentum=momentum)
        self.store.set_optimizer(sgd)
        self.store._barrier()
        # With momentum, weights depend on the order of pushes unless all gradients are equal.
        self.pushes_as = 0 if momentum else self.store.rank
        self.workloads = {}

    def answer(self, verb, name, *words):
        if verb == "init":
            first = sum(len(workload.keys) for workload in self.workloads.values())
            shapes = [tuple(map(int, word.split("x"))) for word in words]
            self.workloads[name] = Workload(self.store, self.pushes_as, first, shapes)
            return []
        workload = self.workloads[name]
        if verb == "rounds":
            mode, warm, count = words
            return workload.rounds(self.store, mode, int(warm), int(count))
        if verb == "save":
            # Another worker may have pushed after this one's last pull.
            self.store.pull(workload.keys, out=workload.outs)
            np.concatenate([out.asnumpy().ravel() for out in workload.outs]).tofile(words[0])
            return []
        raise ValueError(verb)


def main():
    worker = Worker(sys.argv[1], float(sys.argv[2]))
    host, port = os.environ["KVSTORE_PEERS"].split(":")
    driver = socket.create_connection((host, int(port))).makefile("rw")
    print(json.dumps({"rank": worker.store.rank}), file=driver, flush=True)
    for line in driver:
        if line.strip() == "end":
            break
        print(json.dumps(worker.answer(*line.split())), file=driver, flush=True)


if __name__ == "__main__":
    sys.exit(main())
