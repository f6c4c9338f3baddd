"""The example of DiLoCo, `examples/diloco`."""

import concurrent.futures
import contextlib
import pathlib
import types

import numpy as np
import pytest

import mxkv as mx

FOLDER = pathlib.Path(__file__).parents[2] / "examples/diloco"

#: Far longer than any call takes.
SECONDS = 60

#: How far the weights of the store and those of PyTorch may drift apart in a step, in units in the
#: last place of the largest number of the step: each side rounds its results, and PyTorch may round
#: a product and a sum once, where the store rounds twice.
ULPS_PER_STEP = 6


@pytest.fixture
def example(monkeypatch):
    """Returns PyTorch and the modules of the example."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.syspath_prepend(str(FOLDER))
    import demo
    import diloco

    # With few processors, several PyTorch threads are slow, because they wait for each other.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield types.SimpleNamespace(torch=torch, diloco=diloco, demo=demo)
    torch.set_num_threads(threads)


@contextlib.contextmanager
def group(example, num_members, **options):
    """Yields a store for each member. The server has the parameters of the example."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(mx.kvstore_server.KVStoreServer("127.0.0.1:0"))
        with mx.kv.create("dist_async", servers=server.address, reader=True) as store:
            example.diloco.prepare(store)
        rounds = {"quorum": num_members, "grace": SECONDS, "weight": 1.0, "timeout": SECONDS}
        rounds.update(options)
        yield [
            stack.enter_context(
                mx.kv.create("dist_quorum", servers=server.address, member=member, **rounds)
            )
            for member in "abcdef"[:num_members]
        ]


def together(calls):
    """Makes calls at the same time."""
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as threads:
        for call in [threads.submit(call) for call in calls]:
            call.result()


def test_outer_steps_agree_with_pytorch(example):
    torch, diloco = example.torch, example.diloco
    rate, momentum = np.float32(diloco.OUTER_RATE), np.float32(diloco.OUTER_MOMENTUM)
    name = "2.weight"
    plain = torch.nn.Parameter(dict(diloco.network().named_parameters())[name].detach().clone())
    optimizer = torch.optim.SGD(
        [plain], lr=diloco.OUTER_RATE, momentum=diloco.OUTER_MOMENTUM, nesterov=True
    )
    weight = plain.detach().numpy().copy()
    state = np.zeros_like(weight)
    # For each element, the largest number of the steps so far.
    largest = np.abs(weight)
    random = np.random.default_rng(7)
    with group(example, 3) as stores:
        for step in range(1, 61):
            changes = [
                random.normal(0, 0.1, weight.shape).astype(np.float32) * np.float32(0.95**step)
                for _ in stores
            ]
            together(
                [lambda one=one: one[0].push(name, one[1]) for one in zip(stores, changes)]
            )
            found = stores[0].pull(name).asnumpy()

            mean = ((changes[0] + changes[1]) + changes[2]) / np.float32(3)
            plain.grad = torch.from_numpy(mean)
            optimizer.step()
            state = momentum * state + mean
            ahead = mean + momentum * state
            weight = weight - rate * ahead
            # The store rounds each operation.
            np.testing.assert_array_equal(found, weight)
            for numbers in [weight, rate * ahead, rate * (momentum * state)]:
                largest = np.maximum(largest, np.abs(numbers))
            ulps = np.abs(found - plain.detach().numpy()) / np.spacing(largest)
            assert ulps.max() <= ULPS_PER_STEP * step, (step, ulps.max())
    assert np.abs(found).max() > 0.5


def test_the_bound_finds_another_formula(example):
    """A step whose momentum is wrong by one part in ten thousand is outside of the bound."""
    torch, diloco = example.torch, example.diloco
    weights = [torch.nn.Parameter(torch.ones(100)) for _ in range(2)]
    momenta = [diloco.OUTER_MOMENTUM, diloco.OUTER_MOMENTUM * 1.0001]
    for weight, momentum in zip(weights, momenta):
        optimizer = torch.optim.SGD(
            [weight], lr=diloco.OUTER_RATE, momentum=momentum, nesterov=True
        )
        weight.grad = torch.full((100,), 0.5)
        optimizer.step()
    exact, wrong = (weight.detach().numpy() for weight in weights)
    assert (np.abs(exact - wrong) / np.spacing(np.float32(1))).max() > ULPS_PER_STEP


def replicas(example, stores):
    learned, _ = example.diloco.digits()
    return [
        example.diloco.Replica(store, example.diloco.batches(learned, shard, len(stores)))
        for shard, store in enumerate(stores)
    ]


def test_undisturbed_trainings_have_the_same_bits(example):
    trained = []
    for _ in range(2):
        with group(example, 2) as stores:
            both = replicas(example, stores)
            together([lambda one=one: one.train(9, lambda *_: None) for one in both])
            assert [one.num_rounds for one in both] == [9, 9]
            trained.append(both[0].global_model().state_dict())
    before = example.diloco.network().state_dict()
    for name, weight in trained[0].items():
        assert example.torch.equal(weight, trained[1][name]), name
        assert not example.torch.equal(weight, before[name]), name


def test_inner_steps_run_while_a_fragment_waits_for_other_replicas(example):
    with group(example, 2) as stores:
        left, right = replicas(example, stores)
        names = left.fragments[0]
        left.step()
        exchange, running = left.send(names)
        for _ in range(example.diloco.DELAY):
            left.step()
        assert not running.done()
        own = {name: left.parameters[name].detach().clone() for name in names}
        right.step()
        for replica, (sent, result) in [(right, right.send(names)), (left, (exchange, running))]:
            replica.receive(sent, result)
        with example.torch.no_grad():
            for name in names:
                mixed = own[name].lerp(left.anchors[name], 1 - example.diloco.OWN_SHARE)
                assert example.torch.equal(left.parameters[name], mixed), name
                assert example.torch.equal(left.anchors[name], right.anchors[name]), name
        assert left.num_rounds == right.num_rounds == left.rounds_of_store() == 1


def test_a_replica_that_misses_rounds_continues_with_the_values_of_the_store(example):
    with group(example, 2, quorum=1, grace=0) as stores:
        late, fast = replicas(example, stores)
        fast.train(4, lambda *_: None)
        names = late.fragments[0]
        late.step()
        exchange, running = late.send(names)
        late.receive(exchange, running)
        assert (exchange.was_late, late.num_late, late.num_rounds) == (True, 1, 4)
        for name in names:
            assert example.torch.equal(late.parameters[name], fast.anchors[name]), name
        assert late.rounds_of_store() == 4


def test_a_worker_dies_and_another_joins(example, monkeypatch):
    diloco, demo = example.diloco, example.demo
    monkeypatch.setattr(demo, "KILLED", 6)
    monkeypatch.setattr(demo, "JOINED", 10)
    model, logs = demo.train_diloco(16)
    assert logs["a"][-1]["round"] == logs["b"][-1]["round"] == logs["d"][-1]["round"] == 48
    assert 6 <= logs["c"][-1]["round"] < logs["d"][0]["round"]
    assert logs["d"][0]["round"] > 10
    assert {line["members"] for line in logs["a"]} >= {2, 3}
    loss, accuracy = diloco.evaluate(model, diloco.digits()[1])
    assert accuracy > 0.85
    assert loss < 1
