"""The API of MXNet 1.9 besides the verbs: functions, custom optimizers, updaters."""

import copy
import pickle
import warnings

import numpy
import pytest

import mxkv as mx
from mxkv import nd

SHAPE = (4, 2)


def rows(values=((1, 2), (-3, 4)), indices=(1, 3), dtype="float32", shape=SHAPE):
    return nd.sparse.row_sparse_array(
        (numpy.array(values, dtype), list(indices)), shape=shape, dtype=dtype
    )


# Functions.


def test_functions_write_to_out():
    a = nd.array([[4, 9], [16, 25]])
    row = a[1]
    assert nd.sqrt(row, out=row) is row
    nd.clip(a[0], -5, 5, out=a[0])
    assert a.tolist() == [[4, 5], [4, 5]]
    with pytest.raises(mx.errors.SpecMismatchError):
        nd.square(a, out=row)


def test_random_numbers_under_the_names_of_mxnet():
    mx.random.seed(3)
    first = mx.random.uniform(1, 2, shape=(2, 3), dtype="float64").tolist()
    mx.random.seed(3)
    assert nd.random_uniform(1, 2, shape=(2, 3), dtype="float64").tolist() == first
    out = nd.zeros((2, 3), dtype="float64")
    mx.random.seed(3)
    assert mx.random.uniform(1, 2, out=out) is out
    assert out.tolist() == first
    assert nd.random_normal(shape=4).shape == (4,)
    with pytest.raises(TypeError, match="out: expected"):
        mx.random.normal(out=[0.0])


@pytest.mark.parametrize(
    "given", [{"shape": (2, 2)}, {"shape": 3}, {"dtype": "float64"}, {"ctx": mx.cpu(1)}]
)
def test_random_numbers_reject_arguments_that_differ_from_out(given):
    out = nd.zeros((2, 3))
    mx.random.uniform(3, 4, shape=[2, 3], dtype=numpy.float32, ctx=mx.cpu(), out=out)
    mx.random.seed(3)
    with pytest.raises(
        mx.errors.SpecMismatchError, match=f"{next(iter(given))}: expected that of `out`"
    ):
        mx.random.uniform(0, 1, out=out, **given)
    assert out.asnumpy().min() >= 3


def test_keys_as_strings():
    assert (mx.base.py_str(b"w"), mx.base.py_str("w")) == ("w", "w")
    with pytest.raises(UnicodeDecodeError):
        mx.base.py_str(b"\xff")


# Stores.


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "uint8", "float32"])
def test_rows_are_pulled_in_the_dtype_of_the_output(dtype):
    kv = mx.kv.create()
    kv.init("w", nd.array([[1.5, 2], [3, 4], [5, 6]]))
    out = nd.zeros((3, 2), mx.cpu(1), dtype, stype="row_sparse")
    kv.row_sparse_pull("w", out=out, row_ids=nd.array([0, 2]))
    expected = numpy.array([[1.5, 2], [0, 0], [5, 6]]).astype(dtype)
    assert (out.dtype, out.context, out.asnumpy().tolist()) == (
        numpy.dtype(dtype),
        mx.cpu(1),
        expected.tolist(),
    )
    kv.pull("w", out=out, ignore_sparse=False)
    assert out.asnumpy()[1].tolist() == [3, 4]


def test_a_pull_of_rows_writes_all_outputs_or_none():
    kv = mx.kv.create()
    kv.init("w", nd.ones((3, 2)))
    good, bad = (
        nd.zeros((3, 2), dtype="float64", stype="row_sparse"),
        nd.zeros((4, 2), stype="row_sparse"),
    )
    with pytest.raises(mx.errors.SpecMismatchError, match="out: expected"):
        kv.row_sparse_pull("w", out=[good, bad], row_ids=[0])
    assert good.indices.tolist() == []


class Plain(mx.kv.KVStoreBase):
    pass


def test_verbs_that_a_store_class_lacks_are_unsupported():
    kv = Plain()
    for name, arguments in {
        "broadcast": ("w", 1, 2), "pushpull": ("w", 1), "set_optimizer": (mx.optimizer.SGD(),),
        "save_optimizer_states": ("f",), "load_optimizer_states": ("f",),
    }.items():  # fmt: skip
        with pytest.raises(NotImplementedError, match=f"`Plain` does not define `{name}`"):
            getattr(kv, name)(*arguments)
    store = mx.kv.create("teststore")
    with pytest.raises(NotImplementedError):
        store.set_optimizer(mx.optimizer.SGD())


# Steps with row-sparse gradients.


def lazy(name, **options):
    return mx.optimizer.create(name, learning_rate=0.5, **options)


@pytest.mark.parametrize("name", mx.optimizer.names())
@pytest.mark.parametrize("weight_form", ["default", "row_sparse"])
def test_an_update_with_rows_equals_the_update_of_a_store(name, weight_form):
    kv, alone, weight = (
        mx.kv.create(),
        mx.optimizer.create(name),
        (nd.ones((3, 2)) * 3).tostype(weight_form),
    )
    kv.init("w", weight)
    kv.set_optimizer(mx.optimizer.create(name))
    state = alone.create_state("w", weight)
    for indices in ([1], [0, 2], [1]):
        gradient = rows([[1, -2]] * len(indices), indices, shape=(3, 2))
        kv.push("w", gradient)
        alone.update("w", weight, gradient, state)
    assert weight.asnumpy().tolist() == kv.pull("w").asnumpy().tolist()
    assert (weight.stype, state.num_updates) == (weight_form, 3)


def test_lazy_steps_change_their_rows_only():
    gradient = rows([[1, 1]], [1], shape=(3, 2))
    for optimizer, expected in [
        (lazy("sgd", wd=0.1), [1, 0.45, 1]),
        (lazy("sgd", wd=0.1, lazy_update=False), [0.95, 0.45, 0.95]),
        (lazy("adagrad"), [1, 0.5, 1]),
        (lazy("nag"), [1, 0.5, 1]),
    ]:
        for weight in (nd.ones((3, 2)), nd.ones((3, 2)).tostype("row_sparse")):
            optimizer.update(0, weight, gradient, optimizer.create_state(0, weight))
            numpy.testing.assert_allclose(weight.asnumpy()[:, 0], expected, rtol=1e-6)


def test_a_row_sparse_weight_has_every_row_after_an_update():
    weight = rows([[1, 1]], [0], shape=(3, 2))
    sgd = lazy("sgd")
    sgd.update(0, weight, rows([[1, 1]], [2], shape=(3, 2)), sgd.create_state(0, weight))
    assert (weight.indices.tolist(), weight.asnumpy()[:, 0].tolist()) == ([0, 1, 2], [1, 0, -0.5])


def test_steps_with_wrong_rows_change_nothing():
    sgd, weight = lazy("sgd", momentum=0.5), nd.ones((3, 2))
    state = sgd.create_state(0, weight)
    for wrong in (rows(), rows([[1, 1]], [1], "float64", (3, 2))):
        with pytest.raises(mx.errors.SpecMismatchError, match="expected"):
            sgd.update(0, weight, wrong, state)
    with pytest.raises(TypeError, match="weight: expected an `NDArray`"):
        sgd.update(0, numpy.ones((3, 2), "float32"), weight, state)
    assert (weight.asnumpy().min(), state.num_updates) == (1, 0)


def test_steps_of_several_weights():
    sgd, weights = lazy("sgd"), [nd.ones(1), nd.ones(2)]
    states = [sgd.create_state(index, weight) for index, weight in enumerate(weights)]
    sgd.update([0, 1], weights, [nd.ones(1), nd.ones(2)], states)
    assert [weight.tolist() for weight in weights] == [[0.5], [0.5, 0.5]]
    with pytest.raises(
        mx.errors.LengthMismatchError, match="gradients and states, found 2, 2, 1, 2"
    ):
        sgd.update([0, 1], weights, [nd.ones(1)], states)


# States in MXNet's layout.


@pytest.mark.parametrize(
    ("name", "options", "full", "half"),
    [("sgd", {}, [], [None, "master"]), ("sgd", {"momentum": 0.9}, ["array"], ["array", "master"]),
     ("nag", {"momentum": 0.9}, ["array"], ["array", "master"]),
     ("adam", {}, ["array", "array"], ["master", ("array", "array")]),
     ("rmsprop", {}, ["array"], ["master", ("array",)]),
     ("adagrad", {}, ["array"], ["master", "array"]),
     ("ftml", {}, ["array"] * 3, ["master", ("array",) * 3]),
     ("signum", {"momentum": 0}, [], ["master", None])],
)  # fmt: skip
def test_states_have_mxnet_s_layout(name, options, full, half):
    def shown(part):
        if isinstance(part, tuple):
            return tuple(shown(one) for one in part)
        if part is None:
            return None
        assert part.dtype == numpy.float32
        return "master" if part.tolist() == [3, 3] else "array"

    for dtype, expected in (("float32", full), ("float16", half)):
        optimizer = mx.optimizer.create(name, **options)
        state = optimizer.create_state_multi_precision(0, nd.full(2, 3, dtype=dtype))
        assert [shown(part) for part in state] == expected
        assert len(state) == len(expected)
        if expected:
            assert shown(state[-1]) == expected[-1]
        with pytest.raises(IndexError):
            _ = state[len(expected)]


def test_a_state_of_one_array_has_the_attributes_of_the_array():
    state = lazy("sgd", momentum=0.5).create_state(0, nd.ones(2, dtype="float64"))
    found = (state.dtype, state.shape, state.context, state.asnumpy().tolist())
    assert found == (numpy.float64, (2,), mx.cpu(), [0, 0])
    assert not hasattr(lazy("adam").create_state(0, nd.ones(2)), "dtype")


# Optimizers written in Python.


class PySGD(mx.optimizer.Optimizer):
    """The SGD of MXNet's tests."""

    def __init__(self, learning_rate=0.01, momentum=0.0, **kwargs):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.momentum = momentum

    def create_state(self, index, weight):
        if self.momentum == 0.0:
            return None
        return nd.zeros(weight.shape, weight.context, dtype=weight.dtype)

    def update(self, index, weight, grad, state):
        lr, wd = self._get_lr(index), self._get_wd(index)
        self._update_count(index)
        grad = grad * self.rescale_grad
        if self.clip_gradient is not None:
            grad = nd.clip(grad, -self.clip_gradient, self.clip_gradient)
        step = (grad + weight * wd) * lr
        if state is None:
            weight[:] -= step
        else:
            state[:] = self.momentum * state - step
            weight += state


OPTIONS = {
    "learning_rate": 0.1,
    "momentum": 0.9,
    "wd": 0.03,
    "clip_gradient": 0.4,
    "rescale_grad": 0.8,
}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_an_optimizer_in_python_agrees_with_the_built_in_one(dtype):
    ours, theirs = mx.optimizer.SGD(**OPTIONS), PySGD(multi_precision=True, **OPTIONS)
    random = numpy.random.default_rng(5)
    left, right = (nd.array(numpy.linspace(-1, 1, 12), dtype=dtype) for _ in range(2))
    states = [it.create_state_multi_precision(0, left) for it in (ours, theirs)]
    for _ in range(5):
        gradient = nd.array(random.normal(size=12), dtype=dtype)
        ours.update_multi_precision(0, left, gradient, states[0])
        theirs.update_multi_precision(0, right, gradient, states[1])
    tolerance = {"float16": 1e-3, "float32": 1e-5, "float64": 1e-12}[dtype]
    numpy.testing.assert_allclose(left.asnumpy(), right.asnumpy(), rtol=tolerance, atol=tolerance)


def test_half_precision_without_a_copy_gives_a_warning():
    with pytest.warns(UserWarning, match="float16 updates lose precision"):
        PySGD().create_state_multi_precision(0, nd.ones(1, dtype="float16"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mx.optimizer.SGD().create_state_multi_precision(0, nd.ones(1, dtype="float16"))


def test_the_base_class_of_optimizers():
    base = mx.optimizer.Optimizer(
        learning_rate=0.5, wd=0.1, param_idx2name={0: "a_weight", 1: "a_bias"}
    )
    base.set_lr_mult({"a_bias": 4, 7: 3})
    assert (base._get_lrs([0, 1, 7]), base._get_wds([0, 1])) == ([0.5, 2.0, 1.5], [0.1, 0.0])
    base._update_count([0, 1])
    base._update_count(1)
    assert (base.num_update, base._index_update_count) == (2, {0: 1, 1: 2})
    assert (base.create_state(0, None), base.clip_gradient, base.multi_precision) == (
        None,
        None,
        False,
    )
    with pytest.raises(NotImplementedError, match="`Optimizer` does not define `update`"):
        base.update(0, None, None, None)
    with pytest.raises(mx.errors.UnsupportedError, match="sym"):
        mx.optimizer.Optimizer(sym=object())
    again = pickle.loads(pickle.dumps(base))
    assert (again.lr_mult, again.num_update) == (base.lr_mult, 2)


def test_registered_classes_are_created_by_name():
    @mx.optimizer.register
    class Mine(PySGD):
        pass

    assert type(mx.optimizer.create("MINE", momentum=0.5)) is Mine
    assert type(mx.optimizer.Optimizer.create_optimizer("mine")) is Mine
    assert isinstance(mx.optimizer.create("sgd"), mx.optimizer.Optimizer)
    with pytest.warns(UserWarning, match="replaces"):
        mx.optimizer.register(type("Mine", (PySGD,), {}))
    with pytest.raises(TypeError, match="register: expected a subclass"):
        mx.optimizer.register(len)
    del mx.optimizer.Optimizer.opt_registry["mine"]


def test_create_rejects_options_beside_an_optimizer():
    sgd = mx.optimizer.SGD()
    assert mx.optimizer.create(sgd) is sgd
    with pytest.raises(mx.errors.InvalidArgumentError, match="found learning_rate, wd"):
        mx.optimizer.create(sgd, learning_rate=0.5, wd=0.1)


def test_the_message_tells_how_to_run_an_optimizer_in_python():
    kv = mx.kv.create()
    with pytest.raises(
        mx.errors.UnsupportedError,
        match=r"`PySGD` defines `create_state`.*get_updater\(optimizer\)",
    ):
        kv.set_optimizer(PySGD())
    with pytest.raises(mx.errors.UnsupportedError, match="`Optimizer` does not define `update`"):
        kv.set_optimizer(mx.optimizer.Optimizer())


@pytest.mark.parametrize("key", [3, "w"])
def test_a_store_runs_an_optimizer_in_python_with_an_updater(key):
    ours, theirs = mx.kv.create(), mx.kv.create()
    for kv in (ours, theirs):
        kv.init(key, nd.ones((2, 2)))
    ours.set_optimizer(mx.optimizer.SGD(**OPTIONS))
    theirs.set_updater(mx.optimizer.get_updater(PySGD(**OPTIONS)))
    for gradient in (nd.ones((2, 2)), rows([[1, 1]], [1], shape=(2, 2))):
        for kv in (ours, theirs):
            # Updaters receive dense arrays, so push dense arrays to both stores.
            kv.push(key, [gradient.tostype("default"), nd.ones((2, 2))])
    numpy.testing.assert_allclose(ours.pull(key).asnumpy(), theirs.pull(key).asnumpy(), rtol=1e-6)


# Updaters.


@pytest.mark.parametrize("kind", [mx.optimizer.SGD, PySGD])
def test_an_updater_keeps_a_state_for_each_key(kind):
    updater, weight = mx.optimizer.get_updater(kind(learning_rate=0.5, momentum=0.9)), nd.ones(2)
    updater(3, nd.ones(2), weight)
    assert weight.tolist() == [0.5, 0.5]
    updater(3, nd.ones(2), weight)
    # The result of MXNet 1.9.1, also after moving the states to another updater.
    numpy.testing.assert_allclose(weight.asnumpy(), -0.45, rtol=1e-6)
    again = mx.optimizer.get_updater(kind(learning_rate=0.25, momentum=0.9))
    again.set_states(updater.get_states())
    assert (list(again.states), again.states_synced) == ([3], {3: False})
    again(3, nd.ones(2), weight)
    numpy.testing.assert_allclose(weight.asnumpy(), -1.555, rtol=1e-6)
    assert again.states_synced == {3: True}
    again.set_states(updater.get_states(dump_optimizer=True))
    assert (again.optimizer.lr, again.optimizer.momentum, type(again.optimizer)) == (0.5, 0.9, kind)


def test_an_updater_accepts_lists_and_bytes_keys():
    updater, weights = mx.optimizer.get_updater(PySGD(learning_rate=0.5)), [nd.ones(1), nd.ones(1)]
    updater([b"a", "b"], [nd.ones(1), nd.ones(1) * 2], weights)
    assert ([weight.tolist() for weight in weights], list(updater.states)) == (
        [[0.5], [0.0]],
        ["a", "b"],
    )
    with pytest.raises(TypeError, match="optimizer: expected an optimizer"):
        mx.optimizer.Updater("sgd")
    with pytest.raises(TypeError, match="states: expected the result"):
        updater.set_states(pickle.dumps([1]))


def test_an_updater_passes_several_weights_with_aggregate_num():
    calls = []

    class Together(PySGD):
        def __init__(self, **options):
            super().__init__(**options)
            self.aggregate_num = 2

        def update_multi_precision(self, index, weight, grad, state):
            calls.append((index, [one.dtype.name for one in weight], len(grad), len(state)))

    kinds = ["float32", "float64", "float32", "float32"]
    weights = [nd.ones(1, dtype=kind) for kind in kinds]
    updater = mx.optimizer.get_updater(Together())
    for lists in [(3, 2, 3), (3, 3, 2), (2, 3, 3)]:
        with pytest.raises(mx.errors.LengthMismatchError, match="indices, gradients and weights"):
            updater(
                *(
                    list(range(count)) if i == 0 else weights[:count]
                    for i, count in enumerate(lists)
                )
            )
    assert updater.states == {}
    updater([0, 1, 2, 3], weights, weights)
    assert calls == [
        ((0, 2), ["float32"] * 2, 2, 2),
        ((3,), ["float32"], 1, 1),
        ((1,), ["float64"], 1, 1),
    ]


@pytest.mark.parametrize("name", mx.optimizer.names())
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_pickled_states_and_optimizers_give_the_same_bits(name, dtype):
    optimizer, weight = (
        mx.optimizer.create(name, wd=0.01, lr_mult={"w": 0.5}),
        nd.array([1, -2, 3], dtype=dtype),
    )
    gradient, state = nd.array([0.5, 1, -1], dtype=dtype), None
    state = optimizer.create_state("w", weight)
    for _ in range(2):
        optimizer.update("w", weight, gradient, state)
    other_optimizer, other_weight, other_state = pickle.loads(
        pickle.dumps((optimizer, weight, state))
    )
    assert (repr(other_optimizer), type(other_optimizer)) == (repr(optimizer), type(optimizer))
    assert (other_optimizer.lr_mult, other_state.num_updates) == ({"w": 0.5}, 2)
    for each, its_weight, its_state in (
        (optimizer, weight, state),
        (other_optimizer, other_weight, other_state),
    ):
        each.update("w", its_weight, gradient, its_state)
    assert weight.tolist() == other_weight.tolist()
    assert copy.deepcopy(state).num_updates == 3


def test_damaged_states_are_rejected():
    state = lazy("adam").create_state(0, nd.ones(2))
    function, (content,) = state.__reduce__()
    assert function(content).num_updates == 0
    for damaged in (b"", content[:-1], content[:40] + b"x" + content[41:]):
        with pytest.raises(mx.errors.CorruptError):
            function(damaged)


# Schedules.


def test_an_optimizer_sets_the_base_lr_of_its_schedule():
    schedule = mx.lr_scheduler.FactorScheduler(step=1, factor=0.5, base_lr=1024)
    for kind in (mx.optimizer.Optimizer, mx.optimizer.SGD):
        first = kind(lr_scheduler=schedule)
        assert (first.lr_scheduler, first.learning_rate) == (schedule, 1024)
        second = kind(lr_scheduler=schedule, learning_rate=0.5)
        assert (second.learning_rate, schedule.base_lr) == (0.5, 1024)
        second.lr_scheduler.base_lr = 0.25
        assert (second.learning_rate, first.learning_rate) == (0.25, 1024)
    kv = mx.kv.create()
    kv.init("w", nd.ones(1))
    kv.set_optimizer(second)
    kv.push("w", nd.ones(1))
    assert kv.pull("w").tolist() == [0.75]
    for wrong in (-1, float("nan")):
        with pytest.raises(mx.errors.InvalidArgumentError):
            schedule.base_lr = wrong
    with pytest.raises(TypeError):
        schedule.base_lr = "high"
    for wrong in ["0.5", b"0.5"]:
        with pytest.raises(mx.errors.ArgumentTypeError, match="base_lr: expected a number"):
            mx.lr_scheduler.FactorScheduler(step=1, base_lr=wrong)
        with pytest.raises(mx.errors.ArgumentTypeError, match="momentum`: expected a number"):
            mx.optimizer.SGD(momentum=wrong)
    assert schedule.base_lr == 1024


def test_the_schedule_of_an_optimizer_can_be_replaced():
    sgd, schedule = (
        mx.optimizer.SGD(learning_rate=0.5),
        mx.lr_scheduler.PolyScheduler(4, base_lr=1, pwr=1),
    )
    assert sgd.lr_scheduler is None
    sgd.lr_scheduler = schedule
    assert (sgd.learning_rate, sgd.lr_scheduler) == (1, schedule)
    sgd.lr = 0.25
    assert (sgd.learning_rate, sgd.lr_scheduler.base_lr, schedule.base_lr) == (0.25, 0.25, 1)
    sgd.lr_scheduler = None
    assert sgd.learning_rate == 0.25
    with pytest.raises(TypeError, match="lr_scheduler: expected"):
        sgd.lr_scheduler = 0.1


@pytest.mark.parametrize("kind", [mx.optimizer.Optimizer, mx.optimizer.SGD])
def test_a_schedule_sets_the_learning_rate(kind):
    optimizer = kind(lr_scheduler=mx.lr_scheduler.FactorScheduler(step=1), learning_rate=0.3)
    with pytest.raises(UserWarning, match="the schedule sets it") as caught:
        optimizer.set_learning_rate(0.5)
    assert isinstance(caught.value, mx.errors.KVStoreError)
    optimizer.lr_scheduler = None
    optimizer.set_learning_rate(0.5)
    assert optimizer.learning_rate == 0.5


def test_an_optimizer_in_python_passes_its_update_count_to_the_schedule():
    optimizer = PySGD(
        learning_rate=1.0, lr_scheduler=mx.lr_scheduler.FactorScheduler(step=1, factor=0.5)
    )
    weight, rates = nd.zeros(1), []
    for _ in range(3):
        optimizer.update(0, weight, nd.ones(1), None)
        rates.append(optimizer.learning_rate)
    assert (rates, weight.tolist()) == ([1.0, 0.5, 0.25], [-2.5])


@pytest.mark.parametrize(
    "schedule",
    [mx.lr_scheduler.FactorScheduler(2, 0.5, base_lr=1, warmup_steps=2, warmup_begin_lr=0.25),
     mx.lr_scheduler.MultiFactorScheduler([2, 4], 0.5),
     mx.lr_scheduler.CosineScheduler(9, final_lr=0.001),
     mx.lr_scheduler.PolyScheduler(9, pwr=3)],
)  # fmt: skip
def test_schedules_are_pickled(schedule):
    for base_lr in (0.125, 2):
        schedule.base_lr = base_lr
        for again in (pickle.loads(pickle.dumps(schedule)), copy.deepcopy(schedule)):
            assert type(again) is type(schedule)
            assert [again(n) for n in range(12)] == [schedule(n) for n in range(12)]
