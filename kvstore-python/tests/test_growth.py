"""The time of a call grows linearly with the length of its lists."""

import time

import numpy
import pytest

import mxkv as mx
from mxkv import nd

SMALL, FACTOR = 2000, 32
#: Linear growth is a factor of 32, quadratic growth 1024. Cache misses add a factor of up to 6.
MOST = 450


def arrays(count):
    return [numpy.zeros(1, dtype="float32") for _ in range(count)]


def store(keys):
    kv = mx.kv.create()
    kv.init(keys, [nd.ones(1)] * len(keys) if isinstance(keys, list) else nd.ones(1))
    return kv


# Each function returns a call with `count` items.


def pull(count):
    kv, outs = store("w"), arrays(count)
    return lambda: kv.pull("w", out=outs)


def pull_into_one_array(count):
    kv, outs = store("w"), arrays(1) * count
    return lambda: kv.pull("w", out=outs)


def pull_of_keys(count):
    keys = list(range(count))
    kv, outs = store(keys), arrays(count)
    return lambda: kv.pull(keys, out=outs)


def pull_of_keys_in_reverse(count):
    keys = list(range(count))
    kv, outs = store(keys), arrays(count)
    return lambda: kv.pull(keys[::-1], out=outs)


def pull_into_own_arrays(count):
    kv, outs = store("w"), [nd.zeros(1) for _ in range(count)]
    return lambda: kv.pull("w", out=outs)


def pull_into_rows_of_an_array(count):
    kv, array = store("w"), nd.zeros((count, 1))
    outs = [array[index] for index in range(count)]
    return lambda: kv.pull("w", out=outs)


def pull_into_lists(count):
    keys = list(range(count // 4))
    kv, outs = store(keys), [arrays(4) for _ in keys]
    return lambda: kv.pull(keys, out=outs)


def pull_of_a_map(count):
    outs = dict(enumerate(arrays(count)))
    kv = store(list(outs))
    return lambda: kv.pull(outs)


def push(count):
    kv, values = store("w"), arrays(count)
    return lambda: kv.push("w", values)


def push_of_keys(count):
    keys = list(range(count))
    kv, values = store(keys), arrays(count)
    return lambda: kv.push(keys, values)


def pushpull(count):
    kv, values, outs = store("w"), arrays(count), arrays(count)
    return lambda: kv.pushpull("w", values, out=outs)


def pushpull_in_place(count):
    kv, values = store("w"), arrays(count)
    return lambda: kv.pushpull("w", values)


def broadcast(count):
    keys = iter(range(1000))
    kv, outs = mx.kv.create(), arrays(count)
    return lambda: kv.broadcast(next(keys), nd.ones(1), out=outs)


def init(count):
    keys, values = list(range(count)), arrays(count)
    return lambda: mx.kv.create().init(keys, values)


def remove(count):
    keys = list(range(count))
    kv, values = mx.kv.create(), [nd.ones(1)] * count

    def call():
        kv.init(keys, values, on_existing="replace")
        kv.remove(keys)

    return call


def row_sparse_pull(count):
    kv, outs = store("w"), arrays(count)
    outs = [out.reshape(1) for out in outs]
    return lambda: kv.row_sparse_pull("w", out=outs, row_ids=[[0]] * count)


def seconds(call):
    """Returns the processor time of a call, which other processes affect less than elapsed time."""
    start = time.process_time()
    call()
    return time.process_time() - start


CALLS = [pull, pull_into_one_array, pull_of_keys, pull_of_keys_in_reverse, pull_into_own_arrays,
         pull_into_rows_of_an_array, pull_into_lists, pull_of_a_map, push, push_of_keys, pushpull,
         pushpull_in_place, broadcast, init, remove, row_sparse_pull]


@pytest.mark.parametrize("prepare", CALLS, ids=lambda prepare: prepare.__name__)
def test_a_call_takes_time_in_proportion_to_its_items(prepare):
    small, large = prepare(SMALL), prepare(SMALL * FACTOR)
    small()
    ratios = []
    # Other processes can slow down some rounds, so one good round is enough.
    for _ in range(6):
        ratios.append(seconds(large) / min(seconds(small) for _ in range(3)))
        if ratios[-1] < MOST:
            return
    raise AssertionError(f"{FACTOR} times as many items take {min(ratios):.1f} times as long")


def test_an_output_object_for_several_keys_receives_the_key_initialised_last():
    kv, out, other = mx.kv.create(), numpy.zeros(2), numpy.zeros(2)
    kv.init(["a", "b", "c"], [nd.full(2, number) for number in (1, 2, 3)])
    kv.pull(["c", "a", "b"], out=[out, out, other])
    assert (out.tolist(), other.tolist()) == ([3, 3], [2, 2])


def test_outputs_that_overlap_are_written_in_the_order_of_the_call():
    kv, room = mx.kv.create(), numpy.zeros(6)
    kv.init(["a", "b"], [nd.full(4, 1), nd.full(4, 2)])
    kv.pull(["b", "a"], out=[room[:4], room[2:]])
    assert room.tolist() == [2, 2, 1, 1, 1, 1]
    # Two views of the same elements are two outputs.
    kv.pull(["b", "a"], out=[room[:4], room[:4]])
    assert room.tolist() == [1, 1, 1, 1, 1, 1]


def test_object_created_during_the_call_is_a_separate_output():
    """An output must not be taken for another one that was at its address before."""
    outs = []

    class NewOutput:
        """Creates a new array for each export."""

        def __dlpack__(self, **options):
            out = numpy.zeros(2, dtype="float32")
            # Old versions of NumPy reject the options, and are called again without them.
            capsule = out.__dlpack__(**options)
            outs.append(out)
            return capsule

    kv = store("w")
    kv.init("v", nd.ones(2))
    kv.pull("v", out=[NewOutput() for _ in range(20)])
    assert [out.tolist() for out in outs] == [[1, 1]] * 20
