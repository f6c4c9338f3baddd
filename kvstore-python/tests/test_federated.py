"""The example of federated averaging, `examples/federated`, with Python clients."""

import pathlib

import numpy as np
import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "examples/federated"

CLIENTS = {"c": ("01234", 200), "a": ("56789", 90), "b": ("02468", 30)}


@pytest.fixture
def federated(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import federated

    return federated


def test_clients_train_and_poisoned_rounds_are_rolled_back(federated):
    sizes, accuracy, bad = federated.train(CLIENTS, {"a": "2:nan", "c": "4:-1e30"}, 8)
    assert sizes == {"c": 200, "a": 90, "b": 30}
    assert bad == [2, 4]
    assert accuracy > 0.5


def test_a_round_with_other_bits_is_found(federated, monkeypatch):
    exact = federated.weighted_mean
    monkeypatch.setattr(
        federated,
        "weighted_mean",
        lambda *arguments: np.nextafter(exact(*arguments), np.float32(np.inf)),
    )
    with pytest.raises(SystemExit, match="round 1 has other bits"):
        federated.train(CLIENTS, {}, 1)


def test_clients_have_different_digits(federated, tmp_path):
    sizes, tested = federated.divide(federated.CLIENTS, tmp_path)
    lines = [line for name in sizes for line in (tmp_path / name).read_text().splitlines()]
    assert len(lines) == sum(sizes.values())
    assert len(sizes.values()) == len(set(sizes.values()))
    for name, (labels, most) in federated.CLIENTS.items():
        own = (tmp_path / name).read_text().splitlines()
        assert {line[-1] for line in own} == set(labels)
        assert len(own) <= most
    assert set(tested.labels) == set(range(10))


def test_training_subtracts_the_change_and_lowers_the_loss(federated, tmp_path):
    federated.divide(CLIENTS, tmp_path)
    digits = federated.Digits((tmp_path / "c").read_text().splitlines())
    model = np.zeros((federated.NUM_DIGITS, federated.NUM_COLUMNS), np.float32)
    before, _ = digits.evaluate(model)
    change = digits.train(model)
    assert (model == 0).all()
    after, accuracy = digits.evaluate(model - change)
    assert after < before / 2
    assert accuracy > 0.9


