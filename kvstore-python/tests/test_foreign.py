"""Arrays of other libraries as values and outputs, and arrays exported to them: NumPy, and classes
that imitate libraries. PyTorch and JAX have their own files.
"""

import gc
import re
import sys
import types

import numpy
import pytest

import mxkv as mx
from mxkv import nd

DTYPES = mx._native.dtype_names()
NUMPY_DTYPES = [name for name in DTYPES if nd.ones(1, dtype=name).asnumpy().dtype == name]
#: NumPy 1.22 has the function under a private name.
FROM_DLPACK = getattr(numpy, "from_dlpack", None) or numpy._from_dlpack
NUMPY_VERSION = tuple(int(number) for number in re.findall("[0-9]+", numpy.__version__)[:3])
#: Earlier releases do not pass `copy`, `dl_device` and `max_version` to `__dlpack__`.
KNOWS_VERSIONS = NUMPY_VERSION >= (2, 1)
#: Earlier releases return read-only arrays from DLPack, whatever the read-only flag is.
CAN_WRITE = NUMPY_VERSION >= (2, 2, 5)

WITHOUT_GPU = pytest.mark.skipif(mx.num_gpus() > 0, reason="with a GPU, the arrays stay on it")


def store(value):
    kv = mx.kv.create()
    kv.init("w", value)
    return kv


def layouts(base):
    """Yields arrays of the shape of `base` with various strides and alignments."""
    wide = numpy.zeros((base.shape[0] * 2, base.shape[1] * 3), dtype=base.dtype)
    room = numpy.zeros(base.nbytes + 1, dtype="uint8")
    misaligned = room[1:].view(base.dtype).reshape(base.shape)
    backwards = numpy.zeros_like(base)[::-1, ::-1]
    yield numpy.zeros_like(base)
    yield numpy.zeros_like(base, order="F")
    yield wide[::2, ::3]
    yield wide[: base.shape[0], 1 : base.shape[1] + 1]
    yield misaligned
    yield backwards


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_numpy_arrays_of_every_layout_are_values_and_outputs(dtype):
    base = numpy.arange(12).reshape(3, 4).astype(dtype)
    for array in layouts(base):
        array[...] = base
        kv = store(array)
        assert kv.stats()[0].dtype == dtype
        kv.push("w", [array, array])
        numpy.testing.assert_array_equal(kv.pull("w").asnumpy(), base + base)
        array[...] = 0
        kv.pull("w", out=array)
        numpy.testing.assert_array_equal(array, base + base)


def test_a_pull_writes_nothing_around_an_output():
    room = numpy.zeros((4, 6), dtype="float32")
    store(numpy.ones((2, 3), dtype="float32")).pull("w", out=room[1:3, ::2])
    assert room.sum() == 6
    assert room[1:3, ::2].sum() == 6


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 3), (2, 1, 2, 1, 2)])
def test_shapes(shape):
    array = numpy.full(shape, 3, dtype="float32")
    kv = store(array)
    assert kv.pull("w").shape == shape
    out = numpy.zeros(shape, dtype="float64")
    kv.pull("w", out=out)
    numpy.testing.assert_array_equal(out, array)


def test_empty_arrays():
    empty = nd.from_numpy(numpy.zeros((0, 3), dtype="float32"))
    assert empty.shape == (0, 3)
    assert empty.asnumpy().shape == (0, 3)
    assert numpy.asarray(empty).shape == (0, 3)
    with pytest.raises(ValueError):
        store(numpy.zeros((0, 3)))


def test_a_store_keeps_no_reference_to_a_value():
    array = numpy.ones(1000, dtype="float32")
    before = sys.getrefcount(array)
    kv = store(array)
    kv.push("w", array)
    array[:] = 7
    assert kv.pull("w").asnumpy().max() == 1
    gc.collect()
    assert sys.getrefcount(array) == before


def test_a_push_does_not_copy_its_values():
    kv = store(numpy.zeros(1_000_000, dtype="float32"))
    values = [numpy.ones(1_000_000, dtype="float32") for _ in range(8)]
    kv.push("w", values[:2])
    default = mx.runtime.memory_limit()
    mx.runtime.set_memory_limit(mx.runtime.live_bytes() + 9_000_000)
    try:
        kv.push("w", values)
    finally:
        mx.runtime.set_memory_limit(default)
    assert kv.pull("w").asnumpy()[0] == 8


def test_read_only_values_and_outputs():
    array = numpy.ones(3, dtype="float32")
    array.flags.writeable = False
    kv = store(array)
    assert kv.pull("w").tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="read-only"):
        kv.pull("w", out=array)


@pytest.mark.parametrize(
    ("array", "name"),
    [
        (numpy.ones(2, dtype=bool), "bool"),
        (numpy.ones(2, dtype="complex64"), "complex64"),
        (numpy.ones(2, dtype="uint16"), "uint16"),
        (numpy.ones(2, dtype=">f4"), ">f4"),
        (numpy.array(["a"]), "<U1"),
    ],
)
def test_the_message_names_an_unsupported_dtype(array, name):
    with pytest.raises(TypeError, match=name) as caught:
        store(array)
    assert caught.value.code == "InvalidArgument"


def test_other_objects_are_rejected_as_values():
    for value in (1, "text", None, {"a": 1}, [1, 2]):
        with pytest.raises(TypeError, match="expected an array"):
            store(value)


def test_one_output_for_several_keys_receives_the_last_key():
    kv, out = mx.kv.create(), numpy.zeros(2, dtype="float32")
    kv.init(["b", "a"], [nd.ones(2), nd.ones(2) * 2])
    kv.pull(["a", "b"], out=[out, out])
    assert out.tolist() == [2, 2]


def test_an_output_of_another_shape_is_rejected_before_anything_changes():
    kv = store(nd.ones(2))
    good, bad = numpy.zeros(2, dtype="float32"), numpy.zeros(3, dtype="float32")
    with pytest.raises(mx.errors.SpecMismatchError) as caught:
        kv.pull("w", out=[good, bad])
    assert caught.value.key == "w"
    assert good.tolist() == [0, 0]


def test_pushpull_into_the_values():
    kv, values = store(nd.zeros(2)), [numpy.ones(2, dtype="float32") for _ in range(3)]
    kv.pushpull("w", values)
    assert [value.tolist() for value in values] == [[3, 3]] * 3


def test_numpy_shares_the_memory_of_an_array_and_keeps_its_value():
    array = nd.ones(1000)
    view = numpy.asarray(array)
    again = numpy.asarray(array)
    assert numpy.shares_memory(view, again)
    assert not view.flags.writeable
    array += 1
    array[:] = 5
    del array, again
    gc.collect()
    nd.full(1000, 9).asnumpy()
    assert view.min() == view.max() == 1


def test_array_protocol():
    array = nd.array([1, 2])
    assert numpy.array(array).flags.writeable
    assert numpy.asarray(array, dtype="int64").tolist() == [1, 2]
    assert array.__array__(copy=True).flags.writeable
    assert not array.__array__().flags.writeable
    assert numpy.asarray(nd.ones(2, dtype="bfloat16")).dtype == numpy.float32
    copy = array.asnumpy()
    copy[:] = 0
    assert array.tolist() == [1, 2]
    assert numpy.stack([array, array]).shape == (2, 2)


def test_dtypes_that_numpy_has():
    assert sorted(NUMPY_DTYPES) == [
        "float16",
        "float32",
        "float64",
        "int32",
        "int64",
        "int8",
        "uint8",
    ]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_survives_a_round_trip_with_dlpack(dtype):
    array = nd.array([[1, -2.5], [3, 4]], dtype=dtype)

    class Other:
        __dlpack__ = staticmethod(array.__dlpack__)

    back = nd.from_dlpack(Other())
    assert back.dtype == dtype
    assert back.tolist() == array.tolist()


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_survives_a_round_trip_with_the_array_interface(dtype):
    array = nd.array([1, -2.5], dtype=dtype)
    if dtype in NUMPY_DTYPES:
        elements = numpy.asarray(array)
        assert elements.dtype == dtype
        interface = elements.__array_interface__
    else:
        # The form in which packages describe dtypes that NumPy lacks.
        with pytest.raises(AttributeError, match="use `asnumpy"):
            array.__array_interface__
        size = len(array.serialize()) - len(nd.ones(1, dtype=dtype).serialize())
        elements = numpy.frombuffer(array.serialize()[-2 * size :], f"V{size}")
        interface = {**elements.__array_interface__, "typestr": f"<V{size}"}
    other = types.SimpleNamespace(__array_interface__=interface, dtype=dtype)
    back = nd.from_dlpack(other)
    assert back.dtype == dtype
    assert back.tolist() == array.tolist()


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_numpy_imports_an_array_with_dlpack(dtype):
    array = nd.array([[1, 2], [3, 4]], dtype=dtype)
    taken = FROM_DLPACK(array)
    assert taken.dtype == dtype
    assert taken.tolist() == [[1, 2], [3, 4]]
    array += 1
    assert taken.tolist() == [[1, 2], [3, 4]]
    assert taken.flags.writeable == CAN_WRITE
    if CAN_WRITE:
        taken[0] = 9
        assert array.tolist() == [[2, 3], [4, 5]]
        taken[0] = 1, 2
    del array
    gc.collect()
    assert taken.tolist() == [[1, 2], [3, 4]]


def test_a_consumer_without_versions_gets_a_copy():
    array = nd.array([1, 2])

    class Old:
        def __dlpack__(self, stream=None):
            return array.__dlpack__()

        def __dlpack_device__(self):
            return array.__dlpack_device__()

    taken = nd.from_dlpack(Old())
    assert taken.tolist() == [1, 2]
    out = Old()
    mx.kv.create()
    assert "dltensor_versioned" not in repr(array.__dlpack__())
    assert "dltensor_versioned" in repr(array.__dlpack__(max_version=(1, 0)))
    with pytest.raises(BufferError):
        array.__dlpack__(copy=False)
    with pytest.raises(BufferError):
        array.__dlpack__(stream=1)
    with pytest.raises(BufferError, match="as_in_context"):
        array.__dlpack__(dl_device=(2, 0))
    del out


def test_a_capsule_is_consumed_once_and_an_unused_capsule_is_freed():
    before = mx.runtime.live_bytes()
    array = nd.ones(100_000)
    for version in (None, (1, 0)):
        for _ in range(10):
            array.__dlpack__(max_version=version)
    capsule = array.__dlpack__(max_version=(1, 0))

    class Holder:
        def __dlpack__(self, **_):
            return capsule

    assert nd.from_dlpack(Holder()).size == 100_000
    with pytest.raises(Exception):
        nd.from_dlpack(Holder())
    del capsule, array
    gc.collect()
    assert mx.runtime.live_bytes() <= before


def test_the_message_quotes_the_error_of_a_library():
    class Stubborn:
        requires_grad = True

        def __dlpack__(self, **_):
            raise BufferError("not today")

    with pytest.raises(TypeError, match=r"Stubborn.*`\.detach\(\)`.*not today") as caught:
        store(Stubborn())
    assert isinstance(caught.value.__cause__, BufferError)


def test_max_version_is_passed_once_to_a_class_that_rejects_it():
    class Old:
        requests = []

        def __init__(self, values):
            self.array = numpy.array(values, dtype="float32")

        def __dlpack__(self, **options):
            self.requests.append(set(options))
            if "max_version" in options:
                raise TypeError("unexpected keyword argument 'max_version'")
            return self.array.__dlpack__()

    kv = store(Old([1, 2]))
    kv.push("w", [Old([3, 4]), Old([5, 6])])
    assert kv.pull("w").tolist() == [8, 10]
    assert Old.requests == [{"max_version"}, set(), set(), set()]


def test_max_version_is_passed_again_if_a_class_rejects_one_array():
    class Choosy:
        requests = []

        def __init__(self, is_rejected):
            self.array, self.is_rejected = numpy.ones(2, dtype="float32"), is_rejected

        def __dlpack__(self, **options):
            self.requests.append(set(options))
            if self.is_rejected:
                raise TypeError("not this one")
            return self.array.__dlpack__()

    with pytest.raises(TypeError, match="not this one"):
        store(Choosy(True))
    store(Choosy(False))
    assert Choosy.requests == [{"max_version"}, set(), {"max_version"}]


def test_a_class_whose_metaclass_has_no_hash_is_an_array():
    class Meta(type):
        def __eq__(cls, other):
            return cls is other

        __hash__ = None

    class Unhashable(metaclass=Meta):
        def __dlpack__(self, *, stream=None):
            return numpy.ones(2, dtype="float32").__dlpack__()

    assert store(Unhashable()).pull("w").tolist() == [1, 1]


@pytest.mark.parametrize("device", [(10, 0), pytest.param((2, 0), marks=WITHOUT_GPU)])
def test_a_copy_on_the_host_is_requested_for_an_array_on_a_device(device):
    host = numpy.ones(2, dtype="float32")

    class OnDevice:
        def __init__(self, can_copy):
            self.can_copy = can_copy

        def __dlpack_device__(self):
            return device

        def __dlpack__(self, *, max_version=None, dl_device=None, stream=None, copy=None):
            if not self.can_copy:
                raise BufferError("on the device it stays")
            assert dl_device == (1, 0)
            return host.__dlpack__()

    assert store(OnDevice(True)).pull("w").tolist() == [1, 1]
    name = {10: "ROCm", 2: "CUDA"}[device[0]]
    with pytest.raises(
        TypeError, match=f"which is {name}, bring it to the host first.*on the device it stays"
    ):
        store(OnDevice(False))


def test_bfloat16_of_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    kv = store(numpy.ones(2, dtype=ml_dtypes.bfloat16))
    assert kv.stats()[0].dtype == "bfloat16"


def test_a_consumer_that_ignores_the_read_only_flag_writes_to_a_copy():
    kv = store(nd.ones(3))
    array = kv.pull("w")

    class Writer:
        def __init__(self, **options):
            self.options = options

        def __dlpack__(self, **_):
            return array.__dlpack__(**self.options)

    kv.push("w", nd.full(3, 9))
    kv.pull("w", out=Writer())
    assert array.tolist() == [1, 1, 1]
    # A versioned capsule is marked as a copy, and nothing would see what is written to the copy.
    for copy in (None, True, False):
        with pytest.raises(ValueError, match="read-only"):
            kv.pull("w", out=Writer(max_version=(1, 0), copy=copy))
        assert array.tolist() == [1, 1, 1]


@pytest.mark.skipif(not KNOWS_VERSIONS, reason="this NumPy does not request copies")
def test_numpy_requests_a_copy_or_shared_memory():
    array = nd.ones(1000)
    copy = numpy.from_dlpack(array, copy=True)
    assert not numpy.shares_memory(copy, numpy.asarray(array))
    if CAN_WRITE:
        copy[:] = 7
    view = numpy.from_dlpack(array, copy=False, device="cpu")
    assert numpy.shares_memory(view, numpy.asarray(array))
    assert not view.flags.writeable
    array += 1
    del array
    gc.collect()
    assert view.min() == view.max() == 1


def test_outputs_whose_elements_overlap_are_rejected():
    kv, array = store(nd.array([[1, 2], [3, 4]])), numpy.zeros(2, dtype="float32")
    expanded = numpy.lib.stride_tricks.as_strided(array, (2, 2), (0, 4))
    with pytest.raises(ValueError, match="key `w`: out: ndarray .* overlap in memory") as caught:
        kv.pull("w", out=expanded)
    assert caught.value.code == "InvalidArgument"
    assert array.tolist() == [0, 0]
    array[:] = 7
    kv.push("w", expanded)
    assert kv.pull("w").tolist() == [[7, 7], [7, 7]]


def test_numpy_scalars_are_values_but_not_outputs():
    kv = mx.kv.create()
    kv.init({"p": numpy.float64(1), "q": numpy.float64(2), "r": numpy.float64(3)})
    assert [kv.pull(key).item() for key in "pqr"] == [1, 2, 3]
    kv.push(
        "p", [numpy.array([1.0, 2.0]).mean(), numpy.array([10.0, 20.0]).mean(), numpy.float64(5)]
    )
    assert kv.pull("p").item() == 21.5
    for out in (numpy.float64(0), [numpy.zeros(()), numpy.float64(0)]):
        with pytest.raises(mx.errors.InvalidArgumentError, match="is read-only"):
            kv.pull("p", out=out)
    assert nd.abs(numpy.float32(-2)).item() == 2


def test_a_type_error_of_this_package_does_not_repeat_the_export():
    class FailsOnExport:
        times = 0

        def __dlpack__(self, **options):
            self.times += 1
            mx.kv.create().push(None, self)

    array = FailsOnExport()
    with pytest.raises(mx.errors.ArgumentTypeError):
        nd.from_dlpack(array)
    assert array.times == 1
