"""The workloads: the keys of the store, the operations of a turn, and the bytes that they must
move."""

import numpy as np

NUM_DEVICES = 4
MIB64 = 1 << 24  # floats in 64 MiB


def values(seed, shape):
    """Returns floats of both signs. The sign at a position does not depend on the seed, so no sum
    cancels, and the two sides, which may add in another order, stay close."""
    draw = np.random.default_rng(seed).random(int(np.prod(shape)), dtype=np.float32)
    draw += np.float32(0.5)
    draw[1::2] *= np.float32(-1)
    return draw.reshape(shape)


def resnet50_shapes():
    """Returns the shapes of the 161 parameters of ResNet-50: convolutions, batch norms, and the
    last layer with its bias."""
    shapes = [(64, 3, 7, 7), (64,), (64,)]
    inputs = 64
    for stage, blocks in enumerate([3, 4, 6, 3]):
        inner = 64 << stage
        for block in range(blocks):
            convolutions = [(inner, inputs, 1, 1), (inner, inner, 3, 3), (4 * inner, inner, 1, 1)]
            if block == 0:
                convolutions.append((4 * inner, inputs, 1, 1))
            for shape in convolutions:
                shapes += [shape, shape[:1], shape[:1]]
            inputs = 4 * inner
    return shapes + [(1000, 2048), (1000,)]


class Workload:
    """One row of the table."""

    def __init__(self, name, bar, shapes, **rest):
        self.name = name
        # The required speedup over MXNet, or `None`.
        self.bar = bar
        self.shapes = shapes
        # Whether PyTorch can do the same.
        self.has_torch = rest.pop("has_torch", False)
        # The number of values of a push, or 0 for no push, and the number of outputs of a pull.
        self.pushed = rest.pop("pushed", 0)
        self.pulled = rest.pop("pulled", 0)
        self.is_read = rest.pop("is_read", False)
        # The optimizer's name and options.
        self.optimizer = rest.pop("optimizer", None)
        # How often each value's bytes must cross the memory bus, or `None` if this has no meaning.
        self.crossings = rest.pop("crossings", None)
        # The required share of the copy bandwidth.
        self.bandwidth_bar = rest.pop("bandwidth_bar", None)
        # How often a turn repeats its operations, so that it is long enough to be timed. If several
        # threads work, it must be long enough for the system to move them to their own cores.
        self.repeats = rest.pop("repeats", 1)
        # The number of rows of each value, or `None` for dense values.
        self.rows = rest.pop("rows", None)
        assert not rest, rest

    def minimal_bytes(self):
        if self.crossings is None:
            return None
        return 4 * self.crossings * sum(int(np.prod(shape)) for shape in self.shapes)


class Running:
    """A workload on one side."""

    def __init__(self, workload, side, reader):
        self.workload, self.side, self.reader = workload, side, reader
        self.keys = [side.key(index) for index in range(len(workload.shapes))]
        side.init(self.keys, [values(1 + i, shape) for i, shape in enumerate(workload.shapes)])
        if workload.optimizer:
            side.set_optimizer(*workload.optimizer)
        pushed = self.arrays(workload.pushed, lambda n, i: 1000 * (1 + n) + i)
        outs = self.arrays(workload.pulled or 1, lambda n, i: 1)
        self.push_list = side.list(self.keys, pushed)
        self.pull_list = side.list(self.keys, outs)
        self.outs = [array for arrays in outs for array in arrays]
        # The outputs to wait for at the end of a turn. Without a pull, all.
        self.written = self.outs if workload.pulled else []

    def arrays(self, count, seed):
        return [
            [self.side.array(values(seed(n, i), shape), n % NUM_DEVICES) for n in range(count)]
            for i, shape in enumerate(self.workload.shapes)
        ]

    def turn(self):
        """Runs the part that is timed."""
        workload = self.workload
        self.side.steps(
            self.push_list if workload.pushed else None,
            self.pull_list if workload.pulled else None,
            self.written,
            workload.repeats,
        )
        if workload.is_read:
            self.read()

    def read(self):
        """Reads every pulled output with the reader, which is outside the store."""
        self.side.read(self.outs, self.reader)

    def outputs(self):
        """Returns copies of every output, of the turn's last pull or of a new one."""
        if not self.workload.pulled:
            self.side.steps(None, self.pull_list, [], 1)
        return self.side.read(self.outs, np.copy)

    def starts(self):
        """Returns the value of each output before the first turn."""
        shapes = enumerate(self.workload.shapes)
        return [
            values(1 + i, shape) for i, shape in shapes for _ in range(self.workload.pulled or 1)
        ]


class RunningRows:
    """A row-sparse workload on one side. It pushes row-sparse values, or pulls rows."""

    def __init__(self, workload, side, _reader):
        self.workload, self.side = workload, side
        (self.shape,) = workload.shapes
        self.key = side.key(0)
        side.init_rows(self.key, values(1, self.shape))
        if workload.optimizer:
            side.set_optimizer(*workload.optimizer)
        batches = [self.ids(1 + n) for n in range(workload.pushed or 1)]
        rows = [
            side.rows(
                self.shape, ids, values(1000 + n, (len(ids), *self.shape[1:])), n % NUM_DEVICES
            )
            for n, ids in enumerate(batches)
        ]
        self.push_list = side.row_list(self.key, rows)
        self.touched = np.unique(np.concatenate(batches))
        self.pulled_ids = side.row_ids(batches[0])

    def ids(self, seed):
        """Returns the row indices of a batch."""
        draw = np.random.default_rng(seed)
        return np.sort(draw.choice(self.shape[0], self.workload.rows, replace=False)).astype(
            np.int64
        )

    def turn(self):
        """Runs the part that is timed."""
        for _ in range(self.workload.repeats):
            if self.workload.pushed:
                self.side.push_rows(self.push_list)
            if self.workload.pulled:
                self.side.pull_rows(self.key, self.pulled_ids, self.shape)

    def outputs(self):
        """Returns a copy of every row that a turn touches."""
        pulled = self.side.pull_rows(self.key, self.side.row_ids(self.touched), self.shape)
        return [self.side.read_rows(pulled, len(self.touched), self.shape)]

    def starts(self):
        """Returns these rows before the first turn."""
        return [values(1, self.shape)[self.touched]]


SGD = ("sgd", {"learning_rate": 0.01, "momentum": 0.9, "wd": 0.0001})
ADAM = ("adam", {"learning_rate": 0.001, "wd": 0.0001})
ONE = [(MIB64,)]
EMBEDDING = [(1_000_000, 64)]

# Reads four gradients, weight and momentum; writes weight and momentum.
SGD_OF_4 = {"pushed": 4, "optimizer": SGD, "crossings": 8, "has_torch": True}

WORKLOADS = [
    Workload("sum_4x64MiB", 2.5, ONE, pushed=4, crossings=5, bandwidth_bar=0.9, has_torch=True),
    Workload("sum_8x64MiB", 2.5, ONE, pushed=8, crossings=9, bandwidth_bar=0.9, has_torch=True),
    Workload("sgd_momentum_4x64MiB", 4, ONE, bandwidth_bar=0.9, **SGD_OF_4),
    Workload("adam_4x64MiB", 5, ONE, pushed=4, optimizer=ADAM, crossings=10, has_torch=True),
    Workload("pull_4x64MiB", 100, ONE, pulled=4),
    Workload("pull_4x64MiB_read", 1.3, ONE, pulled=4, is_read=True),
    Workload("small_keys_1000x4", 20, [(64,)] * 1000, pushed=4, pulled=4, repeats=20),
    Workload("resnet50_push", None, resnet50_shapes(), **SGD_OF_4),
    Workload("resnet50_step", 4, resnet50_shapes(), pulled=4, **SGD_OF_4),
    Workload("rows_sum_4x2500", 3, EMBEDDING, pushed=4, rows=2500, repeats=100),
    Workload("rows_sgd_4x2500", 3, EMBEDDING, pushed=4, rows=2500, optimizer=SGD, repeats=100),
    Workload("rows_adam_4x2500", 3, EMBEDDING, pushed=4, rows=2500, optimizer=ADAM, repeats=100),
    Workload("rows_sgd_4x10000", 3, EMBEDDING, pushed=4, rows=10_000, optimizer=SGD, repeats=50),
    Workload("rows_pull_10000", 3, EMBEDDING, pulled=1, rows=10_000, repeats=100),
    Workload("one_key_latency", 20, [(1000,)], pushed=1, pulled=1, repeats=500),
]
