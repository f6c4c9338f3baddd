"""Calls of stores and snapshots whose long allocations fail."""

import numpy
from allocation_cases import (
    LONG,
    NUM_KEYS,
    Call,
    case,
    change,
    folder,
    foreign,
    ours,
    pairs,
    rows,
    store,
    texts,
)

import mxkv as mx
from mxkv import nd

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
    return change(kv, lambda: kv.init(keys, values, on_existing="replace"))


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


@case("push with clip_global_norm")
def push_clipped():
    kv = store()
    kv.set_clip_global_norm(0.5)
    return change(kv, lambda: kv.push(texts(), ours(2)))
