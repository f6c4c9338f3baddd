"""Arithmetic and copies of row-sparse arrays, as in MXNet 1.9."""

import copy
import pickle

import numpy
import pytest

import mxkv as mx
from mxkv import nd

SHAPE = (4, 2)


def rows(values=((1, 2), (-3, 4)), indices=(1, 3), dtype="float32", shape=SHAPE):
    return nd.sparse.row_sparse_array(
        (numpy.array(values, dtype), list(indices)), shape=shape, dtype=dtype
    )


def other():
    return rows([[10, 0], [20, 30]], [0, 1])


def dense():
    return nd.ones(SHAPE) * 5


#: Operation -> row indices of the result, or None for a dense result, from MXNet 1.9.1.
OPERATIONS = {
    "a + 2": None, "2 + a": None, "a + b": [0, 1, 3], "a + d": None, "d + a": None,
    "a - 2": None, "2 - a": None, "a - b": [0, 1, 3], "a - d": None, "d - a": None,
    "a * 2": [1, 3], "2 * a": [1, 3], "a * b": [0, 1, 3], "a * d": [1, 3], "d * a": None,
    "a / 2": [1, 3], "2 / a": None, "a / b": None, "a / d": None, "d / a": None,
    "a % 2": None, "a ** 2": None, "2 ** a": None, "a ** d": None,
    "a == 2": [1, 3], "a == b": None, "a == d": None, "a != 2": None, "a != d": None,
    "a > 2": [1, 3], "2 > a": None, "a > b": None, "d > a": None,
    "a <= 2": None, "2 <= a": [1, 3], "a <= b": None,
    "a + 0": [1, 3], "a - 0": [1, 3], "0 - a": None, "-a": [1, 3], "abs(a)": [1, 3],
}  # fmt: skip


@pytest.mark.parametrize("text", OPERATIONS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_operators_agree_with_those_of_dense_arrays(text):
    expression = compile(text, text, "eval")
    a, b, d = rows(), other(), dense()
    found = eval(expression, {"a": a, "b": b, "d": d})
    assert found.stype == ("default" if OPERATIONS[text] is None else "row_sparse")
    if OPERATIONS[text] is not None:
        assert found.indices.tolist() == OPERATIONS[text]
    expected = eval(expression, {"a": a.todense(), "b": b.todense(), "d": d})
    numpy.testing.assert_array_equal(found.asnumpy(), expected.asnumpy())
    assert (a.asnumpy().tolist(), b.indices.tolist()) == (rows().asnumpy().tolist(), [0, 1])


def test_absent_rows_stay_0_in_products():
    for found in (rows() * float("inf"), rows() / 0, rows() * (dense() * float("nan"))):
        assert found.indices.tolist() == [1, 3]
        assert found.asnumpy()[0].tolist() == [0, 0]


#: Functions that keep the array row-sparse in MXNet 1.9.1.
ROWS = {
    "abs",
    "ceil",
    "fix",
    "floor",
    "negative",
    "relu",
    "rint",
    "round",
    "sign",
    "sin",
    "sqrt",
    "square",
    "tanh",
}


@pytest.mark.parametrize("name", sorted(ROWS | {"cos", "exp", "log", "rsqrt", "sigmoid"}))
def test_functions_of_row_sparse_arrays(name):
    found = getattr(nd, name)(rows())
    assert found.stype == ("row_sparse" if name in ROWS else "default")
    expected = getattr(nd, name)(rows().todense())
    numpy.testing.assert_array_equal(found.asnumpy(), expected.asnumpy())


def test_reductions_and_clip_of_row_sparse_arrays():
    a = rows()
    assert (nd.sum(a).tolist(), a.norm().tolist(), a.mean().tolist()) == (
        [4.0],
        nd.norm(a.todense()).tolist(),
        [0.5],
    )
    assert (nd.clip(a, -1, 1).stype, nd.clip(a, 1, 2).stype) == ("row_sparse", "default")
    assert nd.clip(a, 1, 2).asnumpy().tolist() == nd.clip(a.todense(), 1, 2).asnumpy().tolist()
    assert nd.maximum(a, other()).asnumpy().tolist() == [[10, 0], [20, 30], [0, 0], [0, 4]]
    assert nd.minimum(1, a).asnumpy().tolist() == [[0, 0], [1, 1], [0, 0], [-3, 1]]


def test_operators_with_numpy_arrays():
    four = numpy.full(SHAPE, 4, "float32")
    for found in (rows() + four, four + rows()):
        assert isinstance(found, nd.NDArray)
        assert found.asnumpy()[1].tolist() == [5, 6]
    assert (rows() * numpy.float32(2)).indices.tolist() == [1, 3]


def in_place(text):
    names = {"a": rows(), "b": other(), "d": dense()}
    before = names["a"]
    exec(text, names)
    assert names["a"] is before
    return names["a"].indices.tolist(), names["a"].asnumpy()[1].tolist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a += b", ([0, 1, 3], [21, 32])), ("a -= b", ([0, 1, 3], [-19, -28])),
     ("a *= 2", ([1, 3], [2, 4])),
     ("a += 1", ([0, 1, 2, 3], [2, 3])), ("a += d", ([0, 1, 2, 3], [6, 7])),
     ("a /= 2", ([1, 3], [0.5, 1])),
     ("a **= 2", ([0, 1, 2, 3], [1, 4])), ("a %= 2", ([0, 1, 2, 3], [1, 0])),
     ("a[:] = b", ([0, 1], [20, 30])), ("a[:] = d", ([0, 1, 2, 3], [5, 5])),
     ("a[:] = 2", ([0, 1, 2, 3], [2, 2]))],
)  # fmt: skip
def test_operators_in_place(text, expected):
    assert in_place(text) == expected


def test_dense_arrays_accept_row_sparse_operands_in_place():
    d = dense()
    d += rows()
    d[:] -= other()
    assert d.asnumpy().tolist() == [[-5, 5], [-14, -23], [5, 5], [2, 9]]


def test_operands_of_other_shapes_and_types_are_rejected():
    a = rows()
    for wrong in (rows(shape=(5, 2)), rows(dtype="float64"), nd.ones((2, 2))):
        with pytest.raises(mx.errors.SpecMismatchError, match="add: expected"):
            _ = a + wrong
        with pytest.raises(mx.errors.SpecMismatchError):
            a += wrong
    for wrong in (
        lambda: a + "one",
        lambda: a[1],
        lambda: a.__setitem__(1, 5),
        lambda: a.__iadd__("one"),
    ):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(mx.errors.InvalidArgumentError, match="zero"):
        _ = rows([[1, 2]], [1], "int32") / 0
    assert a.asnumpy().tolist() == rows().asnumpy().tolist()


# Copies of row-sparse arrays.


def test_row_sparse_arrays_are_copied_to_arrays_and_devices():
    a = rows()
    assert a.copyto(mx.cpu(1)).context == mx.cpu(1)
    assert a.as_in_context(a.context) is a
    target = nd.sparse.zeros("row_sparse", SHAPE, mx.cpu(2), "float64")
    assert a.copyto(target) is target
    assert (target.indices.tolist(), target.dtype, target.ctx) == ([1, 3], numpy.float64, mx.cpu(2))
    dense_target = nd.zeros(SHAPE, dtype="float64")
    a.copyto(dense_target)
    assert dense_target.asnumpy().tolist() == a.asnumpy().tolist()
    full = nd.sparse.zeros("row_sparse", SHAPE)
    dense().copyto(full)
    assert full.indices.tolist() == [0, 1, 2, 3]
    for wrong in (nd.sparse.zeros("row_sparse", (5, 2)), nd.zeros((5, 2))):
        with pytest.raises(mx.errors.SpecMismatchError):
            a.copyto(wrong)


def test_copies_of_row_sparse_arrays_are_independent():
    a = rows()
    copies = [
        a.copy(),
        copy.deepcopy(a),
        pickle.loads(pickle.dumps(a)),
        nd.array(a),
        nd.sparse.row_sparse_array(a),
    ]
    a *= 10
    for made in copies:
        assert (made.stype, made.indices.tolist(), made.data.tolist()) == (
            "row_sparse",
            [1, 3],
            [[1, 2], [-3, 4]],
        )
    assert a.astype("float32", copy=False) is a
    assert (a.astype("float64").dtype, nd.array(a, dtype="int32").dtype) == (
        numpy.float64,
        numpy.int32,
    )
    d = dense()
    assert (d.astype("float32", copy=False) is d, d.astype("float32") is d) == (True, False)


def test_stype_arguments():
    assert nd.zeros(SHAPE, stype="row_sparse").indices.tolist() == []
    assert (
        nd.zeros(shape=SHAPE, stype="default").asnumpy().tolist()
        == nd.zeros(SHAPE, stype=None).asnumpy().tolist()
    )
    assert nd.empty(SHAPE, stype="row_sparse", dtype="int8").dtype == numpy.int8
    assert (nd.zeros_like(rows()).stype, nd.sparse.zeros("row_sparse", 3).shape) == (
        "row_sparse",
        (3,),
    )
    assert nd.sparse.row_sparse_array((4, 2)).shape == (4, 2)
    with pytest.raises(ValueError, match="stype: expected `row_sparse` or `default`, found `csr`"):
        nd.zeros(SHAPE, stype="csr")
    with pytest.raises(ValueError, match="shape"):
        nd.sparse.row_sparse_array((4, 2), shape=(4, 3))
