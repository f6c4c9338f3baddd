"""The cases of failed_allocations.py: their registry and the functions that they share."""

import pathlib
import tempfile

import numpy

import mxkv as mx
from mxkv import nd

#: A list of this many pointers is a long allocation, of 64 KiB or more.
NUM_KEYS = 9000
#: An array with this many elements is also a long allocation.
LONG = 40_000
#: The cases by name. Each is a function that prepares a `Call`.
CASES = {}


class Call:
    """A call whose long allocations fail.

    `check_unchanged` runs after a failed call, `check_done` after a successful one. `undo` then
    prepares the next call.
    """

    def __init__(
        self, run, check_unchanged=lambda: None, check_done=lambda _: None, undo=lambda: None
    ):
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


# Functions that the cases use.


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
    """Returns the elements of all outputs, including nested outputs, as a set."""
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
    """Returns a call that leaves the store and the outputs unchanged if it fails. The outputs are 0
    at first. After a successful call, each element of an output is `done`.
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
