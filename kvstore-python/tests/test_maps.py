"""Mappings from key to array, or to list of arrays, in place of keys and values."""

import collections
import types

import numpy
import pytest

import mxkv as mx
from mxkv import nd
from test_store import filled


def values(kv, *keys):
    return [kv.pull(key).tolist() for key in keys]


def test_every_verb_accepts_a_mapping():
    kv, a, b = mx.kv.create(), nd.zeros(2), numpy.zeros(2, dtype="float32")
    kv.init({"a": nd.ones(2), "b": nd.ones(2) * 2})
    assert kv.keys() == ["a", "b"]
    kv.push({"b": [nd.ones(2), nd.ones(2)]}, priority=1)
    assert values(kv, "a", "b") == [[1, 1], [2, 2]]
    kv.push({"b": nd.ones(2) * 5, "a": nd.ones(2) * 4})
    kv.pull({"a": [a], "b": b})
    assert (a.tolist(), b.tolist()) == ([4, 4], [5, 5])
    kv.pushpull({"a": [a, a]})
    assert a.tolist() == [8, 8]
    kv.pushpull({"a": nd.ones(2), "b": nd.ones(2)}, out={"a": b})
    assert (values(kv, "a", "b"), b.tolist()) == ([[1, 1], [1, 1]], [1, 1])
    kv.broadcast({"c": nd.ones(2) * 3}, out={"c": [a, b]})
    assert (a.tolist(), b.tolist()) == ([3, 3], [3, 3])


def test_mappings_of_any_class_and_with_integer_keys():
    kv = mx.kv.create()
    kv.init(collections.OrderedDict([(3, nd.ones(2)), (1, nd.ones(2))]))
    kv.push(types.MappingProxyType({1: numpy.full(2, 7.0, dtype="float32")}))
    assert (kv.keys(), values(kv, 3, 1)) == ([3, 1], [[1, 1], [7, 7]])
    kv.push({})
    kv.init({}, on_existing="keep")
    with pytest.raises(TypeError, match="inconsistent types of keys"):
        kv.push({3: nd.ones(2), "3": nd.ones(2)})


def test_mappings_with_row_sparse_outputs():
    kv = mx.kv.create()
    kv.init({"e": nd.array([[1, 1], [2, 2], [3, 3]])})
    rows, whole = nd.sparse.zeros("row_sparse", (3, 2)), numpy.ones((3, 2), dtype="float32")
    kv.row_sparse_pull({"e": rows}, row_ids=[2])
    assert rows.asnumpy().tolist() == [[0, 0], [0, 0], [3, 3]]
    kv.row_sparse_pull({"e": [rows, whole]}, row_ids=[[nd.array([0]), nd.array([1])]])
    assert (rows.indices.tolist(), whole.tolist()) == ([0], [[0, 0], [2, 2], [0, 0]])
    kv.pull({"e": rows}, ignore_sparse=False)
    assert rows.indices.tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match=r"key `e`: out.*: expected an array.* found a `NoneType`"):
        kv.row_sparse_pull({"e": None}, row_ids=[2])
    with pytest.raises(TypeError, match="out: a map of keys to outputs"):
        kv.row_sparse_pull({"e": rows}, out=rows, row_ids=[2])


def test_positional_arguments_after_a_mapping_are_rejected():
    kv, a = filled("a"), nd.ones(2)
    for call, text in (
        (lambda: kv.push({"a": a}, a), "pass the other arguments by name"),
        (lambda: kv.push({"a": a}, 1), "pass the other arguments by name"),
        (lambda: kv.init({"b": a}, "keep"), "pass the other arguments by name"),
        (lambda: kv.pull({"a": a}, out=a), "pass the other arguments by name"),
        (lambda: kv.pull("a", out={"a": a}), "out: expected an array, .* found a `dict`"),
        (lambda: kv.pushpull({"a": a}, {"a": a}), "pass the other arguments by name"),
        (lambda: kv.pushpull({"a": a}, out=a), "out: expected a map"),
        (lambda: kv.pushpull("a", a, out={"a": a}), "out: expected a map"),
        (lambda: kv.broadcast({"b": a}, out=a), "out: expected a map"),
        (lambda: kv.broadcast({"b": a}), "out: expected arrays to broadcast into"),
        (
            lambda: kv.push({"a": None}),
            r"key `a`: value\[0\]: expected an array.* found a `NoneType`",
        ),
        (lambda: kv.push({1.5: a}), "unexpected type for keys"),
        (lambda: kv.push([{"a": a}], a), "unexpected type for keys: .* found `dict`"),
        (lambda: kv.push("a"), "value: expected an array"),
    ):
        with pytest.raises(mx.errors.ArgumentTypeError, match=text):
            call()
    assert (kv.keys(), values(kv, "a"), a.tolist()) == (["a"], [[0, 0]], [1, 1])
    with pytest.raises(mx.errors.SpecMismatchError):
        kv.push({"a": nd.ones(3)})


def test_a_mapping_of_outputs_has_its_own_keys():
    kv, a, b = filled(["a", "b"]), nd.ones(2), nd.ones(2) * 9
    kv.pushpull({"a": a}, out={"b": b})
    assert (values(kv, "a", "b"), b.tolist()) == ([[1, 1], [0, 0]], [0, 0])
    with pytest.raises(mx.errors.KeyNotFoundError):
        kv.pushpull({"a": a * 5}, out={"a": b, "missing": b})
    with pytest.raises(mx.errors.InvalidArgumentError, match="key `a` is not among the keys"):
        kv.broadcast({"c": a}, out={"a": b})
    assert (kv.keys(), values(kv, "a"), b.tolist()) == (["a", "b"], [[1, 1]], [0, 0])


@pytest.mark.parametrize("item", [["a", None], ("a",), ("a", None, None), 7])
def test_items_of_a_mapping_must_be_pairs(item):
    class Odd(collections.UserDict):
        def items(self):
            return [item]

    with pytest.raises(mx.errors.ArgumentTypeError):
        filled("a").push(Odd(a=1))


def test_an_exception_of_a_mapping_is_raised_unchanged():
    class Broken(collections.UserDict):
        def __iter__(self):
            raise OSError("mine")

    with pytest.raises(OSError, match="mine"):
        filled("a").push(Broken(a=1))
