"""Pickles and copies of snapshots."""

import copy
import pickle

import numpy
import pytest

import mxkv as mx
from mxkv import nd


def gradient(seed):
    return nd.array(numpy.random.default_rng(seed).normal(size=3), dtype="float32")


def trained():
    """Returns a store with values of several kinds and an optimizer that has updated a key."""
    kv = mx.kv.create()
    kv.init("w", nd.ones(3))
    kv.init("half", nd.ones((2, 2), dtype="float16"))
    kv.init("rows", nd.sparse.row_sparse_array((numpy.ones((1, 2), "float32"), [1]), shape=(3, 2)))
    kv.set_optimizer(mx.optimizer.Adam(lr_scheduler=mx.lr_scheduler.FactorScheduler(2, 0.5)))
    kv.push("w", gradient(1))
    return kv


def test_a_pickled_snapshot_gives_the_same_next_steps():
    kv = trained()
    snapshot = kv.snapshot()
    again = pickle.loads(pickle.dumps(snapshot))
    assert again.is_identical(snapshot)
    assert (again.keys(), again.type) == (["w", "half", "rows"], snapshot.type)
    assert again.hyper_parameters() == snapshot.hyper_parameters()
    other = mx.kv.create()
    other.rollback(again)
    for seed in range(2, 6):
        for store in (kv, other):
            store.push("w", gradient(seed))
        assert kv.pull("w").asnumpy().tobytes() == other.pull("w").asnumpy().tobytes()


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol(protocol):
    snapshot = trained().snapshot()
    assert pickle.loads(pickle.dumps(snapshot, protocol)).is_identical(snapshot)


def test_a_copy_is_the_snapshot_itself():
    snapshot = trained().snapshot()
    assert copy.copy(snapshot) is snapshot
    assert copy.deepcopy([snapshot, snapshot]) == [snapshot, snapshot]


def test_damaged_bytes_are_rejected():
    snapshot = trained().snapshot()
    restore, (content,) = snapshot.__reduce__()
    for damaged in (b"", b"no checkpoint", content[:-1], content + b"\0"):
        with pytest.raises(mx.errors.CorruptError):
            restore(damaged)
    assert restore(content).is_identical(snapshot)
