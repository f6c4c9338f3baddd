"""PyTorch tensors as values and outputs, and arrays exported to PyTorch."""

import gc
import threading
import weakref

import pytest

import mxkv as mx
from mxkv import nd

DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64"]


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="PyTorch is not installed")


def store(value):
    kv = mx.kv.create()
    kv.init("w", value)
    return kv


def layouts(torch, dtype):
    """Yields tensors of 3 x 4 elements with various strides and offsets."""
    yield torch.zeros(3, 4, dtype=dtype)
    yield torch.zeros(4, 3, dtype=dtype).t()
    yield torch.zeros(6, 12, dtype=dtype)[::2, 1::3]
    yield torch.zeros(5, 6, dtype=dtype)[1:4, 1:5]
    yield torch.zeros(13, dtype=dtype)[1:].view(3, 4)
    yield torch.zeros(2, 4, 1, 3, dtype=dtype).permute(0, 3, 2, 1)[1, :, 0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_of_every_layout_are_values_and_outputs(torch, dtype):
    base = torch.arange(12).reshape(3, 4).to(getattr(torch, dtype))
    for tensor in layouts(torch, base.dtype):
        tensor.copy_(base)
        kv = store(tensor)
        assert kv.stats()[0].dtype == dtype
        kv.push("w", [tensor, tensor])
        assert kv.pull("w").tolist() == (base + base).tolist()
        kv.pull("w", out=tensor)
        assert torch.equal(tensor, base + base)


@pytest.mark.parametrize("dtype", DTYPES)
def test_pytorch_imports_arrays(torch, dtype):
    array = nd.array([[1, 2], [3, 4]], dtype=getattr(torch, dtype))
    taken = torch.utils.dlpack.from_dlpack(array)
    assert taken.dtype == getattr(torch, dtype)
    assert taken.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("dtype", ["bool", "int16", "complex64"])
def test_the_message_names_an_unsupported_dtype(torch, dtype):
    with pytest.raises(TypeError, match=f"(?i){dtype}") as caught:
        store(torch.zeros(2, dtype=getattr(torch, dtype)))
    assert caught.value.code == "InvalidArgument"


def test_a_pull_casts_to_the_dtype_of_the_output(torch):
    kv, outs = (
        store(torch.tensor([1.5, -2.5])),
        [torch.zeros(2, dtype=torch.float64), torch.zeros(2).half()],
    )
    kv.pull("w", out=outs)
    assert [out.tolist() for out in outs] == [[1.5, -2.5]] * 2


def test_tensors_without_axes_and_without_elements(torch):
    kv, out = store(torch.tensor(3.0)), torch.tensor(0.0)
    kv.push("w", [torch.tensor(1.0), torch.tensor(2.0).double().float()])
    kv.pull("w", out=out)
    assert out.item() == 3
    assert kv.pull("w").shape == ()
    assert nd.from_dlpack(torch.zeros(0, 3)).shape == (0, 3)
    assert tuple(torch.utils.dlpack.from_dlpack(nd.zeros((0, 3))).shape) == (0, 3)
    with pytest.raises(ValueError, match="no elements"):
        store(torch.zeros(0, 3))


# Gradients.


def test_tensors_that_require_grad_are_rejected(torch):
    kv, parameter = store(torch.ones(2)), torch.nn.Parameter(torch.zeros(2))
    for tensor in (parameter, parameter * 2):
        with pytest.raises(TypeError, match=r"`\.detach\(\)` or `torch\.no_grad\(\)`"):
            kv.push("w", tensor)
        with pytest.raises(TypeError, match=r"`\.detach\(\)` or `torch\.no_grad\(\)`"):
            kv.pull("w", out=tensor)
    assert kv.pull("w").tolist() == [1, 1]
    assert parameter.tolist() == [0, 0]


def test_parameters_under_no_grad(torch):
    parameter = torch.nn.Parameter(torch.ones(2))
    with torch.no_grad():
        kv = store(parameter)
        kv.push("w", [parameter, parameter])
        kv.pull("w", out=parameter)
    assert parameter.tolist() == [2, 2]
    (parameter * 3).sum().backward()
    kv.push("w", parameter.grad)
    kv.pull("w", out=[parameter.detach(), parameter.data])
    assert parameter.tolist() == [3, 3]
    assert parameter.is_leaf
    assert parameter.requires_grad


def test_a_backward_pass_that_needs_overwritten_values_fails(torch):
    if not hasattr(torch.autograd.graph, "increment_version"):
        pytest.skip("this PyTorch has no `increment_version`")
    kv, parameter = store(torch.ones(2)), torch.nn.Parameter(torch.zeros(2))
    for pull in (kv.pull, lambda key, out: kv.pushpull(key, torch.ones(2), out=out)):
        loss = (parameter * parameter).sum()
        with torch.no_grad():
            pull("w", out=parameter)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_the_state_of_a_module(torch):
    def module():
        return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))

    here, there, kv = module(), module(), mx.kv.create()
    here(torch.randn(5, 3))
    state = here.state_dict()
    kv.init(list(state), list(state.values()))
    kv.pull(list(state), out=list(there.state_dict().values()))
    for name, tensor in there.state_dict().items():
        assert torch.equal(tensor, state[name]), name
    assert there[1].num_batches_tracked == 1


# Tensors that are not plain memory.


def test_tensors_that_are_not_plain_memory_are_rejected(torch):
    kv = store(torch.zeros(2))
    pairs = torch.complex(torch.ones(2), torch.full((2,), 3.0)).conj()
    with pytest.raises(TypeError, match=r"`\.resolve_neg\(\)`"):
        kv.push("w", pairs.imag)
    with pytest.raises(TypeError, match=r"`\.resolve_neg\(\)`"):
        kv.pull("w", out=pairs.imag)
    kv.push("w", pairs.imag.resolve_neg())
    assert kv.pull("w").tolist() == [-3, -3]
    with pytest.raises(TypeError, match="conjugate"):
        kv.push("w", pairs)
    with pytest.raises(TypeError, match="layout|[Ss]parse"):
        kv.push("w", torch.ones(2).to_sparse())
    with pytest.raises(TypeError, match="`Tensor` does not export its elements"):
        kv.push("w", torch.ones(2, device="meta"))


def test_expanded_tensors_are_values_but_not_outputs(torch):
    base = torch.ones(1, 2)
    expanded = base.expand(3, 2)
    kv = store(expanded)
    assert kv.pull("w").tolist() == [[1, 1]] * 3
    kv.push("w", torch.arange(6.0).view(3, 2))
    with pytest.raises(ValueError, match="out: Tensor .*overlap in memory"):
        kv.pull("w", out=expanded)
    assert base.tolist() == [[1, 1]]


# Ownership of memory.


def test_a_push_does_not_copy_its_values(torch):
    kv = store(torch.zeros(1_000_000))
    values = [torch.ones(1_000_000) for _ in range(8)]
    kv.push("w", values[:2])
    default = mx.runtime.memory_limit()
    mx.runtime.set_memory_limit(mx.runtime.live_bytes() + 9_000_000)
    try:
        kv.push("w", values)
    finally:
        mx.runtime.set_memory_limit(default)
    assert kv.pull("w").tolist()[0] == 8


def test_a_store_keeps_no_reference_to_a_tensor(torch):
    tensor = torch.ones(1000)
    kv, gone = store(tensor), weakref.ref(tensor)
    kv.push("w", tensor)
    kv.pull("w", out=tensor)
    tensor.fill_(7)
    assert kv.pull("w").asnumpy().max() == 1
    del tensor
    gc.collect()
    assert gone() is None
    torch.full((1000,), 9.0)
    assert kv.pull("w").asnumpy().max() == 1


def test_pytorch_gets_a_copy_of_an_array(torch):
    kv = store(nd.ones(1000))
    for take in (torch.utils.dlpack.from_dlpack, lambda array: torch.tensor(array.asnumpy())):
        array = kv.pull("w")
        tensor = take(array)
        kv.push("w", nd.full(1000, 5))
        array += 1
        assert tensor.unique().tolist() == [1]
        tensor.fill_(9)
        assert array.asnumpy().max() == 2
        assert kv.pull("w").asnumpy().max() == 5
        del array
        gc.collect()
        nd.full(1000, 3).asnumpy()
        assert tensor.unique().tolist() == [9]
        kv.push("w", nd.ones(1000))


def test_views_of_one_tensor_are_values_and_outputs_of_one_call(torch):
    base = torch.arange(8.0).view(4, 2)
    kv = store(torch.zeros(2))
    kv.pushpull("w", [base[0], base[1], base[3]], out=[base[1], base[2]])
    assert base.tolist() == [[0, 1], [8, 11], [8, 11], [6, 7]]
    kv.pushpull("w", list(base.t().contiguous().t()[:2]))
    assert kv.pull("w").tolist() == [8, 12]
    values = list(base)
    kv.pushpull("w", values)
    assert base.tolist() == [[22, 30]] * 4


def test_threads_push_tensors(torch):
    kv, failed = store(torch.zeros(1000)), []
    kv.set_optimizer(mx.optimizer.Test())

    def work(number):
        try:
            value, out = torch.full((10, 100), float(number)).view(-1), torch.zeros(1000)
            for _ in range(50):
                kv.push("w", [value, torch.ones(1000)])
                kv.pull("w", out=out)
                assert out.min() == out.max()
        except Exception as error:  # noqa: BLE001
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert kv.pull("w").tolist() == [50.0 * (0 + 1 + 2 + 3 + 4)] * 1000


def test_a_sparse_gradient_is_pushed_as_the_message_says(torch):
    embedding = torch.nn.Embedding(5, 2, sparse=True)
    embedding(torch.tensor([4, 1, 4])).sum().backward()
    kv, t = store(nd.zeros((5, 2))), embedding.weight.grad
    with pytest.raises(
        mx.errors.ArgumentTypeError,
        match="key `w`: value: .*`torch.sparse_coo`: pass a row-sparse gradient as",
    ) as caught:
        kv.push("w", t)
    expected = [[0, 0], [1, 1], [0, 0], [0, 0], [2, 2]]
    t = t.coalesce()
    code = "nd.sparse.row_sparse_array((t.values(), t.indices()[0]), shape=tuple(t.shape)"
    assert code in str(caught.value)
    kv.push("w", eval(code + ")", {"nd": nd, "t": t}))
    assert kv.pull("w").tolist() == expected
    kv.push("w", t.to_dense())
    assert kv.pull("w").tolist() == expected


#: Our optimizer and its options, and PyTorch's class and arguments. With a large epsilon, the place
#: where it is added matters.
EPSILONS = {
    "adam": ("adam", {"epsilon": 0.1, "wd": 0.01}, "Adam", {"eps": 0.1, "weight_decay": 0.01}),
    "adam, decoupled": (
        "adam",
        {"epsilon": 0.1, "wd": 0.01, "decoupled_wd": True},
        "AdamW",
        {"eps": 0.1, "weight_decay": 0.01},
    ),
    "rmsprop": ("rmsprop", {"epsilon": 0.1, "gamma1": 0.8}, "RMSprop", {"eps": 0.1, "alpha": 0.8}),
    "rmsprop, centered": (
        "rmsprop",
        {"epsilon": 0.1, "gamma1": 0.8, "gamma2": 0.5, "centered": True},
        "RMSprop",
        {"eps": 0.1, "alpha": 0.8, "momentum": 0.5, "centered": True},
    ),
}


@pytest.mark.parametrize("case", EPSILONS)
def test_epsilon_is_where_pytorch_adds_it(torch, case):
    name, options, theirs, arguments = EPSILONS[case]
    generator = torch.Generator().manual_seed(0)
    gradients = [torch.randn(3, 5, generator=generator, dtype=torch.float64) for _ in range(8)]
    weight = torch.ones(3, 5, dtype=torch.float64, requires_grad=True)
    optimizer = getattr(torch.optim, theirs)([weight], lr=0.05, **arguments)

    def steps(**placed):
        kv = store(torch.ones(3, 5, dtype=torch.float64))
        kv.set_optimizer(mx.optimizer.create(name, learning_rate=0.05, **options, **placed))
        return kv

    ours, of_mxnet = steps(pytorch_epsilon=True), steps()
    for gradient in gradients:
        weight.grad = gradient.clone()
        optimizer.step()
        out = torch.empty(3, 5, dtype=torch.float64)
        ours.pushpull("w", gradient, out=out)
        torch.testing.assert_close(out, weight.detach(), rtol=1e-12, atol=1e-14)
        of_mxnet.push("w", gradient)
    assert (of_mxnet.pull("w").asnumpy() != out.numpy()).any()
