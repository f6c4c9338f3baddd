"""Keys: strings and integers, and lists of them."""

import numpy
import pytest

import mxkv as mx
from mxkv import nd
from test_store import filled


def test_integer_keys():
    kv = filled([3, 5])
    assert kv.keys() == [3, 5]
    assert 3 in kv
    assert 4 not in kv
    kv.push(numpy.int64(3), nd.ones(2))
    assert kv.pull(3).tolist() == [1, 1]


@pytest.mark.parametrize("key", [0, 7, -1, 4095, 4096, 2**31, -(2**63), 2**63, 10**30])
def test_every_integer_is_a_valid_key_and_stays_an_integer(key):
    kv = mx.kv.create()
    kv.init([key], [nd.ones(2)])
    seen = []
    kv.set_updater(lambda found, pushed, stored: seen.append(found))
    kv.push(key, nd.ones(2))
    kv.push((key, key + 1 - 1), (nd.ones(2), nd.ones(2)))
    assert seen == [key, key]
    assert kv.keys() == [key]
    assert kv.stats()[0].key == key
    assert kv.snapshot().keys() == [str(key)]
    assert type(seen[0]) is int and key in kv and str(key) in kv


def test_subclasses_and_index_objects_as_keys():
    class Text(str):
        pass

    class Number:
        def __index__(self):
            return 5

    class Broken:
        def __index__(self):
            raise OSError("mine")

    class List(list):
        pass

    texts = filled(List([Text("a"), "b"]))
    assert texts.keys() == ["a", "b"]
    assert texts.pull(Text("a")).tolist() == [0, 0]
    numbers = filled([True, Number(), numpy.int8(3)])
    assert numbers.keys() == [1, 5, 3]
    with pytest.raises(OSError, match="mine"):
        numbers.pull(Broken())
    for other in (None, 1.5, b"a", {1}, nd.ones(2), "a\0b"):
        with pytest.raises(mx.errors.InvalidArgumentError):
            mx.kv.create().init(other, nd.ones(2))


def test_a_list_may_change_while_it_is_read():
    class Shrinking:
        """An array that removes the other items of the list when it is exported."""

        def __dlpack__(self, **_):
            values[1:] = []
            return numpy.ones(2, dtype="float32").__dlpack__()

    values = [Shrinking(), nd.ones(2), nd.ones(2)]
    kv = filled(["a"])
    kv.push("a", values)
    assert kv.pull("a").tolist() == [1, 1]


def test_the_real_length_of_a_list_is_used():
    class Lying(list):
        def __len__(self):
            return 10**15

    kv = filled(["a"])
    kv.push(Lying(["a"]), Lying([nd.ones(2)]))
    assert kv.pull("a").tolist() == [1, 1]


def test_pulls_into_row_sparse_outputs_check_their_keys():
    kv = filled([3])
    rows = nd.sparse.zeros("row_sparse", (2, 1))
    with pytest.raises(TypeError, match="Mixed key types are not allowed"):
        kv.pull("3", out=rows)
    with pytest.raises(TypeError, match="inconsistent types of keys"):
        kv.pull([3, "3"], out=[rows, rows])
    with pytest.raises(TypeError, match="unexpected type for keys"):
        kv.pull(1.5, out=rows)
    with pytest.raises(TypeError, match="key `3`: out: expected a dense array"):
        kv.pushpull(3, nd.ones(2), out=rows)


def test_keys_of_one_store_are_of_one_type():
    kv = filled([3])
    with pytest.raises(TypeError, match="Mixed key types are not allowed"):
        kv.push("3", nd.ones(2))
    with pytest.raises(TypeError, match="inconsistent types of keys"):
        kv.push([3, "4"], [nd.ones(2)] * 2)
    with pytest.raises(TypeError, match="unexpected type for keys"):
        kv.push(1.5, nd.ones(2))


def test_a_failed_call_does_not_fix_the_type_of_keys():
    kv = mx.kv.create()
    with pytest.raises(TypeError):
        kv.init({"x": None})
    with pytest.raises(KeyError):
        kv.pull("x")
    kv.init(3, nd.ones(2))
    with pytest.raises(TypeError, match="Mixed key types are not allowed"):
        kv.init("x", nd.ones(2))
    assert kv.keys() == [3]


def test_a_restored_store_has_keys_of_the_type_that_the_program_uses(tmp_path):
    kv, seen = mx.kv.create(), []
    filled([3]).checkpoint(tmp_path / "model").wait()
    kv.restore(tmp_path / "model")
    kv.set_updater(lambda key, pushed, stored: seen.append(key))
    kv.push(3, nd.ones(2))
    assert (seen, kv.keys()) == ([3], [3])


def test_non_canonical_integers_stay_strings():
    texts, kv = filled(["007", "-0", "7", "-7", "0"]), filled([3])
    kv.rollback(texts.snapshot())
    assert kv.keys() == ["007", "-0", 7, -7, 0]


def test_keys_may_be_any_string():
    for key in ("", "ключ", "a/b", "\U0001f600"):
        assert filled(key).keys() == [key]
    with pytest.raises(ValueError, match="NUL"):
        filled("a\0b")
