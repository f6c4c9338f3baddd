"""The child process of test_failed_allocations.py: runs a case with each long allocation failing in turn.

The arguments are the name of a case and the preloaded library of tests/failing-malloc.
"""

import ctypes
import faulthandler
import gc
import pathlib
import sys
import tempfile
import threading

import numpy

import mxkv as mx
from mxkv import nd

#: A list of so many pointers is a long allocation, of 64 KiB or more.
NUM_KEYS = 9000
#: An array of so many elements is a long allocation, too.
LONG = 40_000
#: No case has so many long allocations.
MOST = 1000

#: The cases by their names: each is a function that prepares a `Call`.
CASES = {}


class Call:
    """A call whose long allocations fail.

    `check_unchanged` runs after a call that failed, `check_done` after one that did not. `undo` prepares another call
    after that.
    """

    def __init__(self, run, check_unchanged=lambda: None, check_done=lambda _: None, undo=lambda: None):
        self.run = run
        self.check_unchanged = check_unchanged
        self.check_done = check_done
        self.undo = undo


def case(name):
    def register(prepare):
        assert name not in CASES, name
        CASES[name] = prepare
        return prepare

    return register


# What the cases are made of.


def texts(prefix="w"):
    return [f"{prefix}{number}" for number in range(NUM_KEYS)]


def ours(number, dtype="float32"):
    return [nd.full((1,), number, dtype=dtype) for _ in range(NUM_KEYS)]


def foreign(number, dtype="float32"):
    return [numpy.full(1, number, dtype) for _ in range(NUM_KEYS)]


def pairs(items):
    return [[one, one] for one in items]


def flat(outs):
    return [one for out in outs for one in (out if isinstance(out, list) else [out])]


def elements(outs):
    """Returns the elements of all outputs, also of nested ones."""
    dense = [one.todense() if isinstance(one, nd.RowSparseNDArray) else one for one in flat(outs)]
    ours = [one for one in dense if isinstance(one, nd.NDArray)]
    others = [one for one in dense if not isinstance(one, nd.NDArray)]
    found = set(nd.concatenate(ours).asnumpy().ravel().tolist()) if ours else set()
    return found | (set(numpy.concatenate(others).ravel().tolist()) if others else set())


def rows(number):
    return nd.sparse.row_sparse_array(([[number]], [0]), shape=(2, 1))


def store(keys=None, values=None):
    kv = mx.kv.create()
    kv.init(texts() if keys is None else keys, ours(1) if values is None else values)
    return kv


def change(kv, run, outs=(), done=None):
    """A call that leaves the store and the outputs, which are 0, unchanged if it fails. Without a failure each output is
    `done`.
    """
    before, keys = kv.snapshot(), kv.keys()

    def check_unchanged():
        assert kv.keys() == keys
        assert kv.snapshot().is_identical(before)
        assert not outs or elements(outs) == {0.0}

    def check_done(_):
        assert not outs or elements(outs) == {done}

    def undo():
        kv.rollback(before)
        for out in flat(outs):
            out[:] = 0

    return Call(run, check_unchanged, check_done, undo)


def folder():
    """Returns a folder that exists until the process ends."""
    made = tempfile.TemporaryDirectory()
    FOLDERS.append(made)
    return pathlib.Path(made.name)


FOLDERS = []


# Initialising and removing.


@case("init")
def init():
    kv, keys, values = store(), texts("v"), ours(1)
    return change(kv, lambda: kv.init(keys, values))


@case("init with integers")
def init_with_integers():
    kv, keys, values = store([0], [nd.ones(1)]), list(range(1, NUM_KEYS + 1)), ours(1)
    return change(kv, lambda: kv.init(keys, values))


@case("init with a map")
def init_with_a_map():
    kv, values = store(), dict(zip(texts("v"), ours(1)))
    return change(kv, lambda: kv.init(values))


@case("init again")
def init_again():
    kv, keys, values = store(), texts(), ours(2)
    return change(kv, lambda: kv.init(keys, values, existing="replace"))


@case("remove")
def remove():
    kv, keys = store(), texts()
    return change(kv, lambda: kv.remove(keys))


# Pushes.


@case("push")
def push():
    kv, keys, values = store(), texts(), ours(2)
    return change(kv, lambda: kv.push(keys, values))


@case("push of a tuple")
def push_tuple():
    kv, keys, values = store(), tuple(texts()), tuple(ours(2))
    return change(kv, lambda: kv.push(keys, values))


@case("push with integers")
def push_with_integers():
    keys = list(range(NUM_KEYS))
    kv, values = store(keys), ours(2)
    return change(kv, lambda: kv.push(keys, values))


@case("push of nested lists")
def push_nested():
    kv, keys, values = store(), texts(), pairs(ours(2))
    return change(kv, lambda: kv.push(keys, values))


@case("push of a list at the end")
def push_list_at_the_end():
    kv, keys, values = store(), texts(), ours(2)
    values[-1] = [values[-1]]
    return change(kv, lambda: kv.push(keys, values))


@case("push of many values")
def push_many_values():
    kv, values = store(), ours(2)
    return change(kv, lambda: kv.push("w0", values))


@case("push of a list of many values")
def push_list_of_many_values():
    kv, values = store(), [ours(2)]
    return change(kv, lambda: kv.push(["w0"], values))


@case("push of NumPy's arrays")
def push_numpy():
    kv, keys, values = store(), texts(), foreign(2)
    return change(kv, lambda: kv.push(keys, values))


class Interface:
    """An array that only has NumPy's interface."""

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__


@case("push of arrays with NumPy's interface")
def push_interface():
    kv, keys, values = store(), texts(), [Interface(one) for one in foreign(2)]
    return change(kv, lambda: kv.push(keys, values))


@case("push of a long array of NumPy's")
def push_long():
    kv = store("w", nd.zeros(LONG))
    value = numpy.ones(LONG, dtype="float64")
    return change(kv, lambda: kv.push("w", value.astype("float32")))


@case("push of a strided array of NumPy's")
def push_strided():
    kv = store("w", nd.zeros(LONG))
    value = numpy.ones(2 * LONG, dtype="float32")[::2]
    return change(kv, lambda: kv.push("w", value))


@case("push with a map")
def push_with_a_map():
    kv, values = store(), dict(zip(texts(), ours(2)))
    return change(kv, lambda: kv.push(values))


@case("push of rows")
def push_rows():
    kv = store(values=[nd.ones((2, 1)) for _ in range(NUM_KEYS)])
    keys, values = texts(), [rows(2) for _ in range(NUM_KEYS)]
    return change(kv, lambda: kv.push(keys, values))


@case("push of many rows")
def push_many_rows():
    kv = store("w", nd.zeros((LONG, 1)))
    value = nd.sparse.row_sparse_array((numpy.ones((LONG, 1)), numpy.arange(LONG)), shape=(LONG, 1))
    return change(kv, lambda: kv.push("w", value))


@case("push to an optimizer")
def push_to_an_optimizer():
    kv, keys, values = store(), texts(), ours(2)
    kv.set_optimizer(mx.optimizer.Adam())
    return change(kv, lambda: kv.push(keys, values))


@case("push to an updater")
def push_to_an_updater():
    kv, value = store("w", nd.zeros(LONG)), nd.ones(LONG)

    def update(key, pushed, stored):
        stored += pushed * nd.ones(LONG)
        stored += numpy.ones(LONG, dtype="float32")

    kv.set_updater(update)
    return change(kv, lambda: kv.push("w", value))


@case("push of many keys to an updater")
def push_of_many_keys_to_an_updater():
    kv, keys, values = store(), texts(), ours(2)
    kv.set_updater(lambda key, pushed, stored: stored.__iadd__(pushed))
    return change(kv, lambda: kv.push(keys, values))


# Pulls.


@case("pull")
def pull():
    kv, keys, outs = store(), texts(), ours(0)
    return change(kv, lambda: kv.pull(keys, out=outs), outs, 1)


@case("pull with a cast")
def pull_with_a_cast():
    kv, keys, outs = store(), texts(), ours(0, "float64")
    return change(kv, lambda: kv.pull(keys, out=outs), outs, 1)


@case("pull of one key")
def pull_of_one_key():
    kv, outs = store(), ours(0)
    return change(kv, lambda: kv.pull("w0", out=outs), outs, 1)


@case("pull into NumPy's arrays")
def pull_numpy():
    kv, keys, outs = store(), texts(), foreign(0)
    return change(kv, lambda: kv.pull(keys, out=outs), outs, 1)


@case("pull into strided arrays of NumPy's")
def pull_strided():
    kv, keys = store(values=[nd.ones(2) for _ in range(NUM_KEYS)]), texts()
    outs = [numpy.zeros(4, dtype="float32")[::2] for _ in range(NUM_KEYS)]
    return change(kv, lambda: kv.pull(keys, out=outs), outs, 1)


@case("pull into a long strided array of NumPy's")
def pull_long_strided():
    kv, out = store("w", nd.ones(LONG)), numpy.zeros(2 * LONG)[::2]
    return change(kv, lambda: kv.pull("w", out=[out]), [out], 1)


@case("pull into arrays of both kinds")
def pull_both():
    kv, keys = store(), texts()
    outs = ours(0)[: NUM_KEYS // 2] + foreign(0)[NUM_KEYS // 2 :]
    return change(kv, lambda: kv.pull(keys, out=outs), outs, 1)


@case("pull with a map")
def pull_with_a_map():
    kv, outs = store(), dict(zip(texts(), ours(0)))
    return change(kv, lambda: kv.pull(outs), list(outs.values()), 1)


@case("pull of new arrays")
def pull_new():
    kv, keys = store(), texts()
    return change(kv, lambda: kv.pull(keys))


@case("pull into arrays and rows")
def pull_rows_too():
    values = [nd.ones((2, 1)) for _ in range(NUM_KEYS)]
    kv, keys, outs = store(values=values), texts(), [nd.zeros((2, 1)) for _ in range(NUM_KEYS)]
    outs[:9] = [rows(0) for _ in range(9)]
    return change(kv, lambda: kv.pull(keys, out=outs, ignore_sparse=False), outs, 1)


# Pushes and pulls in one call.


@case("pushpull")
def pushpull():
    kv, keys, values, outs = store(), texts(), ours(2), ours(0)
    return change(kv, lambda: kv.pushpull(keys, values, out=outs), outs, 2)


@case("pushpull into the values")
def pushpull_into_the_values():
    kv, keys, values = store(), texts(), pairs(ours(2))
    return change(kv, lambda: kv.pushpull(keys, values))


@case("pushpull with maps")
def pushpull_with_maps():
    kv, values, outs = store(), dict(zip(texts(), ours(2))), dict(zip(texts(), foreign(0)))
    return change(kv, lambda: kv.pushpull(values, out=outs), list(outs.values()), 2)


@case("broadcast")
def broadcast():
    kv, keys, values, outs = store(), texts("v"), ours(2), ours(0)
    return change(kv, lambda: kv.broadcast(keys, values, out=outs), outs, 2)


# Rows.


@case("row_sparse_pull")
def row_sparse_pull():
    kv, keys = store(values=[nd.ones((2, 1)) for _ in range(NUM_KEYS)]), texts()
    ids = [[0, 1]] * NUM_KEYS
    return change(kv, lambda: kv.row_sparse_pull(keys, row_ids=ids))


@case("row_sparse_pull of many rows")
def row_sparse_pull_many_rows():
    kv, ids = store("w", nd.ones((LONG, 1))), list(range(LONG))
    return change(kv, lambda: kv.row_sparse_pull("w", row_ids=ids))


@case("row_sparse_pull with an array of NumPy's")
def row_sparse_pull_numpy():
    kv, ids = store("w", nd.ones((LONG, 1))), numpy.arange(LONG, dtype="int32")
    return change(kv, lambda: kv.row_sparse_pull("w", row_ids=ids))


@case("row_sparse_pull into arrays and rows")
def row_sparse_pull_into_arrays_and_rows():
    kv, keys = store(values=[nd.ones((2, 1)) for _ in range(NUM_KEYS)]), texts()
    outs, ids = [nd.zeros((2, 1)) for _ in range(NUM_KEYS)], [[0, 1]] * NUM_KEYS
    outs[:9] = [rows(0) for _ in range(9)]
    return change(kv, lambda: kv.row_sparse_pull(keys, out=outs, row_ids=ids), outs, 1)


# The store as a whole.


@case("keys")
def keys_of_a_store():
    kv = store()
    return change(kv, kv.keys)


@case("keys that are integers")
def integer_keys():
    kv = store(list(range(NUM_KEYS)))
    return change(kv, kv.keys)


@case("stats")
def stats():
    kv = store()
    return change(kv, kv.stats)


@case("len")
def length():
    kv = store()
    return change(kv, lambda: len(kv))


@case("snapshot")
def snapshot():
    kv = store()
    return change(kv, kv.snapshot)


@case("keys of a snapshot")
def keys_of_a_snapshot():
    taken = store().snapshot()
    return Call(taken.keys)


@case("stats of a snapshot")
def stats_of_a_snapshot():
    taken = store().snapshot()
    return Call(taken.stats)


@case("value of a snapshot")
def value_of_a_snapshot():
    taken = store().snapshot()
    return Call(lambda: taken.get("w8999").tolist())


@case("changed keys of a snapshot")
def changed_keys():
    kv = store()
    before, keys = kv.snapshot(), texts()
    kv.push(keys, ours(2))
    after = kv.snapshot()

    def check_done(changed):
        assert changed == keys

    return Call(lambda: after.changed_keys(before), check_done=check_done)


@case("rollback")
def rollback():
    kv = store()
    before = kv.snapshot()
    kv.push(texts(), ours(2))
    return change(kv, lambda: kv.rollback(before))


@case("checkpoint")
def checkpoint():
    kv, file = store(), folder() / "store"
    return change(kv, lambda: kv.checkpoint(file).wait())


@case("restore")
def restore():
    kv, file = store(), folder() / "store"
    kv.checkpoint(file).wait()
    kv.push(texts(), ours(2))
    return change(kv, lambda: kv.restore(file))


@case("read_checkpoint")
def read_checkpoint():
    kv, file = store(), folder() / "store"
    kv.checkpoint(file).wait()
    return Call(lambda: mx.kvstore.read_checkpoint(file))


def stepped():
    """Returns a store with an optimizer that has a state of each key."""
    kv = store()
    kv.set_optimizer(mx.optimizer.SGD(momentum=0.9))
    kv.push(texts(), ours(2))
    return kv


@case("set_optimizer")
def set_optimizer():
    kv, optimizer = stepped(), mx.optimizer.Adam()
    return change(kv, lambda: kv.set_optimizer(optimizer))


@case("save_optimizer_states")
def save_optimizer_states():
    kv, file = stepped(), folder() / "states"
    return change(kv, lambda: kv.save_optimizer_states(file, dump_optimizer=True))


@case("load_optimizer_states")
def load_optimizer_states():
    kv, file = stepped(), folder() / "states"
    kv.save_optimizer_states(file)
    kv.push(texts(), ours(2))
    return change(kv, lambda: kv.load_optimizer_states(file))


@case("set_gradient_compression")
def set_gradient_compression():
    kv = store()
    return change(kv, lambda: kv.set_gradient_compression({"type": "2bit"}))


# Arrays.


@case("nd.array")
def array_of_numpy():
    source = numpy.ones(LONG, dtype="float32")
    return Call(lambda: nd.array(source))


@case("nd.array with a cast")
def array_with_a_cast():
    source = numpy.ones(LONG)
    return Call(lambda: nd.array(source, dtype="float16"))


@case("nd.array of a strided array")
def array_of_strided():
    source = numpy.ones((LONG, 2)).T
    return Call(lambda: nd.array(source))


@case("nd.array of a list")
def array_of_a_list():
    source = [1.0] * LONG
    return Call(lambda: nd.array(source))


@case("nd.array of a nested list")
def array_of_a_nested_list():
    source = [[1.0]] * LONG
    return Call(lambda: nd.array(source))


@case("elements from a list")
def assigned_list():
    array, source = nd.zeros(LONG), [1.0] * LONG

    def assign():
        array[:] = source

    def check_unchanged():
        assert elements([array]) == {0.0}

    def undo():
        array[:] = 0

    return Call(assign, check_unchanged, undo=undo)


@case("asnumpy")
def asnumpy():
    array = nd.ones(LONG)
    return Call(array.asnumpy)


@case("asnumpy of bfloat16")
def asnumpy_bfloat16():
    array = nd.ones(LONG, dtype="bfloat16")
    return Call(array.asnumpy)


@case("tolist")
def tolist():
    array = nd.ones(LONG)
    return Call(array.tolist)


@case("iteration")
def iteration():
    array = nd.ones(LONG)
    return Call(lambda: iter(array))


@case("repr")
def shown():
    array = nd.ones(LONG)
    return Call(lambda: repr(array))


@case("arithmetic")
def arithmetic():
    left, right = nd.ones(LONG), numpy.ones(LONG, dtype="float32")
    return Call(lambda: ((left + right) * 2).sum().asnumpy())


@case("arithmetic in place")
def arithmetic_in_place():
    array = nd.zeros(LONG)
    seen = array.copy()[:]

    def add():
        nonlocal array
        array += 1

    def check_unchanged():
        assert elements([array, seen]) == {0.0}

    def undo():
        array[:] = 0

    return Call(add, check_unchanged, undo=undo)


@case("concatenate")
def concatenate():
    arrays = ours(1)
    return Call(lambda: nd.concatenate(arrays))


@case("serialize")
def serialize():
    array = nd.ones(LONG)
    return Call(array.serialize)


@case("reduce")
def reduce():
    array = nd.ones(LONG)
    return Call(array.__reduce__)


@case("reduce of rows")
def reduce_rows():
    numbers = numpy.arange(LONG)
    array = nd.sparse.row_sparse_array((numpy.ones((LONG, 1)), numbers), shape=(LONG, 1))
    return Call(array.__reduce__)


@case("rows from lists")
def rows_from_lists():
    values, numbers = [[1.0]] * LONG, list(range(LONG))
    return Call(lambda: nd.sparse.row_sparse_array((values, numbers), shape=(LONG, 1)))


@case("rows of an array")
def rows_of_an_array():
    array = nd.ones((LONG, 1))
    return Call(lambda: array.tostype("row_sparse"))


@case("__dlpack__")
def dlpack():
    array = nd.ones(LONG)
    return Call(lambda: array.__dlpack__(copy=True, max_version=(1, 0)))


@case("from_dlpack")
def from_dlpack():
    array = numpy.ones(LONG)
    return Call(lambda: nd.from_dlpack(array))


@case("nd.save")
def save():
    arrays, file = ours(1), folder() / "arrays"
    return Call(lambda: nd.save(str(file), arrays))


@case("nd.save with names")
def save_with_names():
    arrays, file = dict(zip(texts(), ours(1))), folder() / "arrays"
    nd.save(str(file), arrays)
    before = file.read_bytes()

    def check_unchanged():
        assert file.read_bytes() == before

    return Call(lambda: nd.save(str(file), arrays), check_unchanged)


@case("nd.load")
def load():
    file = folder() / "arrays"
    nd.save(str(file), ours(1))
    return Call(lambda: nd.load(str(file)))


@case("nd.load with names")
def load_with_names():
    file = folder() / "arrays"
    nd.save(str(file), dict(zip(texts(), ours(1))))
    return Call(lambda: nd.load(str(file)))


@case("state of an optimizer")
def state():
    optimizer, weight, gradient = mx.optimizer.Adam(), nd.ones(LONG), nd.ones(LONG)

    def update():
        made = optimizer.create_state(0, weight)
        optimizer.update(0, weight, gradient, made)
        return [part.asnumpy() for part in made], made.__reduce__()

    return Call(update)


class Allocations:
    """The allocations of the calling thread."""

    def __init__(self, library):
        library = ctypes.CDLL(library)
        self.fail = library.kvstore_fail_allocations
        self.fail.argtypes, self.fail.restype = [ctypes.c_int64, ctypes.c_int], None
        self.stop = library.kvstore_stop_failing
        self.stop.argtypes, self.stop.restype = [], ctypes.c_int


def attempt(run, allocations, count, once):
    """Calls in a thread of its own, whose thread-local buffers are empty. The first `count` long allocations succeed.
    Returns whether one has failed, the result and what was raised.
    """
    outcome = []

    def call():
        result = raised = None
        allocations.fail(count, once)
        try:
            result = run()
        except BaseException as error:
            raised = error
        outcome.append((bool(allocations.stop()), result, raised))

    mx.runtime.trim()
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    return outcome.pop()


def fail_each(call, allocations, once):
    """Calls once per long allocation, which fails then. Returns the number of allocations."""
    for count in range(MOST):
        has_failed, result, raised = attempt(call.run, allocations, count, once)
        if raised is None:
            call.check_done(result)
            if not has_failed:
                return count
            # Other memory was enough.
            call.undo()
        elif has_failed and isinstance(raised, MemoryError):
            call.check_unchanged()
        else:
            raise raised
    raise AssertionError(f"more than {MOST} long allocations")


def main(name, library):
    faulthandler.enable()
    # A collection would run at another allocation each time.
    gc.disable()
    allocations = Allocations(library)
    call, counts = CASES[name](), []
    for once in (True, False):
        counts.append(fail_each(call, allocations, once))
        call.undo()
    print("allocations:", *counts)


if __name__ == "__main__":
    main(*sys.argv[1:])
