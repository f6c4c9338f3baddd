"""Errors: classes, codes, and messages about wrong arguments."""

import numpy
import pytest

import mxkv as mx
from mxkv import nd
from test_store import filled

def test_every_code_of_the_core_has_a_class():
    codes = mx._native.error_codes()
    assert [code for code in mx.errors.CLASSES if code != "Type"] == codes
    for code in codes:
        kind = mx.errors.CLASSES[code]
        assert kind.code == code
        assert issubclass(kind, mx.MXNetError)


@pytest.mark.parametrize("kind", mx.errors.CLASSES.values(), ids=lambda kind: kind.__name__)
def test_errors_can_be_printed_and_pickled(kind):
    import pickle

    error = kind("what went wrong", key="w", expected="1", found="2")
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert (str(one), one.key, one.expected, one.found) == ("what went wrong", "w", "1", "2")
        assert one.code == kind.code


def test_errors_are_builtin_exceptions_too():
    kv = filled("w")
    with pytest.raises(KeyError) as caught:
        kv.push("v", nd.ones(2))
    assert (caught.value.code, caught.value.key) == ("KeyNotFound", "v")
    with pytest.raises(mx.errors.KeyExistsError):
        kv.init("w", nd.ones(2))
    with pytest.raises(ValueError) as caught:
        kv.push("w", nd.ones(3))
    assert (caught.value.code, caught.value.expected, caught.value.found) == (
        "SpecMismatch",
        "[2] f32",
        "[3] f32",
    )
    with pytest.raises(mx.errors.LengthMismatchError):
        kv.push(["w"], [nd.ones(2)] * 2)
    with pytest.raises(NotImplementedError):
        mx.kv.create("nccl")
    with pytest.raises(OSError):
        kv.restore("/nowhere/at/all")
    with pytest.raises(ValueError, match="optimizer"):
        kv.save_optimizer_states("/tmp/states")
    assert kv.pull("w").tolist() == [0, 0]


def test_a_closed_store():
    with mx.kv.create() as kv:
        kv.init("w", nd.ones(2))
    with pytest.raises(mx.errors.ClosedError, match="closed"):
        kv.pull("w")
    kv.close()
    assert repr(kv) == "<KVStore, closed>"


WRONG = {
    "priority: a text": (
        lambda kv, a: kv.push("w", a, "high"),
        TypeError,
        "priority: expected an integer of 32 bits, found 'high'",
    ),
    "priority: a fraction": (
        lambda kv, a: kv.pull("w", a, 1.5),
        TypeError,
        "priority: expected an integer of 32 bits, found 1.5",
    ),
    "priority: too large": (
        lambda kv, a: kv.push("w", a, 2**31),
        ValueError,
        "priority: expected an integer of 32 bits, found 2147483648",
    ),
    "priority: of rows": (
        lambda kv, a: kv.row_sparse_pull("w", priority="a", row_ids=[0]),
        TypeError,
        "priority",
    ),
    "key: half a character": (
        lambda kv, a: kv.init("\udc80", a),
        ValueError,
        "key: expected valid Unicode, found ",
    ),
    "compression: a text": (
        lambda kv, a: kv.set_gradient_compression("2bit"),
        TypeError,
        "such as {'type': '2bit'",
    ),
    "hyper-parameters: a text": (
        lambda kv, a: kv.set_hyper_parameters(wd="a"),
        TypeError,
        "hyper-parameter `wd`: expected a number, found 'a'",
    ),
    "hyper-parameters: a number": (
        lambda kv, a: kv.set_hyper_parameters(1),
        TypeError,
        "changed: expected a map",
    ),
    "threshold": (
        lambda kv, a: kv.set_gradient_compression({"type": "2bit", "threshold": 10**400}),
        ValueError,
        "threshold: expected a number that fits into `float64`, found 1",
    ),
    "capability": (lambda kv, a: kv.is_capable(None), ValueError, "Unknown capability: None, "),
    "name of a store": (
        lambda kv, a: mx.kv.KVStore(3),
        TypeError,
        "name: expected a string, found 3",
    ),
    "device: a number": (lambda kv, a: nd.ones(2, ctx=3), TypeError, "ctx: expected a device"),
    "device: no number": (
        lambda kv, a: mx.cpu("a"),
        TypeError,
        "device id: expected a whole number, found 'a'",
    ),
    "number: too large": (lambda kv, a: a * 10**400, ValueError, "fits into `float64`"),
    "number: too large for integers": (
        lambda kv, a: nd.ones(1, dtype="int8") + 2**63,
        ValueError,
        "an integer that fits into `int64`, found 9223372036854775808",
    ),
    "number: too large in `full`": (
        lambda kv, a: nd.full(1, 2**63, dtype="int64"),
        ValueError,
        "an integer that fits into `int64`, found 9223372036854775808",
    ),
    "number: of `clip`": (
        lambda kv, a: a.clip(0, 10**400),
        ValueError,
        "a number that fits into `float64`",
    ),
    "shape: a text": (
        lambda kv, a: a.reshape("a"),
        TypeError,
        "shape: expected an integer of 64 bits, or a sequence of them, found 'a'",
    ),
    "shape: too large": (
        lambda kv, a: a.reshape(2**70),
        ValueError,
        "shape: expected an integer of 64 bits, or a sequence of them, found .118059162",
    ),
    "shape: more than a list": (
        lambda kv, a: a.reshape((1, 2), 3),
        TypeError,
        "shape: expected an integer of 64 bits, or a sequence of them, found ",
    ),
    "axis": (
        lambda kv, a: nd.concatenate([a], axis=-2),
        ValueError,
        r"concatenate: axis -2 is out of range for \[2\] f32: expected at least -1",
    ),
    "axis: too large": (
        lambda kv, a: nd.concatenate([a], axis=2**70),
        ValueError,
        "axis: expected an integer of 64 bits, found 1180591620717411303424",
    ),
    "axis: of nothing": (
        lambda kv, a: nd.concatenate([], axis=-1),
        ValueError,
        "concatenate: no arrays",
    ),
    "array: a number": (lambda kv, a: nd.abs(3), TypeError, "data: expected an array, found 3"),
    "operand": (
        lambda kv, a: nd.maximum(a, "x"),
        TypeError,
        "maximum: expected an array or a number, found 'x'",
    ),
    "operand of np": (
        lambda kv, a: mx.np.minimum(None, a),
        TypeError,
        "minimum: expected an array or a number, found None",
    ),
    "like what": (lambda kv, a: mx.np.full_like(3, 3), TypeError, "a: expected an array, found 3"),
    "optimizer: a number": (
        lambda kv, a: mx.optimizer.create(3),
        TypeError,
        "name: expected a string",
    ),
    "factors": (lambda kv, a: mx.optimizer.SGD(lr_mult=3), TypeError, "lr_mult: expected a map"),
    "factor": (
        lambda kv, a: mx.optimizer.SGD(wd_mult={"w": "b"}),
        TypeError,
        "wd_mult of key `w`: expected a number, found 'b'",
    ),
    "updates: negative": (
        lambda kv, a: mx.lr_scheduler.PolyScheduler(-1),
        ValueError,
        "max_update: expected 0 to ",
    ),
    "updates: too many": (
        lambda kv, a: mx.lr_scheduler.FactorScheduler(1e30),
        ValueError,
        "step: expected 0 to .* found 1e.30",
    ),
    "update: negative": (
        lambda kv, a: mx.lr_scheduler.FactorScheduler(1)(-1),
        ValueError,
        "num_update: expected an integer of 0 or more, found -1",
    ),
    "name: thousands of digits": (
        lambda kv, a: mx.kv.create(10**5000),
        TypeError,
        "name: expected a string, found a `int`",
    ),
    "device: beyond all": (
        lambda kv, a: mx.cpu(2**32),
        ValueError,
        "device id: expected 0 to ",
    ),
    "updates: a text": (
        lambda kv, a: mx.lr_scheduler.FactorScheduler("a"),
        TypeError,
        "step: expected a whole number",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_rejected_and_change_nothing(name):
    call, kind, text = WRONG[name]
    kv, array = filled("w"), nd.ones(2)
    with pytest.raises(mx.errors.KVStoreError, match=text) as caught:
        call(kv, array)
    assert isinstance(caught.value, kind)
    assert caught.value.code == "InvalidArgument"
    assert (kv.pull("w").tolist(), array.tolist(), kv.keys()) == ([0, 0], [1, 1], ["w"])


def test_integers_beyond_int64_become_the_nearest_float():
    assert (nd.ones(1) * 2**63).tolist() == [2.0**63]
    assert nd.full(1, -(2**70), dtype="float64").tolist() == [-(2.0**70)]
    assert nd.concat(nd.ones((1, 2)), nd.zeros((1, 1)), dim=-1).tolist() == [[1, 1, 0]]
    for step in (2.0, numpy.float32(2), numpy.int8(2)):
        assert mx.lr_scheduler.FactorScheduler(step=step, factor=0.5, base_lr=1)(3) == 0.5


def test_an_exception_of_an_argument_is_the_cause():
    class Mine:
        def __index__(self):
            raise OverflowError("of mine")

    with pytest.raises(mx.errors.InvalidArgumentError, match="priority") as caught:
        filled("w").push("w", nd.ones(2), Mine())
    assert str(caught.value.__cause__) == "of mine"
