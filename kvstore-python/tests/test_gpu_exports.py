"""Arrays on GPUs, exported to other libraries: as copies on the GPU, or shared read-only.

`scripts/python-tests.sh` runs these tests on emulated GPUs.
"""

import gc

import numpy
import pytest

import mxkv as mx
from cards import CARDS, CUDA, DTYPES, IS_COPIED, IS_EMULATED, READ_ONLY, SEEDS
from cards import ImportedTensor, copied, import_tensor, numbers, seed, store
from mxkv import nd

pytestmark = pytest.mark.skipif(mx.num_gpus() == 0, reason="no real or emulated GPU")
#: The `copy` argument of a consumer: unspecified, or no copy.
copy_or_shared = pytest.mark.parametrize("copy", [None, False])
needs_emulator = pytest.mark.skipif(
    not IS_EMULATED, reason="needs the emulated driver, for seeds and counts of copies"
)


def test_devices_have_the_numbers_of_their_gpus():
    for number in range(mx.num_gpus()):
        array = nd.ones((2, 3), ctx=mx.gpu(number))
        assert array.__dlpack_device__() == (CUDA, number % len(CARDS))
        card = CARDS[number % len(CARDS)]
        value = import_tensor(array, card)
        assert (value.device, value.shape, value.strides) == (
            array.__dlpack_device__(),
            (2, 3),
            (3, 1),
        )
        assert value.read(card).tolist() == [[1, 1, 1], [1, 1, 1]]
        value.release()


@needs_emulator
def test_a_value_is_exported_as_a_copy_on_the_gpu_or_shared():
    array = nd.array(numbers(500, 500), ctx=mx.gpu(0))
    array.wait_to_read()
    before, live = copied(), mx.runtime.live_bytes()
    one, other = import_tensor(array, copy=False), import_tensor(array, copy=False)
    assert copied() == before
    assert mx.runtime.live_bytes() == live
    assert one.address == other.address
    assert one.flags == READ_ONLY
    # A consumer that passes no `copy` gets a copy on the GPU.
    default, requested = import_tensor(array), import_tensor(array, copy=True)
    old = ImportedTensor(array.__dlpack__(stream=1))
    assert copied() == before
    assert len({one.address, default.address, old.address, requested.address}) == 4
    assert (default.flags, old.flags, requested.flags) == (IS_COPIED, None, IS_COPIED)
    for value in (one, other, default, old, requested):
        numpy.testing.assert_array_equal(value.read(CARDS[0]), numbers(500, 500))
        value.release()
    assert mx.runtime.live_bytes() == live


def test_writes_of_a_consumer_do_not_change_values():
    kv = store(nd.array(numbers(3000), ctx=mx.gpu(0)))
    for number in SEEDS[:10]:
        seed(number)
        array = kv.pull("w")
        values = [
            import_tensor(array),
            import_tensor(array, copy=True),
            ImportedTensor(array.__dlpack__(stream=CARDS[0].stream)),
        ]
        for value in values:
            CARDS[0].write(value.address, numpy.full(3000, -7, "float32"))
            assert (value.read(CARDS[0]) == -7).all()
        for untouched in (array, kv.pull("w")):
            numpy.testing.assert_array_equal(untouched.asnumpy(), numbers(3000))
        for value in values:
            value.release()


@copy_or_shared
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_of_every_dtype_are_exported(dtype, copy):
    value = import_tensor(nd.array(numbers(2, 2), dtype=dtype, ctx=mx.gpu(0)), copy=copy)
    assert value.dtype == dtype
    assert value.read(CARDS[0]).tolist() == [[1, 2], [3, 4]]
    value.release()


@copy_or_shared
@pytest.mark.parametrize("stream", ["own", None, 1, 2])
def test_the_stream_of_the_consumer_waits(stream, copy):
    array = nd.zeros(3000, ctx=mx.gpu(0))
    card = CARDS[0]
    requested = card.stream if stream == "own" else stream
    reading = requested or 1
    for number in SEEDS:
        seed(number)
        array[:] = number
        array += nd.array(numbers(3000), ctx=mx.gpu(0))
        value = ImportedTensor(array.__dlpack__(stream=requested, max_version=(1, 0), copy=copy))
        numpy.testing.assert_array_equal(value.read(card, reading), numbers(3000) + number)
        value.release()


def test_invalid_streams_and_devices_are_rejected():
    array = nd.ones(3, ctx=mx.gpu(0))
    ImportedTensor(array.__dlpack__(stream=-1, max_version=(1, 0))).release()
    with pytest.raises(BufferError, match="stream 0 may mean two"):
        array.__dlpack__(stream=0)
    with pytest.raises(BufferError, match="-7"):
        array.__dlpack__(stream=-7)
    with pytest.raises(TypeError, match="stream: expected None or the number of a CUDA stream"):
        array.__dlpack__(stream="mine")
    with pytest.raises(BufferError, match="ROCm"):
        array.__dlpack__(dl_device=(10, 0))
    with pytest.raises(BufferError, match="does not support read-only memory"):
        array.__dlpack__(copy=False)
    with pytest.raises(BufferError, match="host has no streams"):
        nd.ones(3).__dlpack__(stream=1)


@copy_or_shared
def test_exported_values_never_change(copy):
    array = nd.array(numbers(3000), ctx=mx.gpu(0))
    kv = store(array)
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=1))
    for number in SEEDS:
        seed(number)
        weight = kv.pull("w")
        before = weight.asnumpy()
        views = [import_tensor(weight, copy=copy), import_tensor(array, copy=copy)]
        kv.push("w", nd.ones(3000, ctx=mx.gpu(0)))
        kv.pull("w", out=array)
        array += 1
        array[10:20] = -7
        numpy.testing.assert_array_equal(kv.pull("w").asnumpy(), before - 1)
        numpy.testing.assert_array_equal(views[0].read(CARDS[0]), before)
        del weight
        gc.collect()
        numpy.testing.assert_array_equal(views[0].read(CARDS[0]), before)
        kv.pull("w", out=array)
        for view in views:
            view.release()


@copy_or_shared
def test_memory_is_reused_only_after_the_consumer_has_read_it(copy):
    card = CARDS[0]
    array = nd.array(numbers(3000), ctx=mx.gpu(0))
    other = card.new_stream()
    for number in SEEDS:
        seed(number)
        array[:] = number
        value = import_tensor(array, stream=other, copy=copy)
        read = card.copied(value.address, value.num_bytes, other)
        value.release()
        # The array reuses the memory, because no consumer holds it any longer.
        array += 1
        array[:] = -1
        numpy.testing.assert_array_equal(
            card.read(read, 3000, "float32", other), numpy.full(3000, number)
        )
        card.free(read)


def test_an_unused_capsule_frees_its_value():
    live = mx.runtime.live_bytes()
    array = nd.ones(100_000, ctx=mx.gpu(0))
    for options in ({}, {"max_version": (1, 0)}, {"max_version": (1, 0), "copy": False}):
        for _ in range(10):
            array.__dlpack__(stream=CARDS[0].stream, **options)
    del array
    gc.collect()
    assert mx.runtime.live_bytes() == live


@copy_or_shared
def test_a_value_outlives_its_array_and_its_store(copy):
    kv = store(nd.array(numbers(3000), ctx=mx.gpu(0)))
    value = import_tensor(kv.pull("w"), copy=copy)
    kv.close()
    del kv
    gc.collect()
    mx.runtime.trim()
    nd.zeros(3000, ctx=mx.gpu(0)).wait_to_read()
    numpy.testing.assert_array_equal(value.read(CARDS[0]), numbers(3000))
    value.release()


@copy_or_shared
def test_a_value_exported_and_imported_again(copy):
    class Library:
        """Imports a value, and exports it as its own."""

        def __init__(self, array):
            self.array = array

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**{"copy": copy, **options})

    array = nd.array(numbers(2, 3), ctx=mx.gpu(0))
    kv = store(Library(array))
    kv.push("w", [Library(array), Library(array)])
    assert kv.pull("w").tolist() == [[2, 4, 6], [8, 10, 12]]
    with pytest.raises(ValueError, match="read-only"):
        kv.pull("w", out=Library(array))
