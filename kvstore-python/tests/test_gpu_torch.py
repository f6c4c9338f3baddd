"""PyTorch tensors on GPUs: calls queue their work, and neither PyTorch nor a captured graph waits
on the host. A double replaces PyTorch (`cards.py`), because its GPU version needs a real GPU.

`scripts/python-tests.sh` runs these tests on emulated GPUs.
"""

import ctypes
import threading

import numpy
import pytest

import mxkv as mx
from cards import CARDS, IS_EMULATED, SEEDS
from cards import Array, TorchTensor, call, import_tensor, numbers, seed, store, use_torch
from mxkv import nd

pytestmark = pytest.mark.skipif(
    not IS_EMULATED or mx.num_gpus() == 0, reason="needs the emulated driver, to control its work"
)
LENGTH = 1000


@pytest.fixture(autouse=True)
def torch(monkeypatch):
    return use_torch(monkeypatch)


def test_a_push_does_not_wait_and_pytorch_may_overwrite_its_gradients():
    """PyTorch's later work waits for ours, in every order that the streams allow."""
    was_idle = []
    for card in CARDS:
        gpu = mx.gpu(card.number)
        for number in SEEDS:
            seed(number)
            kv = store(nd.zeros((LENGTH,), ctx=gpu))
            gradients = [TorchTensor(card, numbers(LENGTH, start=n)) for n in (1, 2)]
            kv.push("w", gradients)
            for gradient in gradients:
                was_idle += gradient.was_idle
                # PyTorch frees the memory only after the work in the stream of the store.
                assert gradient.recorded == gradient.streams
                gradient.write(numbers(LENGTH, start=77))
            total = numbers(LENGTH, start=1) + numbers(LENGTH, start=2)
            numpy.testing.assert_array_equal(kv.pull("w").asnumpy(), total)
    assert not all(was_idle), "every push has waited for its work"


def test_pytorch_reads_outputs_in_its_stream():
    was_idle = []
    for number in SEEDS:
        seed(number)
        kv = store(nd.array(numbers(LENGTH), ctx=mx.gpu(0)))
        out = TorchTensor(CARDS[0], numbers(LENGTH, start=77))
        strided = TorchTensor(CARDS[0], numbers(40, 25, start=77), strides=(1, 40))
        kv.pull("w", out=out)
        was_idle += out.was_idle
        numpy.testing.assert_array_equal(out.read(), numbers(LENGTH))
        kv = store(nd.array(numbers(40, 25), ctx=mx.gpu(0)))
        kv.pull("w", out=strided)
        numpy.testing.assert_array_equal(strided.read(), numbers(40, 25))
    assert not all(was_idle), "every pull has waited for its work"


def test_arrays_of_other_libraries_are_released_after_their_work():
    for number in SEEDS:
        seed(number)
        kv = store(nd.zeros((LENGTH,), ctx=mx.gpu(0)))
        array = Array(CARDS[0], numbers(LENGTH))
        kv.push("w", array)
        assert array.was_idle == [True]


def test_tensors_of_a_gpu_that_pytorch_does_not_remember(torch):
    for card in CARDS:
        for remembered in range(len(CARDS)):
            torch.remembered = remembered
            kv = store(nd.zeros((LENGTH,), ctx=mx.gpu(card.number)))
            kv.push("w", TorchTensor(card, numbers(LENGTH)))
            assert torch.remembered == remembered
            numpy.testing.assert_array_equal(kv.pull("w").asnumpy(), numbers(LENGTH))


def test_a_captured_graph_gets_no_work_of_the_store(torch):
    kv = store(nd.zeros((LENGTH,), ctx=mx.gpu(0)))
    tensor = TorchTensor(CARDS[0], numbers(LENGTH))
    torch.is_captured = True
    CARDS[0].capture(CARDS[0].stream, is_captured=True)
    for call_store in (lambda: kv.push("w", tensor), lambda: kv.pull("w", out=tensor)):
        with pytest.raises(TypeError, match="captures its stream into a graph"):
            call_store()
    CARDS[0].capture(CARDS[0].stream, is_captured=False)
    torch.is_captured = False
    assert tensor.streams == []
    kv.push("w", tensor)
    numpy.testing.assert_array_equal(kv.pull("w").asnumpy(), numbers(LENGTH))


def test_a_release_does_not_disturb_a_capture(torch):
    """The emulated driver ends the process if a captured graph is disturbed."""
    card = CARDS[0]
    array = nd.array(numbers(LENGTH), ctx=mx.gpu(0))
    array.wait_to_read()
    live = mx.runtime.live_bytes()
    values = [import_tensor(array, stream=stream) for stream in (card.stream, 1)]
    torch.is_captured = True
    card.capture(card.stream, is_captured=True)
    for value in values:
        value.release()
    # The memory is kept, and is released with the next one.
    assert mx.runtime.live_bytes() > live
    card.capture(card.stream, is_captured=False)
    torch.is_captured = False
    import_tensor(array, stream=1).release()
    assert mx.runtime.live_bytes() == live


def test_released_memory_is_reused_after_its_readers():
    """A consumer may read in other streams than the one that it has named."""
    other = CARDS[0].new_stream()
    for number in SEEDS:
        seed(number)
        array = nd.array(numbers(LENGTH), ctx=mx.gpu(0))
        value = import_tensor(array, stream=CARDS[0].stream)
        CARDS[0].let_wait(other, CARDS[0].stream)
        copy = CARDS[0].copied(value.address, value.num_bytes, other)
        value.release()
        # These probably get the memory of the value.
        others = [nd.full((LENGTH,), 99, ctx=mx.gpu(0)) for _ in range(3)]
        found = CARDS[0].read(copy, (LENGTH,), "float32", other)
        numpy.testing.assert_array_equal(found, numbers(LENGTH))
        CARDS[0].free(copy)
        assert len(others) == 3


def test_a_release_that_waits_lets_other_threads_run():
    """A GPU may wait for a function of the program, which needs the interpreter."""
    card = CARDS[0]
    stream, called = card.new_stream(), threading.Event()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: called.set())
    value = import_tensor(nd.array(numbers(LENGTH), ctx=mx.gpu(0)), stream=stream)
    with card.entered():
        call("cuLaunchHostFunc", ctypes.c_void_p(stream), function, None)
    # `release` calls the deleter with the interpreter's lock, as a finalizer does.
    ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(value.deleter_address)(value.pointer)
    assert called.is_set()
