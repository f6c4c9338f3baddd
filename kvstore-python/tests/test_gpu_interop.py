"""Arrays of other libraries on GPUs, read and written in place.

`scripts/python-tests.sh` runs these tests on emulated GPUs. They execute work late, and in any
order that streams allow, so code that does not wait for a stream reads wrong values.
"""

import threading

import numpy
import pytest

import mxkv as mx
from cards import CARDS, CUDA, DTYPES, IS_COPIED, IS_EMULATED, MANAGED, READ_ONLY, SEEDS
from cards import Array, Card, OldArray, OnlyInterface, copied, import_tensor, numbers, seed, store
from mxkv import nd

pytestmark = pytest.mark.skipif(mx.num_gpus() == 0, reason="no real or emulated GPU")
needs_emulator = pytest.mark.skipif(
    not IS_EMULATED, reason="needs the emulated driver, for seeds and counts of copies"
)
#: The most bytes that the lists of a few launches copy from the host.
LISTS = 64 << 10


def check_released(*arrays):
    """Every consumer released the arrays, once per export, after its work was done."""
    for array in arrays:
        assert array.streams
        assert array.was_idle == [True] * len(array.streams)


# Values.


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_of_every_dtype_are_summed(dtype):
    values = [numbers(3, 5, start=n, dtype=dtype) for n in (1, 2, 3)]
    arrays = [Array(CARDS[0], value) for value in values]
    kv = store(nd.zeros((3, 5), dtype=dtype, ctx=mx.gpu(0)))
    kv.push("w", arrays)
    assert kv.stats()[0].context == mx.gpu(0)
    numpy.testing.assert_array_equal(kv.pull("w").asnumpy(), values[0] + values[1] + values[2])
    check_released(*arrays)


@needs_emulator
def test_values_are_read_in_place():
    values = [numbers(1000, 250, start=n) for n in (1, 2, 3, 4)]
    arrays = [Array(CARDS[0], value) for value in values]
    out = Array(CARDS[0], numbers(1000, 250))
    kv = store(arrays[0])
    before = copied()
    kv.push("w", arrays)
    kv.pull("w", out=out)
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.5))
    kv.push("w", arrays[1])
    kv.pushpull("w", arrays[:2], out=arrays[2:])
    # Only the lists of three launches are copied to the GPU, and nothing is copied back.
    after = copied()
    assert after[1] == before[1]
    assert after[0] - before[0] < LISTS
    total = values[0] + values[1] + values[2] + values[3]
    numpy.testing.assert_array_equal(out.read(), total)
    total = total - numpy.float32(0.5) * values[1] - numpy.float32(0.5) * (values[0] + values[1])
    numpy.testing.assert_array_equal(arrays[2].read(), total)
    numpy.testing.assert_array_equal(arrays[3].read(), total)
    numpy.testing.assert_array_equal(arrays[0].read(), values[0])


def test_the_stream_of_the_device_is_requested():
    for card in CARDS:
        array, other = Array(card, numbers(4)), OldArray(card, numbers(4))
        kv = store(array)
        kv.push("w", [array, other])
        kv.pull("w", out=other)
        streams = {*array.streams, *other.streams}
        assert len(streams) == 1
        assert not streams & {0, 1, 2, card.stream}
        assert array.requests[0] == {"max_version": (1, 0)}
        assert other.requests == [{}, {}]
        check_released(array, other)
        assert kv.pull("w").tolist() == [2, 4, 6, 8]


def test_a_push_runs_between_earlier_and_later_work_of_the_owner():
    kv = store(nd.zeros(3000, ctx=mx.gpu(0)))
    first, second = Array(CARDS[0], numbers(3000)), Array(CARDS[0], numbers(3000))
    for number in SEEDS:
        seed(number)
        values = numbers(3000, start=number)
        first.write(values)
        second.write(values + 1)
        kv.push("w", [first, second])
        first.write(values * 0 - 1)
        second.write(values * 0 - 1)
        numpy.testing.assert_array_equal(kv.pull("w").asnumpy(), values + values + 1)
    check_released(first, second)


def test_memory_is_not_in_use_when_it_is_released():
    kv = store(nd.zeros(3000, ctx=mx.gpu(0)))
    for number in SEEDS:
        seed(number)
        values = numbers(3000, start=number)
        arrays = [Array(CARDS[0], values) for _ in range(3)]
        for array in arrays:
            array.on_release = array.free
        kv.push("w", arrays)
        numpy.testing.assert_array_equal(kv.pull("w").asnumpy(), values + values + values)
        check_released(*arrays)


@pytest.mark.parametrize("kind", ["local", "device"])
def test_values_of_all_gpus_and_the_host_are_summed(kind):
    values = [numbers(2, 700, start=n) for n in range(len(CARDS) + 2)]
    arrays = [Array(card, value) for card, value in zip(CARDS, values, strict=False)]
    host = [values[-2], nd.array(values[-1], ctx=mx.gpu(mx.num_gpus() - 1))]
    kv = store(nd.zeros((2, 700)), kind)
    outs = [Array(card, values[0] * 0) for card in CARDS]
    for number in SEEDS[:10]:
        seed(number)
        kv.push("w", [*arrays, *host])
        kv.pull("w", out=outs)
        for out in outs:
            numpy.testing.assert_array_equal(out.read(), numpy.stack(values).sum(axis=0))
    check_released(*arrays, *outs)


def test_every_function_accepts_foreign_arrays():
    array = Array(CARDS[-1], numbers(2, 3))
    here = mx.gpu(len(CARDS) - 1)
    for made in (nd.from_dlpack(array), nd.array(array, ctx=here)):
        assert made.context == here
        assert made.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert nd.array(array).context == mx.cpu()
    own = nd.ones((2, 3), ctx=here)
    assert (own + array).tolist() == [[2, 3, 4], [5, 6, 7]]
    own -= array
    assert own.tolist() == [[0, -1, -2], [-3, -4, -5]]
    own[:] = array
    array.write(numbers(2, 3) * 0)
    assert own.tolist() == [[1, 2, 3], [4, 5, 6]]
    kept = []
    kv = store(nd.zeros((2, 3), ctx=here))
    kv.set_updater(lambda key, pushed, stored: kept.append(pushed))
    array.write(numbers(2, 3))
    kv.push("w", array)
    array.write(numbers(2, 3) * 0)
    assert kept[0].tolist() == [[1, 2, 3], [4, 5, 6]]
    rows = nd.sparse.row_sparse_array((array, [3, 0]), shape=(4, 3), ctx=here)
    assert rows.context == here
    check_released(array)


# Outputs.


def test_a_pull_is_complete_when_it_returns():
    value = nd.zeros(3000, ctx=mx.gpu(0))
    kv, outs = store(value), [Array(CARDS[0], numbers(3000) * 0) for _ in range(3)]
    for number in SEEDS:
        seed(number)
        values = numbers(3000, start=number)
        kv.push("w", nd.array(values, ctx=mx.gpu(0)))
        # The pull overwrites what the owner has queued.
        for out in outs:
            out.write(values * 0 - 1)
        kv.pull("w", out=outs)
        for out in outs:
            numpy.testing.assert_array_equal(out.read(), values)
    check_released(*outs)


def test_outputs_of_other_dtypes_and_on_other_gpus():
    kv = store(nd.array(numbers(2, 3), ctx=mx.gpu(0)))
    outs = [
        Array(card, numbers(2, 3, dtype=dtype) * 0)
        for card in CARDS
        for dtype in ("float64", "float16", "int32")
    ]
    kv.pull("w", out=outs)
    for out in outs:
        assert out.read().tolist() == [[1, 2, 3], [4, 5, 6]]


def test_a_read_only_output_is_rejected():
    kv = store(nd.array(numbers(3), ctx=mx.gpu(0)))
    for flags in (READ_ONLY, IS_COPIED):
        out = Array(CARDS[0], numbers(3, start=7), flags=flags)
        with pytest.raises(ValueError, match="read-only"):
            kv.pull("w", out=out)
        assert out.read().tolist() == [7, 8, 9]
        assert len(out.was_idle) == 1
    with pytest.raises(mx.errors.SpecMismatchError):
        kv.pull("w", out=Array(CARDS[0], numbers(4)))


def test_a_value_and_an_output_may_be_the_same_array():
    kv = store(nd.zeros(3000, ctx=mx.gpu(0)))
    array = Array(CARDS[0], numbers(3000))
    for number in SEEDS:
        seed(number)
        values = numbers(3000, start=number)
        array.write(values)
        kv.pushpull("w", [array, array], out=[array, array])
        numpy.testing.assert_array_equal(array.read(), values + values)


# Strided arrays.

#: Shapes, and strides in elements: transposed, with gaps, with permuted axes, with many axes.
STRIDED = [
    ((30, 40), (1, 30)),
    ((30, 40), (100, 2)),
    ((5, 6, 7, 8), (336, 1, 48, 6)),
    ((3, 1, 5), (7, 99, 1)),
    ((2,) * 8, tuple(2**n for n in range(8))),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "strides"), STRIDED)
def test_strided_arrays(shape, strides, dtype):
    values = numbers(*shape, dtype=dtype)
    arrays = [Array(CARDS[-1], values, strides=strides) for _ in range(2)]
    kv = store(nd.zeros(shape, dtype=dtype, ctx=mx.gpu(len(CARDS) - 1)))
    for number in SEEDS[:5]:
        seed(number)
        for array in arrays:
            array.write(values)
        kv.push("w", arrays)
        for array in arrays:
            array.write(values * 0)
        numpy.testing.assert_array_equal(kv.pull("w").asnumpy(), values + values)
        kv.pull("w", out=arrays)
        for array in arrays:
            place = array.read_all()
            numpy.testing.assert_array_equal(array.strided(place), values + values)
            # The elements between those of the array have not changed.
            array.strided(place)[...] = 99
            assert (place == 99).all()
    check_released(*arrays)


@needs_emulator
def test_strided_arrays_stay_on_the_gpu():
    values = numbers(500, 600)
    array, out = (Array(CARDS[0], values, strides=(1, 500)) for _ in range(2))
    kv = store(array)
    before = copied()
    kv.push("w", [array, array])
    kv.pull("w", out=out)
    after = copied()
    assert after[1] == before[1]
    assert after[0] - before[0] < LISTS
    numpy.testing.assert_array_equal(out.read(), values + values)


def test_broadcast_arrays_are_values_but_not_outputs():
    row = Array(CARDS[0], numbers(1, 4))
    row.shape, row.strides = (3, 4), (0, 1)
    kv = store(row)
    assert kv.pull("w").tolist() == [[1, 2, 3, 4]] * 3
    kv.push("w", nd.zeros((3, 4), ctx=mx.gpu(0)))
    for out in (row, OnlyInterface(row, strides=(0, 4))):
        with pytest.raises(ValueError, match="out: .*overlap in memory"):
            kv.pull("w", out=out)
    row.shape, row.strides = (1, 4), None
    assert row.read().tolist() == [[1, 2, 3, 4]]
    # A rejected output has no work on it, so nothing waits before it is released.
    assert len(row.was_idle) == len(row.streams) == 2


def test_strided_arrays_with_too_many_axes_are_rejected():
    shape = (2,) * 9
    many = Array(CARDS[0], numbers(*shape), strides=tuple(2**n for n in range(9)))
    with pytest.raises(NotImplementedError, match="9 axes"):
        store(many)
    assert len(many.was_idle) == 1


# Errors.


def test_memory_on_other_devices_is_rejected():
    array = Array(CARDS[0], numbers(4))
    kv = store(nd.zeros(4, ctx=mx.gpu(0)))

    class Liar(Array):
        number = 99

        def __dlpack_device__(self):
            return CUDA, self.number

    far = Liar(CARDS[0], numbers(4))
    with pytest.raises(mx.errors.DeviceUnavailableError, match=r"gpu\(99\)"):
        kv.push("w", far)
    with pytest.raises(mx.errors.DeviceUnavailableError, match=r"gpu\(99\)"):
        kv.pull("w", out=far)
    far.number = -1
    far.knows_versions = False
    with pytest.raises(TypeError, match=r"\(2, -1\), which is CUDA"):
        kv.push("w", far)
    rocm = Array(CARDS[0], numbers(4), kind=10)
    with pytest.raises(TypeError, match=r"device \(10, 0\), which is ROCm"):
        kv.push("w", WithoutHostCopy(rocm))
    elsewhere = FixedCapsule(array, array.capsule(CARDS[0].stream, (CUDA, 7)))
    with pytest.raises(
        ValueError,
        match=r"expected an array on gpu\(0\), found one on device \(2, 7\), which is CUDA",
    ):
        kv.push("w", elsewhere)
    assert array.was_idle
    assert kv.pull("w").tolist() == [0, 0, 0, 0]


class WithoutHostCopy:
    """Does not export a copy on the host."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, *, max_version, dl_device):
        assert dl_device == (1, 0)
        raise BufferError("on the device it stays")


class FixedCapsule:
    """Exports a capsule that it already has."""

    def __init__(self, array, capsule):
        self.array, self.capsule = array, capsule

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **_):
        return self.capsule


def test_unaligned_memory_is_rejected():
    array = Array(CARDS[0], numbers(4), offset=2)
    with pytest.raises(ValueError, match="unaligned external memory"):
        store(array)
    assert len(array.was_idle) == 1
    spread = OnlyInterface(Array(CARDS[0], numbers(4)), shape=(2,), strides=(6,))
    with pytest.raises(ValueError, match="unaligned external memory"):
        store(spread)
    # Bytes have no alignment.
    small = Array(CARDS[0], numbers(4, dtype="uint8"), offset=3)
    assert store(small).pull("w").tolist() == [1, 2, 3, 4]


def test_null_addresses_and_empty_arrays():
    array = Array(CARDS[0], numbers(4))
    array.address = 0
    with pytest.raises(ValueError, match="address 0"):
        store(array)
    array.shape = (0, 3)
    empty = nd.from_dlpack(array)
    assert (empty.shape, empty.context) == ((0, 3), mx.gpu(0))
    value = import_tensor(empty)
    assert value.shape == (0, 3)
    value.release()
    with pytest.raises(ValueError):
        store(array)
    assert len(array.was_idle) == len(array.streams) == 3


def test_managed_memory_belongs_to_its_gpu():
    array = Array(CARDS[-1], numbers(4), kind=MANAGED)
    kv = store(array)
    assert kv.stats()[0].context == mx.gpu(len(CARDS) - 1)
    kv.push("w", [array, array])
    kv.pull("w", out=array)
    assert array.read().tolist() == [2, 4, 6, 8]


# `__cuda_array_interface__`.


def test_the_cuda_array_interface_is_read_in_place():
    for number in SEEDS:
        seed(number)
        for card in CARDS:
            values = numbers(1000, start=number)
            array = Array(card, values)
            kv = store(OnlyInterface(array))
            assert kv.stats()[0].context == mx.gpu(card.number)
            array.write(values + 1)
            kv.push("w", [OnlyInterface(array), OnlyInterface(array)])
            array.write(values * 0)
            numpy.testing.assert_array_equal(kv.pull("w").asnumpy(), 2 * (values + 1))
            out = OnlyInterface(array)
            kv.pull("w", out=out)
            numpy.testing.assert_array_equal(array.read(), 2 * (values + 1))
            array.free()


def test_unsupported_cuda_array_interfaces_are_rejected():
    array = Array(CARDS[0], numbers(4))
    with pytest.raises(TypeError, match="mask"):
        store(OnlyInterface(array, mask=array))
    with pytest.raises(BufferError, match="stream 0"):
        store(OnlyInterface(array, stream=0))
    with pytest.raises(TypeError, match="<u2"):
        store(OnlyInterface(array, typestr="<u2"))
    with pytest.raises(ValueError, match="is not known to the NVIDIA driver"):
        store(OnlyInterface(array, data=(0x1000, False)))
    with pytest.raises(ValueError, match="read-only"):
        store(nd.ones(4)).pull("w", out=OnlyInterface(array, data=(array.address, True)))
    assert store(OnlyInterface(array, stream=None)).pull("w").shape == (4,)


# Threads.


def test_threads_with_their_own_arrays():
    failures = []

    def work(number):
        try:
            card = Card(number % len(CARDS))
            values = numbers(2000, start=number)
            array, out = Array(card, values), Array(card, values)
            kv = store(array)
            for step in range(20):
                array.write(values + step)
                kv.push("w", [array, array])
                array.write(values * 0)
                kv.pull("w", out=out)
                numpy.testing.assert_array_equal(out.read(), 2 * (values + step))
                value = import_tensor(kv.pull("w"), card)
                numpy.testing.assert_array_equal(value.read(card), 2 * (values + step))
                value.release()
            # Other threads have work in the same stream, so it may not be idle at a release.
            assert len(array.was_idle) == len(array.streams) == 41
        except BaseException as failure:  # noqa: BLE001
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# Real GPUs.


def has_card(module):
    return not IS_EMULATED and module.cuda.is_available()


def test_pytorch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not has_card(torch):
        pytest.skip("PyTorch finds no GPU")
    for device in range(torch.cuda.device_count()):
        for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64):
            tensor = torch.arange(6, device=f"cuda:{device}").reshape(2, 3).to(dtype)
            kv = store(tensor)
            assert kv.stats()[0].context == mx.gpu(device)
            with torch.cuda.stream(torch.cuda.Stream(device)):
                tensor += 1
                kv.push("w", [tensor, tensor])
                tensor.zero_()
                kv.pull("w", out=tensor)
                assert tensor.tolist() == [[2, 4, 6], [8, 10, 12]]
                taken_back = torch.from_dlpack(kv.pull("w"))
                assert taken_back.device == tensor.device
                assert torch.equal(taken_back, tensor)
                taken_back.zero_()
                assert kv.pull("w").tolist() == tensor.tolist()


def test_cupy():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    if IS_EMULATED or not cupy.cuda.is_available():
        pytest.skip("CuPy finds no GPU")
    for device in range(cupy.cuda.runtime.getDeviceCount()):
        with cupy.cuda.Device(device), cupy.cuda.Stream(non_blocking=True):
            array = cupy.arange(6, dtype="float32").reshape(2, 3)
            kv = store(array)
            array += 1
            kv.push("w", [array, array])
            array[:] = 0
            kv.pull("w", out=array)
            assert array.tolist() == [[2, 4, 6], [8, 10, 12]]
            assert cupy.from_dlpack(kv.pull("w")).tolist() == array.tolist()
