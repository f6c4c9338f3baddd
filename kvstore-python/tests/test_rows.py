"""Pulls of rows into outputs of every kind."""

import numpy
import pytest

import mxkv as mx
from mxkv import nd


def filled():
    kv = mx.kv.create()
    kv.init("e", nd.array([[1, 1], [2, 2], [3, 3], [4, 4]]))
    return kv


def test_rows_are_pulled_into_arrays_of_any_library():
    out, ours, rows = (
        numpy.ones((4, 2), "float32"),
        nd.ones((4, 2)),
        nd.sparse.zeros("row_sparse", (4, 2)),
    )
    filled().row_sparse_pull("e", out=[out, ours, rows], row_ids=[2])
    expected = [[0, 0], [0, 0], [3, 3], [0, 0]]
    assert out.tolist() == ours.tolist() == rows.asnumpy().tolist() == expected


def test_several_keys_return_a_list():
    kv = filled()
    kv.init("f", nd.array([[5], [6]]))
    for keys, ids in ((["e", "f"], [1]), (["e", "f"], nd.array([1])), (("e", "f"), ([1], [1]))):
        rows = kv.row_sparse_pull(keys, row_ids=ids)
        assert [one.data.tolist() for one in rows] == [[[2, 2]], [[6]]]
    assert [one.data.tolist() for one in kv.row_sparse_pull(["f"], row_ids=[0])] == [[[5]]]
    assert kv.row_sparse_pull([], row_ids=[0]) == []


def test_rows_are_pulled_into_an_object_that_has_only_dlpack():
    class OnlyDlpack:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    out = numpy.ones((4, 2), "float32")
    filled().row_sparse_pull("e", out=OnlyDlpack(out), row_ids=[3])
    assert out.tolist() == [[0, 0], [0, 0], [0, 0], [4, 4]]
    rows = nd.sparse.zeros("row_sparse", (4, 2))
    for wrong in (5, "out", [None, None], [rows, numpy.ones((4, 3), "float32")]):
        with pytest.raises((mx.errors.ArgumentTypeError, mx.errors.SpecMismatchError)):
            filled().row_sparse_pull("e", out=wrong, row_ids=[3])
    assert rows.indices.tolist() == []
    with pytest.raises(
        mx.errors.SpecMismatchError, match="^key `e`: expected .4, 2. f32, found .4, 3. f32"
    ):
        filled().row_sparse_pull("e", out=[nd.ones((4, 2)), nd.ones((4, 3))], row_ids=[3])


def test_conversion_between_dense_and_row_sparse():
    dense = nd.array([[0, 0], [1, 2], [0, 0], [0, 3]], dtype="float64")
    for rows in (
        dense.tostype("row_sparse"),
        nd.sparse.row_sparse_array(dense),
        nd.sparse.row_sparse_array(dense.asnumpy(), dtype="float64"),
    ):
        assert (rows.stype, rows.indices.tolist(), rows.data.tolist()) == (
            "row_sparse",
            [1, 3],
            [[1, 2], [0, 3]],
        )
        assert rows.tostype("row_sparse") is rows
        assert rows.tostype("default").tolist() == dense.tolist()
    assert dense.tostype("default") is dense
    for array in (dense, rows):
        with pytest.raises(
            mx.errors.InvalidArgumentError, match="expected `row_sparse` or `default`, found `csr`"
        ):
            array.tostype("csr")
    with pytest.raises(TypeError, match="shape: expected the shape of the complete array"):
        nd.sparse.row_sparse_array(([[1, 2]], [0]))
    # The example of MXNet's documentation.
    kv = mx.kv.create()
    kv.init("w", nd.ones((2, 3)).tostype("row_sparse"))
    kv.push("w", (nd.ones((2, 3)) * 8).tostype("row_sparse"))
    out = nd.zeros((2, 3))
    kv.row_sparse_pull("w", out=out, row_ids=nd.array([0]))
    assert out.tolist() == [[8, 8, 8], [0, 0, 0]]


def test_a_failed_pull_of_rows_changes_nothing():
    out, rows = nd.ones((4, 2)), nd.sparse.zeros("row_sparse", (4, 2))
    read_only = numpy.broadcast_to(numpy.float32(0), (4, 2))
    with pytest.raises(mx.errors.InvalidArgumentError, match="is read-only"):
        filled().row_sparse_pull("e", out=[rows, out, read_only], row_ids=[1])
    assert out.tolist() == [[1, 1]] * 4
    assert rows.indices.tolist() == []


def test_the_message_names_a_row_sparse_output_of_the_wrong_shape():
    kv = filled()
    kv.init("f", nd.ones((4, 2)))
    outs = [nd.sparse.zeros("row_sparse", (4, 2)), nd.sparse.zeros("row_sparse", (3, 2))]
    for found, call in [
        ("(3, 2)", lambda: kv.row_sparse_pull(["e", "f"], out=outs, row_ids=[1])),
        ("[3, 2] f32", lambda: kv.pull(["e", "f"], out=outs, ignore_sparse=False)),
    ]:
        with pytest.raises(mx.errors.SpecMismatchError, match="key `f`: out: expected") as caught:
            call()
        assert (caught.value.key, caught.value.found) == ("f", found)
        assert outs[0].indices.tolist() == []


def test_each_output_of_a_key_may_have_its_own_row_indices():
    kv, one, other = filled(), nd.zeros((4, 2)), nd.zeros((4, 2))
    kv.row_sparse_pull(["e"], out=[[one, other]], row_ids=[[nd.array([1]), nd.array([3])]])
    assert (one.tolist()[1], other.tolist()[1], other.tolist()[3]) == ([2, 2], [0, 0], [4, 4])
    kv.row_sparse_pull(["e", "e"], out=[[one, other], one], row_ids=[[0], [3]])
    assert (other.tolist()[0], one.tolist()[3]) == ([1, 1], [4, 4])
    with pytest.raises(mx.errors.LengthMismatchError, match="key `e`: outs .* 2 outs, 3 row_ids"):
        kv.row_sparse_pull(["e"], out=[[one, other]], row_ids=[[nd.array([1])] * 3])
