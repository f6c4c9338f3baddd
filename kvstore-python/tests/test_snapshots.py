"""Pickles, copies and deltas of snapshots."""

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


def test_a_delta_has_the_changes_since_a_snapshot(tmp_path):
    kv = mx.kv.create()
    kv.set_optimizer(mx.optimizer.Adam(learning_rate=0.1))
    kv.init(["large", "small"], [mx.nd.zeros(10000), mx.nd.zeros(2)])
    first, second, third = (tmp_path / name for name in ("1", "2", "3"))
    base = kv.snapshot()
    assert base.files() == []
    with pytest.raises(ValueError, match="must be in a file"):
        kv.checkpoint(second, since=base)
    base.checkpoint(first).wait()
    kv.push("small", mx.nd.ones(2))
    now = kv.snapshot()
    now.checkpoint(second, since=base).wait()
    assert now.files() == [str(path.resolve()) for path in (second, first)]
    kv.push("small", mx.nd.ones(2) * 3)
    writing = kv.checkpoint(third, since=now)
    writing.wait()
    assert writing.num_bytes == writing.num_bytes_written == third.stat().st_size < 10000
    assert first.stat().st_size > 40000
    read = mx.kvstore.read_checkpoint(third)
    assert read.is_identical(kv.snapshot())
    assert len(read.files()) == 3
    # A store that continues from the file writes the next delta.
    other = mx.kv.create()
    other.rollback(read)
    for store in (kv, other):
        store.push("small", mx.nd.ones(2))
    other.checkpoint(tmp_path / "4", since=read).wait()
    assert mx.kvstore.read_checkpoint(tmp_path / "4").is_identical(kv.snapshot())
    for wrong in (first, tmp_path / "none" / "5"):
        with pytest.raises(ValueError, match="a delta "):
            kv.checkpoint(wrong, since=now)
    with pytest.raises(TypeError):
        kv.checkpoint(third, since=str(second))
    # A pickle has all values, and is in no file.
    assert pickle.loads(pickle.dumps(now)).files() == []
    before = kv.snapshot()
    second.write_bytes(first.read_bytes())
    with pytest.raises(mx.errors.CorruptError, match="2 is damaged: expected the base of .*3 with"):
        kv.restore(third)
    second.unlink()
    with pytest.raises(OSError, match="2: reading the base of .*3: "):
        kv.restore(third)
    assert kv.snapshot().is_identical(before)
