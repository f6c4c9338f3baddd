"""PyTorch tensors and CuPy arrays on real GPUs. With the emulated driver, `cards.py` replaces both
libraries.
"""

import numpy
import pytest

import mxkv as mx
from mxkv import nd

DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64"]


@pytest.fixture
def torch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch finds no GPU")
    return torch


@pytest.fixture
def cupy():
    # Import CuPy only if there is a GPU. Without a GPU, its import fails.
    if mx.num_gpus() == 0:
        pytest.skip("no GPU")
    return pytest.importorskip("cupy", reason="CuPy is not installed")


def store(value, kind="device"):
    kv = mx.kv.create(kind)
    kv.init("w", value)
    return kv


def busy(torch):
    """Queues work that takes some milliseconds, so that the work queued after it starts late."""
    matrix = torch.ones(4096, 4096, device="cuda")
    for _ in range(8):
        matrix = matrix @ matrix * 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_of_every_dtype_are_summed(torch, dtype):
    tensor = torch.arange(12, device="cuda").reshape(3, 4).to(getattr(torch, dtype))
    out = torch.zeros_like(tensor)
    kv = store(tensor)
    kv.push("w", [tensor, tensor])
    assert kv.stats()[0].context == mx.gpu(0)
    kv.pull("w", out=out)
    assert torch.equal(out, tensor + tensor)
    assert torch.equal(torch.utils.dlpack.from_dlpack(kv.pull("w")), tensor + tensor)


def test_tensors_in_every_layout(torch):
    base = torch.arange(12.0, device="cuda").reshape(3, 4)
    for tensor in (
        torch.zeros(4, 3, device="cuda").t(),
        torch.zeros(6, 12, device="cuda")[::2, 1::3],
        torch.zeros(13, device="cuda")[1:].view(3, 4),
    ):
        tensor.copy_(base)
        kv = store(tensor)
        kv.push("w", [tensor, tensor])
        kv.pull("w", out=tensor)
        assert torch.equal(tensor, base + base)


def test_a_push_runs_between_earlier_and_later_work_of_a_stream(torch):
    kv = store(torch.zeros(1 << 20, device="cuda"))
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            gradient = torch.zeros(1 << 20, device="cuda")
            for number in range(1, 20):
                busy(torch)
                gradient.fill_(number)
                kv.push("w", gradient)
                gradient.fill_(-1)
                out = torch.empty_like(gradient)
                kv.pull("w", out=out)
                total = out.sum().item()
                assert total == number << 20


@pytest.mark.parametrize(
    "name", ["sgd", "adam", "adamw", "lamb", "lars", "lion", "rmsprop", "ftrl"]
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_updates_have_the_same_bits_as_on_the_host(torch, name, dtype):
    torch.manual_seed(1)
    weight = torch.randn(1000, 33, device="cuda").to(getattr(torch, dtype))
    stores = [store(weight), store(weight.cpu(), "local")]
    for kv in stores:
        kv.set_optimizer(mx.optimizer.create(name, learning_rate=0.01))
    for _ in range(4):
        gradients = [torch.randn_like(weight) for _ in range(3)]
        stores[0].push("w", gradients)
        stores[1].push("w", [gradient.cpu() for gradient in gradients])
        on_card, on_host = torch.empty_like(weight), torch.empty_like(weight, device="cpu")
        stores[0].pull("w", out=on_card)
        stores[1].pull("w", out=on_host)
        assert torch.equal(on_card.cpu().view(torch.int8), on_host.view(torch.int8))


def test_a_tensor_on_another_gpu_than_the_current_one(torch):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    tensor = torch.ones(1000, device="cuda:1")
    kv = store(tensor)
    with torch.cuda.device(0):
        kv.push("w", [tensor, tensor])
    assert kv.pull("w").tolist() == [2] * 1000


def test_memory_shared_with_pytorch_outlives_the_store(torch):
    kv = store(nd.array(numpy.arange(5000, dtype="float32"), ctx=mx.gpu(0)))
    taken = torch.utils.dlpack.from_dlpack(kv.pull("w"))
    kv.push("w", nd.zeros(5000, ctx=mx.gpu(0)))
    del kv
    assert torch.equal(taken.cpu(), torch.arange(5000.0))


def test_arrays_of_cupy(cupy):
    value = cupy.arange(5000, dtype="float32").reshape(50, 100)
    kv = store(value)
    with cupy.cuda.Stream(non_blocking=True):
        gradient = cupy.full((50, 100), 3, "float32")
        kv.push("w", [gradient, value])
        gradient.fill(-1)
        out = cupy.empty_like(value)
        kv.pull("w", out=out)
        assert bool((out == value + 3).all())
    assert bool((cupy.from_dlpack(kv.pull("w")) == value + 3).all())
