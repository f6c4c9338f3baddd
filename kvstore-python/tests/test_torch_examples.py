"""The example program with PyTorch."""

import importlib.util
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture
def digits(torch):
    path = ROOT / "examples/torch/digits.py"
    spec = importlib.util.spec_from_file_location("digits", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # With few processors, several PyTorch threads are slow, because they wait for each other.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield module
    torch.set_num_threads(threads)


def test_replicas_learn_what_plain_pytorch_learns(torch, digits):
    (ours, accuracy, _), (plain, accuracy_of_plain, _) = digits.train(epochs=5)
    assert accuracy > 0.9
    assert accuracy == pytest.approx(accuracy_of_plain, abs=0.01)
    first, *others = ours.networks
    assert len(others) == 3
    before = digits.network().state_dict()
    for name, weight in first.state_dict().items():
        assert not torch.equal(weight, before[name]), name
        assert torch.equal(weight, torch.utils.dlpack.from_dlpack(ours.store.pull(name))), name
        for other in others:
            assert torch.equal(weight, other.state_dict()[name]), name
        of_plain = plain.networks[0].state_dict()[name]
        torch.testing.assert_close(weight, of_plain, rtol=1e-3, atol=1e-4)
    assert {one.num_pushes for one in ours.store.stats()} == {5 * len(digits.digits()[0])}


def test_gradients_of_the_example_are_read_in_place(digits):
    ours, (batches, _) = digits.Replicas(), digits.digits()
    ours.step(batches[0])
    addresses = [one.data_ptr() for replicas in ours.parameters for one in replicas]
    for one in (one for replicas in ours.parameters for one in replicas):
        assert one.is_contiguous()
        assert one.grad.is_contiguous()
    ours.step(batches[1])
    assert [one.data_ptr() for replicas in ours.parameters for one in replicas] == addresses


def test_the_example_prints_a_line(digits, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["digits.py", "2"])
    digits.main()
    line = (
        r"4 replicas over a store: \d+\.\d% .* ms a step; "
        r"one network in plain PyTorch .* take \d\.\d\d times as long\n"
    )
    assert re.fullmatch(line, capsys.readouterr().out)
