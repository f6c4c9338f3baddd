"""Calls of arrays and optimizers whose long allocations fail."""

import numpy
from allocation_cases import LONG, Call, case, elements, folder, ours, texts

import mxkv as mx
from mxkv import nd


@case("nd.array")
def array_of_numpy():
    source = numpy.ones(LONG, dtype="float32")
    return Call(lambda: nd.array(source))


@case("nd.array with a cast")
def array_with_a_cast():
    source = numpy.ones(LONG)
    return Call(lambda: nd.array(source, dtype="float16"))


@case("nd.array of a strided array")
def array_of_strided():
    source = numpy.ones((LONG, 2)).T
    return Call(lambda: nd.array(source))


@case("nd.array of a list")
def array_of_a_list():
    source = [1.0] * LONG
    return Call(lambda: nd.array(source))


@case("nd.array of a nested list")
def array_of_a_nested_list():
    source = [[1.0]] * LONG
    return Call(lambda: nd.array(source))


@case("elements from a list")
def assigned_list():
    array, source = nd.zeros(LONG), [1.0] * LONG

    def assign():
        array[:] = source

    def check_unchanged():
        assert elements([array]) == {0.0}

    def undo():
        array[:] = 0

    return Call(assign, check_unchanged, undo=undo)


@case("asnumpy")
def asnumpy():
    array = nd.ones(LONG)
    return Call(array.asnumpy)


@case("asnumpy of bfloat16")
def asnumpy_bfloat16():
    array = nd.ones(LONG, dtype="bfloat16")
    return Call(array.asnumpy)


@case("tolist")
def tolist():
    array = nd.ones(LONG)
    return Call(array.tolist)


@case("iteration")
def iteration():
    array = nd.ones(LONG)
    return Call(lambda: iter(array))


@case("repr")
def shown():
    array = nd.ones(LONG)
    return Call(lambda: repr(array))


@case("arithmetic")
def arithmetic():
    left, right = nd.ones(LONG), numpy.ones(LONG, dtype="float32")
    return Call(lambda: ((left + right) * 2).sum().asnumpy())


@case("arithmetic in place")
def arithmetic_in_place():
    array = nd.zeros(LONG)
    seen = array.copy()[:]

    def add():
        nonlocal array
        array += 1

    def check_unchanged():
        assert elements([array, seen]) == {0.0}

    def undo():
        array[:] = 0

    return Call(add, check_unchanged, undo=undo)


@case("concatenate")
def concatenate():
    arrays = ours(1)
    return Call(lambda: nd.concatenate(arrays))


@case("serialize")
def serialize():
    array = nd.ones(LONG)
    return Call(array.serialize)


@case("reduce")
def reduce():
    array = nd.ones(LONG)
    return Call(array.__reduce__)


@case("reduce of rows")
def reduce_rows():
    numbers = numpy.arange(LONG)
    array = nd.sparse.row_sparse_array((numpy.ones((LONG, 1)), numbers), shape=(LONG, 1))
    return Call(array.__reduce__)


@case("rows from lists")
def rows_from_lists():
    values, numbers = [[1.0]] * LONG, list(range(LONG))
    return Call(lambda: nd.sparse.row_sparse_array((values, numbers), shape=(LONG, 1)))


@case("rows of an array")
def rows_of_an_array():
    array = nd.ones((LONG, 1))
    return Call(lambda: array.tostype("row_sparse"))


@case("__dlpack__")
def dlpack():
    array = nd.ones(LONG)
    return Call(lambda: array.__dlpack__(copy=True, max_version=(1, 0)))


@case("from_dlpack")
def from_dlpack():
    array = numpy.ones(LONG)
    return Call(lambda: nd.from_dlpack(array))


@case("nd.save")
def save():
    arrays, file = ours(1), folder() / "arrays"
    return Call(lambda: nd.save(str(file), arrays))


@case("nd.save with names")
def save_with_names():
    arrays, file = dict(zip(texts(), ours(1))), folder() / "arrays"
    nd.save(str(file), arrays)
    before = file.read_bytes()

    def check_unchanged():
        assert file.read_bytes() == before

    return Call(lambda: nd.save(str(file), arrays), check_unchanged)


@case("nd.load")
def load():
    file = folder() / "arrays"
    nd.save(str(file), ours(1))
    return Call(lambda: nd.load(str(file)))


@case("nd.load with names")
def load_with_names():
    file = folder() / "arrays"
    nd.save(str(file), dict(zip(texts(), ours(1))))
    return Call(lambda: nd.load(str(file)))


@case("state of an optimizer")
def state():
    optimizer, weight, gradient = mx.optimizer.Adam(), nd.ones(LONG), nd.ones(LONG)

    def update():
        made = optimizer.create_state(0, weight)
        optimizer.update(0, weight, gradient, made)
        return [part.asnumpy() for part in made], made.__reduce__()

    return Call(update)
