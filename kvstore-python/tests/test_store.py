"""Stores: keys, forms of arguments, updaters, optimizers, snapshots."""

import gc
import math
import traceback
import weakref

import numpy
import pytest

import mxkv as mx
from mxkv import nd


def filled(keys, value=0.0):
    kv = mx.kv.create()
    kv.init(keys, [nd.full(2, value)] * len(keys) if isinstance(keys, list) else nd.full(2, value))
    return kv


# Keys and forms of arguments.


def test_the_four_forms_of_values():
    kv = filled(["a", "b"])
    one, two = nd.ones(2), nd.ones(2) * 2
    kv.push("a", one)
    assert kv.pull("a").tolist() == [1, 1]
    kv.push("a", [one, two])
    assert kv.pull("a").tolist() == [3, 3]
    kv.push(["a", "b"], [one, two])
    assert [it.tolist() for it in kv.pull(["a", "b"])] == [[1, 1], [2, 2]]
    kv.push(("a", "b"), ([one, two], [two]))
    assert [it.tolist() for it in kv.pull(["a", "b"])] == [[3, 3], [2, 2]]
    kv.push(["a", "b"], [one, [two, two]])
    assert [it.tolist() for it in kv.pull(["a", "b"])] == [[1, 1], [4, 4]]
    kv.push(["a", "a", "b"], [one, two, two])
    assert kv.pull("a").tolist() == [3, 3]


def test_the_forms_of_outputs():
    kv = filled(["a", "b"], 7)
    outs = [[nd.zeros(2), nd.zeros(2, dtype="int32")], [numpy.zeros(2)]]
    kv.pull(["a", "b"], out=outs)
    assert [one.tolist() for row in outs for one in row] == [[7, 7]] * 3
    assert outs[0][1].dtype == numpy.int32
    out = nd.zeros(2)
    assert kv.pull("a", out=out) is None
    assert out.tolist() == [7, 7]


def test_empty_lists_do_nothing():
    kv = mx.kv.create()
    kv.init([], [])
    kv.push([], [])
    assert kv.pull([]) == []


def test_a_store_class_may_have_its_own_arguments():
    class Counting(mx.kv.KVStore):
        def __init__(self, limit):
            super().__init__("device")
            self.limit, self.pushed = limit, 0

        def push(self, key, value, priority=0):
            self.pushed += 1
            super().push(key, value, priority)

    class Forgetful(mx.kv.KVStore):
        def __init__(self):
            pass

    kv = Counting(limit=3)
    kv.init("a", nd.zeros(2))
    kv.push("a", nd.ones(2))
    assert (kv.type, kv.pushed, kv.limit, kv.pull("a").tolist()) == ("device", 1, 3, [1, 1])
    assert isinstance(kv, mx.kv.KVStoreBase)
    with pytest.raises(mx.errors.ClosedError):
        Forgetful().init("a", nd.zeros(2))


def test_a_store_is_opened_once():
    kv = filled([3])
    with pytest.raises(mx.errors.InvalidArgumentError, match="cannot be opened twice"):
        kv.__init__("device")
    assert (kv.type, kv.keys()) == ("local", [3])


def test_existing_keys():
    kv = filled("a", 1)
    kv.init("a", nd.zeros(2), on_existing="keep")
    assert kv.pull("a").tolist() == [1, 1]
    kv.init("a", nd.zeros(3), on_existing="replace")
    assert kv.pull("a").shape == (3,)
    with pytest.raises(ValueError, match="on_existing"):
        kv.init("a", nd.zeros(3), on_existing="what")


def test_later_changes_of_arrays_do_not_change_the_store():
    kv, value = mx.kv.create(), nd.ones(2)
    kv.init("a", value)
    value += 1
    pulled = kv.pull("a")
    pulled += 5
    assert kv.pull("a").tolist() == [1, 1]


def test_remove_and_stats():
    kv = filled(["a", "b"])
    kv.push("b", nd.ones(2))
    stats = kv.stats()[1]
    assert (stats.key, stats.shape, stats.dtype, stats.num_pushes) == ("b", (2,), "float32", 1)
    assert stats.context == mx.cpu()
    kv.remove("a")
    assert kv.keys() == ["b"]
    assert len(kv) == 1
    assert repr(kv) == "<KVStore local, 1 keys>"


# Updaters.


def adding(key, pushed, stored):
    stored += pushed


def test_an_updater_receives_the_sum_and_changes_the_stored_value():
    kv, seen = filled([9, 5, 7]), []

    def update(key, pushed, stored):
        seen.append((key, pushed.tolist(), type(pushed), type(stored)))
        stored[:] = pushed * 10

    kv._set_updater(update)
    kv.push([5, 9, 5], [nd.ones(2)] * 3)
    assert seen == [(9, [1, 1], nd.NDArray, nd.NDArray), (5, [2, 2], nd.NDArray, nd.NDArray)]
    assert [it.tolist() for it in kv.pull([5, 9])] == [[20, 20], [10, 10]]
    kv.set_updater(None)
    kv.push(5, nd.ones(2))
    assert kv.pull(5).tolist() == [1, 1]


def test_an_updater_receives_string_keys_as_strings():
    kv, seen = filled(["3"]), []
    kv.set_updater(lambda key, pushed, stored: seen.append(key))
    kv.push("3", nd.ones(2))
    assert seen == ["3"]


def test_updaters_receive_np_arrays_after_set_np():
    kv, seen = filled(3), []
    kv.set_updater(lambda key, pushed, stored: seen.append(type(stored)))
    mx.npx.set_np()
    try:
        kv.push(3, nd.ones(2))
        assert type(kv.pull(3)) is mx.np.ndarray
    finally:
        mx.npx.reset_np()
    assert seen == [mx.np.ndarray]


@pytest.mark.parametrize(
    "kind", [ValueError, KeyboardInterrupt, SystemExit, KeyError, StopIteration]
)
def test_push_raises_the_exception_of_an_updater(kind):
    kv, raised = filled(["a", "b", "c"]), kind("mine")

    def update(key, pushed, stored):
        stored += 1
        if key == "b":
            raise raised

    kv.set_updater(update)
    with pytest.raises(kind) as caught:
        kv.push(["a", "b", "c"], [nd.ones(2)] * 3)
    assert caught.value is raised
    names = [frame.name for frame in traceback.extract_tb(raised.__traceback__)]
    # `push` is native code, so the traceback has the test and the updater.
    assert (names[0], names[-1]) == ("test_push_raises_the_exception_of_an_updater", "update")
    # Earlier keys are updated. The failing key and later keys are not.
    assert [it.tolist() for it in kv.pull(["a", "b", "c"])] == [[1, 1], [0, 0], [0, 0]]


def test_an_updater_can_read_the_store_but_not_change_it():
    kv, seen = filled(["a", "b"]), []

    def update(key, pushed, stored):
        seen.append(kv.pull("b").tolist())
        kv.push("b", nd.ones(2))

    kv.set_updater(update)
    with pytest.raises(mx.errors.InvalidArgumentError):
        kv.push("a", nd.ones(2))
    assert seen == [[0, 0]]
    kv.set_updater(None)


def test_later_writes_to_the_arrays_of_an_updater_have_no_effect():
    kv, kept = filled("a"), []

    def update(key, pushed, stored):
        stored += pushed
        kept.extend([pushed, stored])

    kv.set_updater(update)
    value = numpy.ones(2, dtype="float32")
    kv.push("a", value)
    kept[0][:] = 5
    kept[1][:] = 6
    assert value.tolist() == [1, 1]
    assert kv.pull("a").tolist() == [1, 1]
    value[:] = 3
    assert kept[0].tolist() == [5, 5]


def test_a_value_that_an_updater_keeps_does_not_change():
    kv, kept = filled("a"), []
    kv.set_updater(lambda key, pushed, stored: kept.append(pushed))
    value = numpy.ones(2, dtype="float32")
    kv.push("a", value)
    value[:] = 3
    assert kept[0].tolist() == [1, 1]


def test_a_store_keeps_its_updater_alive_until_it_is_dropped():
    def update(key, pushed, stored):
        pass

    gone = weakref.ref(update)
    kv = filled("a")
    kv.set_updater(update)
    del update
    gc.collect()
    assert gone() is not None
    del kv
    gc.collect()
    assert gone() is None


def test_an_updater_must_be_callable():
    with pytest.raises(TypeError):
        filled("a").set_updater(7)


# Optimizers.

START = [[1, -2], [0.5, 3]]
GRADIENTS = [[[0.1, -0.2], [0.3, 0.4]], [[-0.5, 0.25], [1.5, -2]], [[0.05, 0.6], [-0.7, 0.8]]]


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("sgd", {}, [1.0035, -2.0065, 0.489, 3.008]),
        (
            "SGD",
            {
                "learning_rate": 0.1,
                "momentum": 0.9,
                "wd": 0.01,
                "rescale_grad": 0.5,
                "clip_gradient": 0.3,
            },
            [1.025839, -2.015465, 0.4296344, 2.95603],
        ),
        ("nag", {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.0}, None),
        ("adam", {}, [0.9999963, -1.999786, 0.4977997, 2.999796]),
        (
            "adagrad",
            {
                "learning_rate": 0.1,
                "eps": 0.001,
                "wd": 0.05,
                "rescale_grad": 0.5,
                "clip_gradient": 0.1,
            },
            [0.9660033, -2.001212, 0.3862769, 2.872695],
        ),
        ("adadelta", {}, [1.001896, -2.017197, 0.4846292, 2.996406]),
        (
            "rmsprop",
            {
                "learning_rate": 0.1,
                "gamma1": 0.8,
                "gamma2": 0.7,
                "centered": True,
                "epsilon": 0.001,
                "wd": 0.01,
                "clip_gradient": 0.4,
            },
            [0.9058184, -1.968472, -0.2631664, 2.597925],
        ),
        (
            "rmsprop",
            {"learning_rate": 0.1, "clip_weights": 1.0},
            [0.9618838, -1, 0.01068945, 0.8789766],
        ),
        (
            "ftrl",
            {"lamda1": 0.1, "learning_rate": 0.5, "beta": 2, "wd": 0.1},
            [0.08790332, -0.2737374, -0.1017698, 0.5379574],
        ),
        ("adamax", {}, [0.9993345, -1.99911, 0.4963181, 2.999113]),
        ("nadam", {}, [0.9999043, -2.000724, 0.4982993, 2.999599]),
        ("signum", {}, [1.01, -2.01, 0.47, 3.01]),
        ("ftml", {}, [0.9978027, -2.004695, 0.4850118, 2.995438]),
        (
            "dcasgd",
            {"learning_rate": 0.1, "lamda": 0.5, "wd": 0.01, "clip_gradient": 0.4},
            [1.022066, -2.038905, 0.469167, 2.951093],
        ),
        ("ccsgd", {"learning_rate": 0.1, "momentum": 0.5}, [1.0525, -2.0625, 0.2925, 3.15]),
        ("test", {"rescale_grad": 2.0}, [0.3, -0.7, 2.7, 1.4]),
    ],
)
def test_updates_recorded_in_mxnet(name, options, expected):
    kv = mx.kv.create()
    kv.init("w", nd.array(START))
    kv.set_optimizer(mx.optimizer.create(name, **options))
    weight = nd.array(START)
    alone = mx.optimizer.create(name, **options)
    state = alone.create_state("w", weight)
    for gradient in GRADIENTS:
        kv.push("w", nd.array(gradient))
        alone.update("w", weight, nd.array(gradient), state)
    assert weight.tolist() == kv.pull("w").tolist()
    if expected is not None:
        numpy.testing.assert_allclose(kv.pull("w").asnumpy().ravel(), expected, rtol=2e-5)


def test_every_optimizer_has_a_class():
    classes = [cls for cls in mx.optimizer.Optimizer.opt_registry.values() if hasattr(cls, "_name")]
    # `names` omits `test`.
    assert {cls._name for cls in classes} == {*mx.optimizer.names(), "test"}
    for cls in classes:
        assert isinstance(mx.optimizer.create(cls.__name__), cls)


def test_options_are_applied_or_rejected():
    sgd = mx.optimizer.SGD(learning_rate=0.1, clip_gradient=None, multi_precision=True)
    assert sgd.hyper_parameters["clip_gradient"] == 0
    for wrong in ({"momentun": 0.9}, {"learning_rate": -1}):
        with pytest.raises(ValueError):
            mx.optimizer.SGD(**wrong)
    with pytest.raises(TypeError, match="learning_rate"):
        mx.optimizer.SGD(learning_rate="fast")
    with pytest.raises(ValueError, match="unknown optimizer `sgdd`"):
        mx.optimizer.create("sgdd")


def test_schedules_and_multipliers():
    schedule = mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=0.1)
    assert [schedule(n) for n in range(1, 9)] == [
        0.1,
        0.1,
        0.05,
        0.05,
        0.025,
        0.025,
        0.0125,
        0.0125,
    ]
    sgd = mx.optimizer.SGD(lr_scheduler=schedule, lr_mult={"b": 2})
    assert sgd.learning_rate == 0.1
    kv = filled(["a", "b"])
    kv.set_optimizer(sgd)
    for _ in range(3):
        kv.push(["a", "b"], [nd.ones(2)] * 2)
    numpy.testing.assert_allclose(kv.pull("a").asnumpy(), -0.25, rtol=1e-6)
    numpy.testing.assert_allclose(kv.pull("b").asnumpy(), -0.5, rtol=1e-6)
    warm = mx.lr_scheduler.CosineScheduler(10, base_lr=1, warmup_steps=4, warmup_begin_lr=0)
    assert [warm(n) for n in (1, 2, 4)] == [0.25, 0.5, 1]
    with pytest.raises(ValueError):
        mx.lr_scheduler.FactorScheduler(step=0)
    with pytest.raises(
        ValueError, match="warmup_begin_lr: expected at most base_lr, 0.1, found 0.5"
    ):
        mx.lr_scheduler.PolyScheduler(10, base_lr=0.1, warmup_steps=4, warmup_begin_lr=0.5)


def test_hyper_parameters_of_a_running_store():
    kv = filled("a")
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=1))
    kv.set_hyper_parameters({"learning_rate": 0.5})
    kv.push("a", nd.ones(2))
    assert kv.pull("a").tolist() == [-0.5, -0.5]


# Snapshots, checkpoints and settings.


def test_saved_states_give_the_same_bits(tmp_path):
    kv = filled("a", 1)
    kv.set_optimizer(mx.optimizer.Adam())
    kv.push("a", nd.ones(2))
    kv.save_optimizer_states(tmp_path / "states", dump_optimizer=True)
    writing = kv.checkpoint(tmp_path / "all")
    writing.wait()
    assert writing.num_bytes_written == writing.num_bytes > 0
    other = mx.kv.create("device")
    other.restore(tmp_path / "all")
    third = mx.kv.create()
    third.init("a", kv.pull("a"))
    third.set_optimizer(mx.optimizer.Adam())
    third.load_optimizer_states(tmp_path / "states")
    for store in (kv, other, third):
        store.push("a", nd.ones(2) * 3)
    assert kv.pull("a").tolist() == other.pull("a").tolist() == third.pull("a").tolist()
    read = mx.kvstore.read_checkpoint(tmp_path / "all")
    assert read.keys() == ["a"]
    assert read.hyper_parameters()


def test_compression():
    kv = filled("a")
    kv.set_gradient_compression({"type": "1bit"})
    kv.set_gradient_compression(None)
    wrong_ones = [{}, {"type": "3bit"}, {"type": "2bit", "treshold": 1}]
    wrong_ones += [{"type": "2bit", "threshold": threshold} for threshold in (-1, "abc", [1])]
    for wrong in wrong_ones:
        with pytest.raises(mx.errors.InvalidArgumentError):
            kv.set_gradient_compression(wrong)


def test_clip_global_norm():
    random = numpy.random.default_rng(5)
    shapes = {"a": (3, 4), "b": (70,), "c": (1,)}
    pushed = {
        key: [random.normal(size=shape).astype("float32") for _ in range(3)]
        for key, shape in shapes.items()
    }
    sums = {key: (values[0] + values[1]) + values[2] for key, values in pushed.items()}
    norm = math.sqrt(sum(float((it.astype("float64") ** 2).sum()) for it in sums.values()))
    kv = mx.kv.create()
    kv.init(list(shapes), [numpy.zeros(shape, "float32") for shape in shapes.values()])
    assert kv.clip_global_norm() is None
    for bound in (norm / 7, 1, norm * 2):
        kv.set_clip_global_norm(bound)
        assert kv.clip_global_norm() == bound
        kv.push(list(shapes), list(pushed.values()))
        factor = min(1, bound / (norm + 1e-8))
        for key in shapes:
            numpy.testing.assert_allclose(kv.pull(key).asnumpy(), sums[key] * factor, rtol=1e-6)
    kv.set_clip_global_norm(norm / 7)
    # The optimizer receives the clipped sum, and applies `rescale_grad` afterwards.
    kv.init("w", numpy.zeros(2, "float32"))
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=1, rescale_grad=0.5))
    kv.set_clip_global_norm(5)
    kv.push("w", numpy.array([6, -8], "float32"))
    assert kv.pull("w").tolist() == [-1.5, 2]
    again = mx.kv.create()
    again.rollback(kv.snapshot())
    assert again.clip_global_norm() == 5
    kv.set_clip_global_norm(None)
    assert kv.clip_global_norm() is None


def test_invalid_bounds_of_the_norm_are_rejected():
    kv = filled("a")
    kv.init("n", numpy.zeros(2, "int32"))
    for wrong, kind in (
        (0, ValueError),
        (-1, ValueError),
        (math.inf, ValueError),
        (math.nan, ValueError),
    ):
        with pytest.raises(kind, match="clip_global_norm: expected a finite number above 0, found"):
            kv.set_clip_global_norm(wrong)
    with pytest.raises(TypeError, match="max_norm: expected a number"):
        kv.set_clip_global_norm("1")
    kv.set_clip_global_norm(1)
    with pytest.raises(
        mx.errors.InvalidArgumentError,
        match="key `n`: clip_global_norm needs floating-point values",
    ):
        kv.push("n", numpy.ones(2, "int32"))
    with pytest.raises(
        mx.errors.InvalidArgumentError,
        match="clip_global_norm 1 and compression 2bit: expected one",
    ):
        kv.set_gradient_compression({"type": "2bit"})
    kv.set_clip_global_norm(None)
    kv.set_gradient_compression({"type": "2bit"})
    with pytest.raises(mx.errors.InvalidArgumentError, match="expected one of them"):
        kv.set_clip_global_norm(1)


def test_row_sparse_pull():
    kv = mx.kv.create()
    kv.init(["a", "b"], [nd.array([[1, 2], [3, 4], [5, 6]])] * 2)
    out = nd.sparse.zeros("row_sparse", (3, 2))
    kv.row_sparse_pull("a", out=out, row_ids=nd.array([2, 0]))
    assert (out.indices.tolist(), out.data.tolist()) == ([0, 2], [[1, 2], [5, 6]])
    dense = nd.zeros((3, 2))
    kv.row_sparse_pull("a", out=[dense], row_ids=[1])
    assert dense.tolist() == [[0, 0], [3, 4], [0, 0]]
    pulled = kv.row_sparse_pull(["a", "b"], row_ids=[[0], numpy.array([1, 1])])
    assert [rows.indices.tolist() for rows in pulled] == [[0], [1]]
    assert "2 rows" in repr(out)
    with pytest.raises(ValueError, match="3"):
        kv.row_sparse_pull("a", row_ids=[3])
    with pytest.raises(TypeError):
        kv.row_sparse_pull("a")


def test_pulls_into_row_sparse_outputs():
    kv = mx.kv.create()
    kv.init(["a", "b"], [nd.array([[0, 0], [3, 4], [5, 0]]), nd.ones((3, 2))])
    rows, dense = nd.sparse.zeros("row_sparse", (3, 2)), nd.zeros((3, 2))
    with pytest.warns(UserWarning, match="row_sparse_pull"):
        kv.pull(["a", "b"], out=[rows, dense])
    assert (rows.indices.tolist(), dense.tolist()) == ([], [[1, 1]] * 3)
    kv.pull(["b", "a"], out=[dense, [rows]], ignore_sparse=False)
    assert (rows.indices.tolist(), rows.data.tolist()) == ([1, 2], [[3, 4], [5, 0]])
    kv.pull("b", out=rows, ignore_sparse=0)
    assert rows.indices.dtype == numpy.int64
    assert rows.indices.tolist() == [0, 1, 2]


def test_failed_pulls_into_row_sparse_outputs_change_nothing():
    kv = mx.kv.create()
    kv.init("a", nd.ones((3, 2)))
    dense = nd.zeros((3, 2))
    for wrong in (
        nd.sparse.zeros("row_sparse", (4, 2)),
        nd.sparse.zeros("row_sparse", (3, 3), dtype="int32"),
    ):
        with pytest.raises(ValueError, match="out"):
            kv.pull("a", out=[dense, wrong], ignore_sparse=False)
        with pytest.raises(ValueError, match="out"):
            kv.row_sparse_pull("a", out=[dense, wrong], row_ids=[0])
    rows = nd.sparse.zeros("row_sparse", (3, 2))
    with pytest.raises(ValueError, match="keys"):
        kv.pull(["a"], out=[dense, rows])
    with pytest.raises(KeyError), pytest.warns(UserWarning):
        kv.pull("c", out=rows)
    assert dense.tolist() == [[0, 0]] * 3


# Other store classes.


def test_capabilities():
    assert mx.kv.create().is_capable("optimizer")
    assert not mx.kv.create("teststore").is_capable("optimizer")
    with pytest.raises(ValueError, match="Unknown capability: x"):
        mx.kv.create().is_capable("x")


def test_one_process():
    kv = mx.kv.create("LOCAL")
    assert (kv.type, kv.rank, kv.num_workers) == ("local", 0, 1)
    kv._barrier()
    kv.set_barrier_before_exit(True)
    assert kv.get_num_dead_node(0) == 0
    with pytest.raises(TypeError):
        mx.kv.create(3)


def test_the_test_store():
    store, outs = mx.kv.create("TestStore"), [nd.zeros(2), nd.zeros(2)]
    store.broadcast("w", nd.ones(2), out=outs)
    assert outs[1].tolist() == [1, 1]
    values = [nd.ones(2), nd.ones(2)]
    store.pushpull("w", values)
    assert values[0].tolist() == [2, 2]
    # As in MXNet, the test store ignores keys. Arrays may be of any library.
    of_numpy = numpy.zeros(2)
    store.pushpull(None, [nd.ones(2), numpy.ones(2, dtype="float32")], out=[of_numpy, outs[0]])
    assert of_numpy.tolist() == outs[0].tolist() == [2, 2]
    store.broadcast(["a", "b"], numpy.full(2, 7.0), out=of_numpy)
    assert of_numpy.tolist() == [7, 7]
    assert not mx.kv.TestStore.is_capable("optimizer")
    assert (store.type, store.rank, store.num_workers) == ("teststore", 0, 1)


def test_snapshots_of_integer_keys():
    kv = filled([3, 5], 1)
    kv.set_optimizer(mx.optimizer.Adam())
    kv.push(3, nd.ones(2))
    before = kv.snapshot()
    assert before.get(5).tolist() == [1, 1]
    assert before.get("7") is None
    assert before.stats()[0].num_pushes == 1
    assert before.optimizer_state(3).num_updates == 1
    assert len(before.optimizer_state(3).arrays()) == 2
    assert before.hyper_parameters()["beta1"] == 0.9
    kv.push(3, nd.ones(2))
    assert before.changed_keys(kv.snapshot()) == ["3"]
    kv.rollback(before)
    assert before.is_identical(kv.snapshot())
    assert repr(before) == "<Snapshot of a local store, 2 keys>"
