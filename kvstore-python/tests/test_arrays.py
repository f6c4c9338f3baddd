"""Arrays: creation, operators, indexing and printing."""

import copy
import pickle
import re
import sys
import threading
import tracemalloc
from pathlib import Path

import numpy
import pytest
from children import output

import mxkv as mx
from mxkv import nd, np

DTYPES = mx._native.dtype_names()


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_survives_a_round_trip(dtype):
    array = nd.array([[1, 2], [3, 4]], dtype=dtype)
    assert array.dtype == dtype
    assert array.asnumpy().tolist() == [[1, 2], [3, 4]]
    assert nd.full((2,), 7, dtype=dtype).tolist() == [7, 7]


@pytest.mark.parametrize("dtype", ["int64", numpy.int64, numpy.dtype("i8"), int])
def test_dtypes_have_several_notations(dtype):
    assert nd.ones(2, dtype=dtype).dtype == numpy.int64


def test_the_message_names_an_unknown_dtype():
    with pytest.raises(TypeError, match="complex64"):
        nd.ones(2, dtype="complex64")


def test_float32_is_the_default_dtype():
    for source in (
        [1, 2],
        numpy.array([1, 2]),
        numpy.array([1.0, 2.0]),
        (1.5, 2),
        7,
        numpy.float64(3),
    ):
        assert nd.array(source).dtype == numpy.float32
    assert nd.array(nd.ones(2, dtype="int8")).dtype == numpy.int8
    assert nd.from_numpy(numpy.array([1, 2])).dtype == numpy.int64


def test_large_integers_keep_their_digits():
    big = 2**62 + 1
    assert nd.array([big], dtype="int64").tolist() == [big]
    assert nd.full(1, big, dtype="int64").item() == big


def test_an_array_is_a_copy_of_its_source():
    source = numpy.ones(3, dtype="float32")
    array = nd.array(source)
    source[:] = 7
    assert array.tolist() == [1, 1, 1]
    same = nd.array(array)
    same += 1
    assert array.tolist() == [1, 1, 1]


def test_operators():
    a, b = nd.array([1, 2, 3]), nd.array([4, 5, 6])
    assert (a + b).tolist() == [5, 7, 9]
    assert (b - a).tolist() == [3, 3, 3]
    assert (a * b).tolist() == [4, 10, 18]
    assert (b / 2).tolist() == [2, 2.5, 3]
    assert (1 - a).tolist() == [0, -1, -2]
    assert (2 / a).tolist()[1] == 1
    assert (2**a).tolist() == [2, 4, 8]
    assert (a**2).tolist() == [1, 4, 9]
    assert (b % 4).tolist() == [0, 1, 2]
    assert (-a).tolist() == [-1, -2, -3]
    assert abs(nd.array([-1, 2])).tolist() == [1, 2]
    assert (a < 2).tolist() == [1, 0, 0]
    assert (a == b).tolist() == [0, 0, 0]
    assert (a != b).tolist() == [1, 1, 1]


def test_operators_in_place_change_the_same_array():
    a = nd.array([1, 2, 3])
    same = a
    a += 1
    a *= nd.array([1, 2, 3])
    a -= numpy.ones(3, dtype="float32")
    a /= 2
    assert same is a
    assert same.tolist() == [0.5, 2.5, 5.5]


def test_numpy_arrays_are_left_and_right_operands():
    a, b = nd.array([1, 2]), numpy.array([3, 4], dtype="float32")
    assert isinstance(a + b, nd.NDArray)
    assert isinstance(b + a, nd.NDArray)
    assert (b - a).tolist() == [2, 2]
    assert (numpy.float32(2) * a).tolist() == [2, 4]


def test_other_operands_are_rejected():
    a = nd.ones(2)
    with pytest.raises(TypeError):
        a + "x"
    with pytest.raises(TypeError):
        a += None
    assert (a == "x") is False
    with pytest.raises(mx.errors.SpecMismatchError, match=r"expected \[2\] f32, found \[3\] f32"):
        a + nd.ones(3)


def test_parts_are_views():
    a = nd.array([[1, 2], [3, 4], [5, 6]])
    assert a[1].tolist() == [3, 4]
    assert a[-1].tolist() == [5, 6]
    assert a[1:].tolist() == [[3, 4], [5, 6]]
    assert a[1, 0].tolist() == [3]
    assert a[0, :].tolist() == [1, 2]
    a[0] = 9
    a[1:][1] = nd.array([7, 8])
    a[1, 1] = -1
    assert a.tolist() == [[9, 9], [3, -1], [7, 8]]
    a[:] = [[0, 1], [2, 3], [4, 5]]
    assert a.reshape(2, 3).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert a.reshape((-1,)).shape == (6,)
    assert a.reshape(-1).shape == (6,)


def test_bad_indices():
    a = nd.ones((2, 3))
    with pytest.raises(IndexError, match="row index 2 is out of range"):
        a[2]
    with pytest.raises(IndexError):
        a[-3]
    with pytest.raises(TypeError, match="slice with step 1"):
        a[::2]
    assert len(list(a)) == 2


def test_functions():
    a = nd.array([1.0, 4.0])
    assert nd.sqrt(a).tolist() == [1, 2]
    assert nd.maximum(a, 2).tolist() == [2, 4]
    assert a.clip(2, 3).tolist() == [2, 3]
    assert a.sum().tolist() == [5]
    assert a.mean().asscalar() == 2.5
    assert nd.concat(nd.ones((1, 1)), nd.zeros((1, 1)), dim=0).shape == (2, 1)
    assert nd.dot(nd.ones((2, 3)), nd.ones((3, 2))).tolist() == [[3, 3], [3, 3]]
    assert nd.arange(3).tolist() == [0, 1, 2]


def test_one_element_of_each_row():
    matrix = nd.array([[1, 2], [3, 4], [5, 6]], dtype="int64")
    columns = numpy.array([1, 0, 1])
    chosen = nd.choose_element_0index(matrix, columns)
    assert (chosen.tolist(), chosen.dtype) == ([2, 3, 6], numpy.int64)
    with pytest.raises(
        mx.errors.InvalidArgumentError,
        match=r"column index 2 for row 1 is out of range for \[3, 2\] i64: expected 0 to 1",
    ):
        nd.onehot_encode(nd.array([0, 2, 0]), matrix)
    with pytest.raises(mx.errors.LengthMismatchError):
        nd.choose_element_0index(matrix, nd.array([0]))
    with pytest.raises(TypeError, match="onehot_encode: expected an array"):
        nd.onehot_encode([0, 1, 0], matrix)
    assert matrix.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert nd.onehot_encode(columns, matrix) is matrix
    assert matrix.tolist() == [[0, 1], [1, 0], [0, 1]]


def test_equal_arrays():
    array = nd.array([1, 2])
    assert (
        nd.array_equal(array, numpy.array([1, 2])) and not nd.array_equal(array, nd.array([1, 3]))
    )
    assert not nd.array_equal(array, nd.array([[1, 2]]))
    large = nd.array([2**62], dtype="int64")
    assert not nd.array_equal(large, large + 1)


@pytest.mark.parametrize("number", [3, 3.0, numpy.float32(3), numpy.int64(3), numpy.array(3.0)])
def test_maximum_and_minimum_of_arrays_and_numbers(number):
    array = nd.array([1, 5])
    for module in (nd, mx.np):
        assert (
            module.maximum(array, number).tolist()
            == module.maximum(number, array).tolist()
            == [3, 5]
        )
        assert (
            module.minimum(array, number).tolist()
            == module.minimum(number, array).tolist()
            == [1, 3]
        )
    assert (nd.maximum(3, 4), nd.minimum(numpy.float32(3), 4), mx.np.maximum(3, 4)) == (4, 3, 4)
    assert type(mx.np.maximum(number, mx.np.array(array))) is mx.np.ndarray


def test_numpy_functions_accept_arrays():
    array = nd.array([[1, 2], [3, 4]])
    for of_array in (array, mx.np.array(array)):
        assert float(numpy.sum(of_array)) == 10
        assert float(numpy.mean(of_array)) == 2.5
        assert (float(numpy.max(of_array)), float(numpy.min(of_array))) == (4, 1)
        assert numpy.add(of_array, 1).tolist() == [[2, 3], [4, 5]]
        assert numpy.stack([of_array, of_array]).shape == (2, 2, 2)
        for rejected in ({"axis": 0}, {"dtype": "float64"}, {"out": numpy.zeros(())}):
            with pytest.raises(mx.errors.UnsupportedError, match="asnumpy"):
                numpy.sum(of_array, **rejected)
    assert numpy.sum(mx.np.array(array)).shape == ()


def test_conversion_of_one_element_to_a_number():
    assert float(nd.array([1.5])) == 1.5
    assert int(nd.array([2.5])) == 2
    assert bool(nd.array([0])) is False
    assert nd.array([3], dtype="int32").item() == 3
    with pytest.raises(ValueError):
        float(nd.ones(2))


def test_nd_arrays_print_as_in_mxnet():
    assert repr(nd.ones((2, 1))) == "\n[[1.]\n [1.]]\n<NDArray 2x1 @cpu(0)>"
    assert len(repr(nd.ones((1000, 1000)))) < 1000


def test_printing_copies_nothing():
    for array in (nd.ones((1000, 1000)), np.ones((1000, 1000))):
        tracemalloc.start()
        repr(array), str(array)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1_000_000


def test_np_arrays_print_as_in_numpy():
    assert repr(np.ones((2, 3))) == "array([[1., 1., 1.],\n       [1., 1., 1.]])"
    assert str(np.ones((2, 3))) == "[[1. 1. 1.]\n [1. 1. 1.]]"
    assert repr(np.array([1, 2], dtype="int64")) == "array([1, 2], dtype=int64)"
    assert repr(np.array([1], dtype="float16")) == "array([1.], dtype=float16)"
    assert repr(np.array([1], dtype="bfloat16")) == "array([1.], dtype=bfloat16)"
    assert len(repr(np.ones((1000, 1000)))) < 1000


def test_results_of_np_arrays_are_np_arrays():
    a = np.ones((2, 2))
    for made in (
        a + 1,
        1 - a,
        a[0],
        a.T,
        a.copy(),
        a.astype("int8"),
        a.sum(),
        -a,
        np.exp(a),
        a.reshape(4),
    ):
        assert type(made) is np.ndarray
    assert a[0, 0].shape == ()
    assert a.sum().shape == ()
    assert isinstance(a, nd.NDArray)


def test_devices():
    a = nd.ones(2, mx.cpu(3))
    assert a.context == mx.cpu(3) == a.ctx
    assert a.as_in_context(mx.cpu(1)).context == mx.cpu(1)
    assert a.as_in_context(mx.cpu(3)) is a
    assert a.copyto(mx.cpu(2)).context == mx.cpu(2)
    b = nd.zeros(2, dtype="int32")
    assert a.copyto(b) is b
    assert b.tolist() == [1, 1]
    assert {mx.cpu(1): 1}[mx.Context("cpu", 1)] == 1


@pytest.mark.skipif(mx.num_gpus() > 0, reason="there is a GPU")
def test_a_missing_gpu():
    with pytest.raises(mx.errors.DeviceUnavailableError, match=r"gpu\(0\)") as caught:
        nd.ones(2, mx.gpu())
    assert caught.value.code == "DeviceUnavailable"


def test_memory_limit():
    default = mx.runtime.memory_limit()
    assert default is not None and default > 0
    limit = mx.runtime.live_bytes() + 1000
    mx.runtime.set_memory_limit(limit)
    try:
        assert mx.runtime.memory_limit() == limit
        with pytest.raises(MemoryError, match=f"the limit is {limit}") as caught:
            nd.ones(100_000)
        assert caught.value.code == "OutOfMemory"
        mx.runtime.set_memory_limit(None)
        assert mx.runtime.memory_limit() is None
        nd.ones(100_000)
    finally:
        mx.runtime.set_memory_limit(default)


def memory_of_the_machine():
    """Returns the memory of the machine in bytes, or the lowest limit of this process's control
    groups and their parents.
    """
    found = [int(re.search(r"MemTotal: +([0-9]+) kB", Path("/proc/meminfo").read_text())[1]) * 1024]
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root = Path("/sys/fs/cgroup", "memory" if controllers else "")
        own = root / group.lstrip("/")
        for folder in [own, *own.parents]:
            limit = folder / ("memory.limit_in_bytes" if controllers else "memory.max")
            if folder.is_relative_to(root) and limit.is_file() and limit.read_text() != "max\n":
                found.append(int(limit.read_text()))
    return min(found)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a default limit")
def test_the_default_memory_limit_is_80_percent_of_the_memory():
    # Runs in another process, because a test may have set a limit in this one.
    program = "import mxkv as mx; print(mx.runtime.memory_limit())"
    assert int(output(program)) == memory_of_the_machine() // 5 * 4


def test_the_memory_limit_counts_what_is_kept_for_reuse():
    default = mx.runtime.memory_limit()
    mx.runtime.trim()
    limit = mx.runtime.live_bytes() + 64_000_000
    mx.runtime.set_memory_limit(limit)
    try:
        for length in range(1_000_000, 12_000_000, 1_000_000):
            nd.ones(length)
            assert mx.runtime.live_bytes() + mx.runtime.pooled_bytes() <= limit
        assert mx.runtime.pooled_bytes() > 0
    finally:
        mx.runtime.set_memory_limit(default)


def test_files(tmp_path):
    path = tmp_path / "arrays.params"
    nd.save(path, {"w": nd.ones((2, 3)), "b": nd.zeros(4, dtype="int8")})
    loaded = nd.load(path)
    assert list(loaded) == ["w", "b"]
    assert loaded["b"].dtype == numpy.int8
    nd.save(path, [nd.ones(2)])
    assert nd.load(path)[0].tolist() == [1, 1]
    path.write_bytes(b"nonsense")
    with pytest.raises(mx.errors.CorruptError):
        nd.load(path)
    with pytest.raises(OSError):
        nd.load(tmp_path / "missing")


def test_parts_are_changed_in_place():
    a = nd.array([[1, 2], [3, 4]])
    a[0] += 1
    a[1, 1] *= 10
    a[:1] -= 2
    assert a.tolist() == [[0, 1], [3, 40]]


def test_scalars_of_other_libraries():
    a = nd.ones(2)
    assert (a * numpy.array(3.0)).tolist() == [3, 3]
    assert (a + numpy.int64(3)).tolist() == [4, 4]
    assert (a + numpy.array(3)).tolist() == [4, 4]
    a *= numpy.float32(0.5)
    assert a.tolist() == [0.5, 0.5]
    assert nd.full(2, numpy.array(7)).tolist() == [7, 7]


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_are_pickled_and_copied(dtype):
    for made in (nd.array([[1, 2]], dtype=dtype, ctx=mx.cpu(1)), np.array(5, dtype=dtype)):
        for again in (pickle.loads(pickle.dumps(made)), copy.copy(made), copy.deepcopy(made)):
            assert type(again) is type(made)
            assert (again.dtype, again.context) == (made.dtype, made.context)
            assert again.tolist() == made.tolist()
            again += 1
            assert again.tolist() != made.tolist()


def test_with_sets_the_default_device():
    here, there = mx.cpu(1), mx.cpu(2)
    with here:
        with there, here:
            assert mx.current_context() == mx.cpu(1)
        assert nd.ones(1).context == mx.cpu(1)
        thread = threading.Thread(target=lambda: seen.append(mx.current_context()))
        seen = []
        thread.start()
        thread.join(60)
        assert seen == [mx.cpu()]
    assert mx.current_context() == mx.cpu()


@pytest.mark.parametrize(
    "dtype", ["bool", "int16", "uint16", "uint32", "uint64", ">f4", ">f8", ">i4", "longdouble"]
)
def test_unsupported_numpy_dtypes_are_converted(dtype):
    source = numpy.array([[1, 0], [1, 1]], dtype)
    assert nd.array(source).tolist() == [[1, 0], [1, 1]]
    assert nd.array(source, dtype="int64").asnumpy().tolist() == [[1, 0], [1, 1]]


def test_large_integers_keep_their_sign():
    assert nd.array([2**64 - 1]).tolist() == [float(2**64)]
    assert nd.array([2**63, 1], dtype="float64").tolist() == [2.0**63, 1]
    assert nd.array(numpy.array([2**63 - 1], "uint64"), dtype="int64").asnumpy()[0] == 2**63 - 1
    with pytest.raises(mx.errors.InvalidArgumentError, match="fits into `int64`, found 92233720"):
        nd.array([2**63], dtype="int64")
