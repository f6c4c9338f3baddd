"""Runs a program of calls to a store, in MXNet or in this package. The code is the same for both.

A program is JSON data: the name of a store and a list of steps, in the format of the recorded
programs (``tests/data/store_cases.json``). A step is a call with its arguments. Arrays are
described by ``{shape, dtype, data}``:

- With ``rows``, which are row indices, the array is row-sparse.
- With ``view``, the array is a range of rows of a larger array.
- Outputs have no data and are 0 at first. Outputs with the same ``slot`` are the same array.
- The device number is the position in a list of values.
- In a call with ``tuples``, lists are passed as tuples.

As a script, ``player.py MODULE`` reads programs from standard input, one per line, and writes the
outcome of each step, one per line. It must run with Python 3.8, which MXNet needs.
"""

import importlib
import json
import os
import sys
import tempfile

import numpy

#: The functions of updaters: ``s`` is the stored value, ``i`` the pushed sum.
UPDATERS = {
    "assign": lambda s, i: i,
    "add": lambda s, i: s + i,
    "sub": lambda s, i: s - i,
    "add2x": lambda s, i: s + i * 2,
    "decay_add": lambda s, i: s / 2 + i,
    "noop": None,
    "in_place": None,
    "failing": None,
}

#: A value that is not an array, for calls that must fail.
NO_ARRAY = "no array"


class Player:
    """A store, and the calls that its updater has received."""

    def __init__(self, mx, name):
        self.mx = mx
        self.store = mx.kv.create(name)
        self.log = []
        self.folder = tempfile.TemporaryDirectory()
        self.slots = {}

    def play(self, step):
        """Makes a call and returns its result: a list of arrays as data, or another result."""
        return getattr(self, step["op"])(step)

    # The verbs.

    def init(self, step):
        self.store.init(self.keys(step), self.values(step))

    def push(self, step):
        self.store.push(self.keys(step), self.values(step), **self.options(step, "priority"))

    def pull(self, step):
        options = self.options(step, "priority", "ignore_sparse")
        if "outs" not in step:
            return self.read(self.store.pull(self.keys(step), **options))
        outs = self.outs(step)
        self.store.pull(self.keys(step), out=outs, **options)
        return self.read(outs)

    def pushpull(self, step):
        values = self.values(step)
        options = self.options(step, "priority")
        if "outs" not in step:
            self.store.pushpull(self.keys(step), values, **options)
            return self.read(values)
        outs = self.outs(step)
        self.store.pushpull(self.keys(step), values, out=outs, **options)
        return self.read(outs)

    def broadcast(self, step):
        outs = self.outs(step)
        options = self.options(step, "priority")
        self.store.broadcast(self.keys(step), self.values(step), out=outs, **options)
        return self.read(outs)

    def row_sparse_pull(self, step):
        outs, row_ids = self.outs(step), step["row_ids"]
        if row_ids and isinstance(row_ids[0], list):
            ids = [self.row_ids(one) for one in row_ids]
        else:
            ids = self.row_ids(row_ids)
        self.store.row_sparse_pull(self.keys(step), out=outs, row_ids=ids)
        return self.read(outs)

    def row_ids(self, numbers):
        return self.mx.nd.array(numpy.array(numbers, dtype="int64"), dtype="int64")

    # Settings of later pushes.

    def set_updater(self, step):
        name = step["name"]
        rule = UPDATERS[name]

        def update(key, pushed, stored):
            # This package passes strings, MXNet passes bytes.
            self.log.append(key.decode() if isinstance(key, bytes) else key)
            if rule is not None:
                stored[:] = rule(stored, pushed)
            elif name == "in_place":
                stored += pushed
                stored *= 2
            elif name == "failing":
                raise ValueError("an updater that fails")

        self.store._set_updater(update)

    def set_optimizer(self, step):
        options = dict(step["kwargs"])
        if "lr_scheduler" in options:
            name, arguments = options["lr_scheduler"]
            options["lr_scheduler"] = getattr(self.mx.lr_scheduler, name)(**arguments)
        optimizer = self.mx.optimizer.create(step["name"], **options)
        for name in ("lr_mult", "wd_mult"):
            if name in step:
                getattr(optimizer, f"set_{name}")(dict(step[name]))
        self.store.set_optimizer(optimizer)

    def set_gradient_compression(self, step):
        self.store.set_gradient_compression(step["params"])

    def save_optimizer_states(self, step):
        self.store.save_optimizer_states(self.file(step), **self.options(step, "dump_optimizer"))

    def load_optimizer_states(self, step):
        self.store.load_optimizer_states(self.file(step))

    # Queries.

    def updater_log(self, step):
        log, self.log = self.log, []
        return log

    def info(self, step):
        store = self.store
        return {"type": store.type, "rank": store.rank, "num_workers": store.num_workers}

    def is_capable(self, step):
        return self.store.is_capable(step["capability"])

    def barrier(self, step):
        self.store._barrier()

    # Arguments.

    @staticmethod
    def options(step, *names):
        return {name: step[name] for name in names if name in step}

    def file(self, step):
        return os.path.join(self.folder.name, step["file"])

    def keys(self, step):
        keys = step["keys"]
        return tuple(keys) if isinstance(keys, list) and step.get("tuples") else keys

    def values(self, step):
        return self.arrays(step["values"], step.get("tuples"))

    def outs(self, step):
        return self.arrays(step["outs"], step.get("tuples"))

    def arrays(self, given, tuples=False, position=0):
        if isinstance(given, list):
            arrays = [self.arrays(one, tuples, position) for position, one in enumerate(given)]
            return tuple(arrays) if tuples else arrays
        if given is None or given == NO_ARRAY:
            return given
        slot = given.get("slot")
        if slot is None:
            return self.array(given, position)
        if slot not in self.slots:
            self.slots[slot] = self.array(given, position)
        return self.slots[slot]

    def array(self, given, position):
        nd, context = self.mx.nd, self.mx.cpu(position % 4)
        shape, dtype = tuple(given["shape"]), given["dtype"]
        if "rows" in given:
            if not given["rows"]:
                return nd.sparse.zeros("row_sparse", shape, dtype=dtype)
            rows = numpy.array(given["data"], dtype=dtype).reshape((-1, *shape[1:]))
            numbers = numpy.array(given["rows"], dtype="int64")
            return nd.sparse.row_sparse_array((rows, numbers), shape=shape, dtype=dtype)
        if "data" in given:
            numbers = [float(one) if isinstance(one, str) else one for one in given["data"]]
        else:
            numbers = [0] * int(numpy.prod(shape))
        elements = numpy.array(numbers, dtype=dtype).reshape(shape)
        if given.get("view"):
            larger = numpy.concatenate([elements[:1], elements, elements[:1]])
            return nd.array(larger, ctx=context, dtype=dtype)[1 : len(elements) + 1]
        return nd.array(elements, ctx=context, dtype=dtype)

    def read(self, arrays):
        """Returns arrays as a flat list of data."""
        if isinstance(arrays, (list, tuple)):
            return [value for one in arrays for value in self.read(one)]
        rows = {}
        elements = arrays
        if arrays.stype == "row_sparse":
            rows["rows"] = [int(number) for number in arrays.indices.asnumpy()]
            elements = arrays.data
        found = elements.asnumpy()
        return [
            {
                "shape": list(arrays.shape),
                "dtype": numpy.dtype(arrays.dtype).name,
                "data": found.ravel().tolist(),
                **rows,
            }
        ]


def outcome(mx, play):
    """Returns the result of a call, or its error. MXNet reports some errors only to callers that
    wait.
    """
    try:
        given = play()
        mx.nd.waitall()
    except Exception as error:
        # MXNet's messages start with a stack trace and end with the reason.
        return {"error": f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[-1]}"}
    return {"given": given}


def outcomes(mx, program, player=Player):
    """Yields the outcome of creating the store and of each step."""
    made = []
    created = outcome(mx, lambda: made.append(player(mx, program["store"])))
    yield created
    if "error" not in created:
        for step in program["steps"]:
            yield outcome(mx, lambda step=step: made[0].play(step))
    # Wait for pending errors, so that the next program does not receive them.
    outcome(mx, lambda: None)


def main():
    mx = importlib.import_module(sys.argv[1])
    # Redirect the output of libraries to standard error, so that it does not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        for one in outcomes(mx, json.loads(line)):
            answers.write(json.dumps(one) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
