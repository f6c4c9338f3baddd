"""Rejected values, outputs and options: messages name key, place and reason; nothing changes."""

import numpy
import pytest

import mxkv as mx
from mxkv import nd

WINDOWS = numpy.lib.stride_tricks.as_strided


def filled(*keys):
    kv = mx.kv.create()
    kv.init(list(keys), [nd.zeros(2)] * len(keys))
    return kv


def rejected(call, kind=mx.errors.InvalidArgumentError):
    with pytest.raises(kind) as caught:
        call()
    assert caught.value.code == "InvalidArgument"
    return caught.value


def sparse_gradient():
    class Sparse:
        """Behaves like a sparse tensor of PyTorch."""

        layout, requires_grad = "torch.sparse_coo", False

        def __dlpack_device__(self):
            return 1, 0

        def __dlpack__(self, **_):
            raise RuntimeError("unsupported tensor layout: torch.sparse_coo")

    return Sparse()


def read_only():
    array = numpy.zeros(2)
    array.flags.writeable = False
    return array


def test_the_message_names_one_bad_gradient_among_640():
    keys = [f"layer{index}" for index in range(640)]
    kv, gradients = filled(*keys), [numpy.ones(2, dtype="float32") for _ in keys]
    for bad, found in (
        (None, "expected an array or a list of arrays, found a `NoneType`"),
        (
            numpy.ones(2, dtype="complex64"),
            f"dtype `complex64`: expected one of {', '.join(mx._native.dtype_names())}",
        ),
        (
            numpy.ma.array([1.0, 2.0], mask=[0, 1]),
            "a `MaskedArray` would lose its mask: use `.filled(..)`, or `.data`",
        ),
    ):
        gradients[17] = bad
        for call in (kv.push, kv.pushpull):
            error = rejected(lambda call=call: call(keys, gradients), TypeError)
            assert str(error).startswith(f"key `layer17`: value[17]: {found}"), error
            assert error.key == "layer17"
    assert kv.pull("layer3").tolist() == [0, 0]


@pytest.mark.parametrize(
    ("keys", "values", "text"),
    [
        (
            "w",
            None,
            "key `w`: value: expected an array, a list of arrays or a nested list of arrays, "
            "found a `NoneType`",
        ),
        (
            "w",
            [nd.ones(2), 3],
            "key `w`: value[1]: expected an array or a list of arrays, found a `int`",
        ),
        (
            ["w", "b"],
            [[nd.ones(2)], [nd.ones(2), None]],
            "key `b`: value[1][1]: expected an array, found a `NoneType`",
        ),
        (
            ["w", "b"],
            [nd.ones(2), [nd.ones(2), "a"]],
            "key `b`: value[1][1]: expected an array, found a `str`",
        ),
        (
            ["w"],
            [nd.ones(2), None],
            "value[1]: expected an array or a list of arrays, found a `NoneType`",
        ),
        (
            {"w": nd.ones(2), "b": None},
            None,
            "key `b`: value[1]: expected an array or a list of arrays",
        ),
    ],
)
def test_the_message_names_the_place_of_a_value(keys, values, text):
    kv = filled("w", "b")
    arguments = (keys,) if isinstance(keys, dict) else (keys, values)
    if values is None and not isinstance(keys, dict):
        # Without a value, the message names no key.
        text = text.removeprefix("key `w`: ")
    assert str(rejected(lambda: kv.push(*arguments))).startswith(text)
    assert [array.tolist() for array in kv.pull(["w", "b"])] == [[0, 0]] * 2


def test_the_message_names_integer_keys():
    kv = mx.kv.create()
    error = rejected(lambda: kv.init([3, 4], [nd.ones(2), numpy.array(["a", "b"])]))
    assert str(error).startswith("key `4`: value[1]: dtype `<U1`: expected one of float32, float64")
    assert kv.keys() == []


def test_the_message_names_outputs_that_are_not_writable():
    kv, good = filled("w", "b"), numpy.full(2, 7.0)
    for bad, found in (
        (read_only(), "ndarray [2] f64 is read-only"),
        (
            WINDOWS(numpy.zeros(2), (2,), (0,)),
            "ndarray [2] f64 has elements that overlap in memory",
        ),
        (numpy.ma.zeros(2), "a `MaskedArray` would lose its mask: use `.filled(..)`"),
        (numpy.zeros(2, dtype="uint16"), "dtype `uint16`: expected one of float32"),
        ("text", "expected an array or a list of arrays, found a `str`"),
    ):
        for call in (
            lambda bad=bad: kv.pull(["w", "b"], out=[good, bad]),
            lambda bad=bad: kv.pushpull(["w", "b"], [nd.ones(2)] * 2, out=[good, bad]),
            lambda bad=bad: kv.broadcast(["x", "b"], [nd.ones(2)] * 2, out=[good, bad]),
        ):
            error = rejected(call)
            assert str(error).startswith(f"key `b`: out[1]: {found}"), error
            assert error.key == "b"
    assert (kv.keys(), good.tolist()) == (["w", "b"], [7, 7])
    assert str(rejected(lambda: kv.pull("w", out=read_only()))).startswith("key `w`: out: ndarray")
    kv.init("rows", nd.ones((3, 2)))
    pull = lambda: kv.row_sparse_pull("rows", out=read_only(), row_ids=[0])  # noqa: E731
    error = rejected(pull)
    assert (error.key, str(error)) == ("rows", "key `rows`: out[0]: ndarray [2] f64 is read-only")


def test_the_message_names_the_gradient_of_an_update_without_a_store():
    sgd, weight = mx.optimizer.SGD(), nd.ones(2)
    state = sgd.create_state(3, weight)
    error = rejected(lambda: sgd.update(3, weight, None, state), TypeError)
    assert (error.key, str(error), weight.tolist()) == (
        "3",
        "key `3`: gradient: expected an array, found a `NoneType`",
        [1, 1],
    )


def test_an_exception_of_the_program_is_raised_unchanged():
    class Raising:
        __dlpack_device__ = None

        @property
        def __dlpack__(self):
            raise ZeroDivisionError("of the program's own")

    with pytest.raises(ZeroDivisionError, match="^of the program's own$"):
        filled("w").push("w", [nd.ones(2), Raising()])


def test_the_cause_of_a_rejected_value_is_kept():
    error = rejected(lambda: filled("w").push("w", sparse_gradient()))
    assert isinstance(error.__cause__, RuntimeError)


def test_message_for_sparse_gradients_shows_the_conversion():
    error = rejected(lambda: filled("w").push("w", sparse_gradient()), TypeError)
    assert str(error).startswith(
        "key `w`: value: a `Sparse` does not export its elements, it is `torch.sparse_coo`: "
    )
    assert "nd.sparse.row_sparse_array((t.values(), t.indices()[0]), shape=tuple(t.shape)" in str(
        error
    )


MASKED = {
    "an array": lambda: numpy.ma.array([1.0, 2.0], mask=[0, 1]),
    "nothing is masked": lambda: numpy.ma.array([1.0, 2.0]),
    "a list": lambda: [numpy.ma.array([1.0, 2.0], mask=[0, 1]), [3.0, 4.0]],
    "a list in a list": lambda: [[[1.0, numpy.ma.masked]]],
    "integers": lambda: numpy.ma.masked_equal([1, 2], 2),
}


@pytest.mark.parametrize("name", MASKED)
def test_masked_arrays_are_rejected(name):
    masked = MASKED[name]()
    calls = [nd.array, mx.np.array, nd.sparse.row_sparse_array]
    calls.append(lambda value: nd.zeros(2).__setitem__(slice(None), value))
    if not isinstance(masked, list):
        calls += [
            nd.from_numpy,
            nd.from_dlpack,
            lambda value: nd.ones(2) + value,
            nd.ones(2).__iadd__,
            nd.abs,
        ]
    for call in calls:
        error = rejected(lambda call=call: call(masked), TypeError)
        assert "mask: use `.filled(..)`, or `.data`" in str(error)


def test_a_masked_number_is_rejected():
    for call in (lambda: nd.ones(2) + numpy.ma.masked, lambda: nd.full(2, numpy.ma.masked)):
        assert "would lose its mask" in str(rejected(call, TypeError))


def test_filled_and_data_of_a_masked_array_are_values():
    masked, kv = numpy.ma.array([1.0, 2.0], mask=[0, 1], fill_value=9), filled("w")
    kv.push("w", [nd.array(masked.filled()), nd.array(masked.data)])
    assert kv.pull("w").tolist() == [2, 11]


def test_an_array_interface_with_a_mask_is_rejected():
    class Masked:
        def __init__(self):
            self.array = numpy.ones(2, dtype="float32")
            self.__array_interface__ = {
                **self.array.__array_interface__,
                "mask": numpy.ones(2, dtype=bool),
            }

    assert "an array with a mask" in str(
        rejected(lambda: filled("w").push("w", Masked()), TypeError)
    )


OVERLAPPING = {
    "sliding windows": ((3, 2), (8, 8)),
    "one place": ((3, 2), (0, 8)),
    "half an element apart": ((3, 2), (4, 24)),
    "meeting once": ((4, 3), (16, 24)),
    "backwards": ((3, 2), (-8, 8)),
    "a diagonal twice": ((2, 2, 2), (8, 16, 24)),
}


@pytest.mark.parametrize("name", OVERLAPPING)
def test_an_output_whose_elements_overlap_is_rejected(name):
    shape, strides = OVERLAPPING[name]
    room = numpy.zeros(64)
    out = WINDOWS(room[32:], shape, strides)
    kv = mx.kv.create()
    kv.init("w", numpy.ones(shape))
    error = rejected(lambda: kv.pull("w", out=out))
    assert str(error).endswith("f64 has elements that overlap in memory")
    assert room.sum() == 0
    kv.push("w", out)
    assert kv.pull("w").asnumpy().sum() == 0


def test_outputs_with_other_strides_are_written():
    room = numpy.zeros((4, 6, 8))
    for out in (
        room,
        room.T,
        room[::2, ::-3, 1::2],
        room.transpose(1, 0, 2)[:, ::-1],
        room[:, 0, :],
        numpy.einsum("ijj->ij", numpy.zeros((3, 5, 5))),
        numpy.zeros(3, dtype=[("a", "u1"), ("b", "<f8")])["b"],
        WINDOWS(numpy.zeros(12), (3, 3), (16, 24)),
    ):
        kv, value = mx.kv.create(), numpy.arange(out.size, dtype="float64").reshape(out.shape)
        kv.init("w", value)
        kv.pull("w", out=out)
        numpy.testing.assert_array_equal(out, value)


@pytest.mark.parametrize("name", mx.optimizer.names())
def test_lr_and_learning_rate_exclude_each_other(name):
    assert mx.optimizer.create(name, lr=0.5).learning_rate == 0.5
    kv = filled("w")
    kv.set_optimizer(mx.optimizer.create(name, lr=0.5))
    for call in (
        lambda: mx.optimizer.create(name, lr=0.25, learning_rate=0.25),
        lambda: mx.optimizer.create(name, lr=0.25, learning_rate=0.125),
        lambda: kv.set_hyper_parameters(lr=0.25, learning_rate=0.25),
        lambda: kv.set_hyper_parameters({"learning_rate": 0.25}, lr=0.25),
    ):
        error = str(rejected(call))
        assert (
            "`lr`" in error
            and "`learning_rate`" in error
            and "expected one of them, found both" in error
        )
    assert kv.hyper_parameters()["learning_rate"] == 0.5
    kv.set_hyper_parameters(lr=0.25)
    assert kv.hyper_parameters()["learning_rate"] == 0.25


def test_aliases_of_an_option_exclude_each_other():
    assert "`eps` and `epsilon`" in str(
        rejected(lambda: mx.optimizer.AdaGrad(eps=1e-3, epsilon=1e-3))
    )
    kv = filled("w")
    kv.set_optimizer(mx.optimizer.SGD())
    assert "`wd`: given in `changed` and as keyword" in str(
        rejected(lambda: kv.set_hyper_parameters({"wd": 1}, wd=2))
    )


def test_a_schedule_starts_at_the_rate_under_either_name():
    for name in ("lr", "learning_rate"):
        schedule = mx.lr_scheduler.FactorScheduler(step=1, base_lr=0.5)
        assert mx.optimizer.SGD(lr_scheduler=schedule, **{name: 0.25}).lr == 0.25


@pytest.mark.parametrize("yes", [True, 1, 1.0, numpy.bool_(True)])
def test_boolean_options_accept_booleans(yes):
    rmsprop = mx.optimizer.RMSProp(centered=yes, multi_precision=yes)
    assert rmsprop.centered == 1
    rmsprop.centered = not yes
    assert rmsprop.centered == 0
    assert mx.optimizer.SGD(lazy_update=yes).lazy_update == 1
    kv = filled("w")
    kv.set_optimizer(rmsprop)
    kv.set_hyper_parameters(centered=yes)
    assert kv.hyper_parameters()["centered"] == 1


@pytest.mark.parametrize("bad", [True, False, numpy.bool_(True)])
def test_other_options_reject_booleans(bad):
    kv, sgd = filled("w"), mx.optimizer.SGD()
    kv.set_optimizer(mx.optimizer.SGD())
    for call in (
        lambda: mx.optimizer.SGD(learning_rate=bad),
        lambda: mx.optimizer.SGD(lr=bad),
        lambda: mx.optimizer.create("sgd", momentum=bad),
        lambda: setattr(sgd, "wd", bad),
        lambda: sgd.set_learning_rate(bad),
        lambda: sgd.set_lr_mult({"w": bad}),
        lambda: kv.set_hyper_parameters(clip_gradient=bad),
        lambda: kv.set_gradient_compression({"type": "2bit", "threshold": bad}),
        lambda: kv.set_clip_global_norm(bad),
        lambda: mx.lr_scheduler.FactorScheduler(step=2, factor=bad),
        lambda: mx.lr_scheduler.CosineScheduler(max_update=2, base_lr=bad),
        lambda: mx.lr_scheduler.PolyScheduler(max_update=2, warmup_begin_lr=bad),
    ):
        error = str(rejected(call, TypeError))
        assert "expected a number, found " in error, error
    assert "step: expected a whole number" in str(
        rejected(lambda: mx.lr_scheduler.FactorScheduler(step=bad))
    )
    assert "multi_precision`: expected a boolean" in str(
        rejected(lambda: mx.optimizer.SGD(multi_precision=2))
    )
    assert "0 or 1" in str(rejected(lambda: mx.optimizer.RMSProp(centered=2)))


@pytest.mark.parametrize("name", ["ftml", "ftrl"])
def test_a_learning_rate_of_0_leaves_the_weight(name):
    schedule = mx.lr_scheduler.CosineScheduler(max_update=4, base_lr=0.5)
    kv = mx.kv.create()
    kv.init("w", nd.array([1, -2]))
    kv.set_optimizer(mx.optimizer.create(name, lr_scheduler=schedule))
    weights = []
    for _ in range(7):
        kv.push("w", nd.array([0.5, 0.25]))
        weights.append(kv.pull("w").tolist())
    assert weights[3:] == [weights[2]] * 4
    assert numpy.isfinite(weights).all()
    kv.set_optimizer(mx.optimizer.create(name, lr=0))
    kv.push("w", nd.array([0.5, 0.25]))
    assert kv.pull("w").tolist() == weights[2]
    kv.set_hyper_parameters(lr=0.5)
    kv.push("w", nd.array([0.5, 0.25]))
    assert numpy.isfinite(kv.pull("w").asnumpy()).all()
    assert kv.pull("w").tolist() != weights[2]
