"""A replica of DiLoCo: trains alone, and exchanges a fragment of its parameters now and then.

    python -m mxkv serve --address HOST:PORT                   # one server
    python diloco.py prepare --server HOST:PORT                # once
    python diloco.py train --server HOST:PORT --member a       # several workers, each with a name

The parameters are divided into fragments. After each `STEPS / fragments` inner steps, the replica
sends one fragment: what its inner steps have subtracted from the parameters since the last exchange
of this fragment. The store computes the mean over the replicas, which is the outer gradient, and
makes a step of Nesterov's SGD. The exchange runs in a thread, and the next inner steps run at the
same time.

Source: "DiLoCo", arXiv 2311.08105, and "Streaming DiLoCo", arXiv 2501.18512.
"""

import argparse
import gzip
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mxkv as mx
import torch
from torch import nn
from torch.nn import functional

DIGITS = Path(__file__).parents[1] / "resume/resources/digits.csv.gz"
SEED = 1998
BATCH_SIZE = 32
INNER_RATE = 1e-3
OUTER_RATE, OUTER_MOMENTUM = 0.7, 0.9
#: Inner steps between two exchanges of the same fragment.
STEPS = 30
#: Inner steps that run during an exchange.
DELAY = 5
#: The share of its own parameters that a replica keeps when it receives those of the store, because
#: they do not contain the inner steps that ran during the exchange.
OWN_SHARE = 0.5
#: How often each fragment is exchanged.
CYCLES = 20
#: The least number of replicas in a round, and how many seconds it then waits for the others.
QUORUM, GRACE = 2, 5.0


def network():
    """Returns a network with two hidden layers, always with the same weights."""
    torch.manual_seed(SEED)
    layers = [nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)]
    return nn.Sequential(*layers)


def fragments(model):
    """Returns the fragments: for each layer, the names of its parameters."""
    found = {}
    for name, _ in model.named_parameters():
        found.setdefault(name.split(".")[0], []).append(name)
    return list(found.values())


def outer_optimizer():
    return mx.optimizer.Nesterov(learning_rate=OUTER_RATE, momentum=OUTER_MOMENTUM)


def digits():
    """Returns pixels and labels for training, and those of a fifth of the digits for the test."""
    with gzip.open(DIGITS, "rt") as lines:
        rows = torch.tensor([[int(number) for number in line.split(",")] for line in lines])
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(SEED))]
    pixels, labels = rows[:, :-1] / 16, rows[:, -1]
    num_learned = len(rows) * 4 // 5
    learned = (pixels[:num_learned], labels[:num_learned])
    return learned, (pixels[num_learned:], labels[num_learned:])


def batches(learned, shard, num_shards, seed=SEED):
    """Yields batches of a shard of the digits without end, in a new order each time."""
    pixels, labels = (part[shard::num_shards] for part in learned)
    generator = torch.Generator().manual_seed(seed + shard)
    while True:
        order = torch.randperm(len(labels), generator=generator)
        for rows in order.split(BATCH_SIZE):
            if len(rows) == BATCH_SIZE:
                yield pixels[rows], labels[rows]


@torch.no_grad()
def evaluate(model, tested):
    """Returns the loss and the accuracy of a model."""
    pixels, labels = tested
    outputs = model(pixels)
    accuracy = (outputs.argmax(1) == labels).float().mean().item()
    return functional.cross_entropy(outputs, labels).item(), accuracy


def prepare(store):
    """Gives a store the initial parameters and the outer optimizer."""
    store.set_optimizer(outer_optimizer())
    names, parameters = zip(*network().named_parameters())
    with torch.no_grad():
        store.init(list(names), list(parameters))


def connect(server, member):
    """Returns a store whose rounds compute the mean over the replicas."""
    rounds = {"quorum": QUORUM, "grace": GRACE, "weight": 1.0}
    return mx.kv.create("dist_quorum", servers=server, member=member, **rounds)


class Exchange:
    """The exchange of a fragment, which runs in a thread."""

    def __init__(self, store, names, changes, of_store):
        self.store, self.names, self.changes, self.of_store = store, names, changes, of_store
        self.was_late = False
        self.start = time.perf_counter()
        self.seconds = 0.0

    def run(self):
        """Pushes the changes and pulls the new parameters of the store into `of_store`."""
        try:
            self.store.push(self.names, self.changes)
        except mx.errors.LatePushError:
            # The round was made without this replica, whose inner steps since then are lost.
            self.was_late = True
        with torch.no_grad():
            self.store.pull(self.names, out=self.of_store)
        self.seconds = time.perf_counter() - self.start


class Replica:
    """A replica that trains a model, and its connection to the store."""

    def __init__(self, store, data):
        self.store, self.data = store, data
        self.model = network()
        self.parameters = dict(self.model.named_parameters())
        self.fragments = fragments(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=INNER_RATE)
        self.thread = ThreadPoolExecutor(max_workers=1)
        self.pulled = {name: torch.empty_like(one) for name, one in self.parameters.items()}
        # The parameters of the store when the replica has last pulled each fragment.
        self.anchors = {name: torch.empty_like(one) for name, one in self.parameters.items()}
        self.num_steps, self.waited, self.exchanged, self.num_late = 0, 0.0, 0.0, 0
        self.pull()

    def pull(self):
        """Begins with the parameters of the store, and with the round that follows its last."""
        names = list(self.parameters)
        with torch.no_grad():
            self.store.pull(names, out=list(self.anchors.values()))
            for name, parameter in self.parameters.items():
                parameter.copy_(self.anchors[name])
        self.num_rounds = self.rounds_of_store()

    def rounds_of_store(self):
        """Returns how many rounds the store has made, of all fragments together."""
        return sum(self.store.version(names[0]) for names in self.fragments)

    def step(self):
        """Makes an inner step. Returns the loss."""
        pixels, labels = next(self.data)
        self.optimizer.zero_grad()
        loss = functional.cross_entropy(self.model(pixels), labels)
        loss.backward()
        self.optimizer.step()
        self.num_steps += 1
        return loss.item()

    @torch.no_grad()
    def send(self, names):
        """Starts the exchange of a fragment. The outer gradient is what the inner steps have
        subtracted."""
        changes = [self.anchors[name] - self.parameters[name] for name in names]
        exchange = Exchange(self.store, names, changes, [self.pulled[name] for name in names])
        return exchange, self.thread.submit(exchange.run)

    @torch.no_grad()
    def receive(self, exchange, running):
        """Waits for an exchange, and mixes the parameters of the store into those of the model."""
        start = time.perf_counter()
        running.result()
        self.waited += time.perf_counter() - start
        self.exchanged += exchange.seconds
        for name in exchange.names:
            self.anchors[name].copy_(self.pulled[name])
            if exchange.was_late:
                self.parameters[name].copy_(self.anchors[name])
            else:
                self.parameters[name].lerp_(self.anchors[name], 1 - OWN_SHARE)
        if exchange.was_late:
            self.num_late += 1
            self.num_rounds = self.rounds_of_store()
        else:
            self.num_rounds += 1

    def train(self, num_rounds, report):
        """Trains until the store has made this number of rounds, and calls `report` after each."""
        steps_between = STEPS // len(self.fragments)
        losses = [self.step() for _ in range(steps_between)]
        while self.num_rounds < num_rounds:
            names = self.fragments[self.num_rounds % len(self.fragments)]
            exchange, running = self.send(names)
            losses += [self.step() for _ in range(DELAY)]
            self.receive(exchange, running)
            report(self, sum(losses) / len(losses))
            losses = [self.step() for _ in range(steps_between - DELAY)]
        self.thread.shutdown()

    def global_model(self):
        """Returns a model with the parameters of the store."""
        model = network()
        model.load_state_dict(self.anchors)
        return model


def train(arguments):
    """Trains a replica of the command line. Writes a line per round to the file of `--log`, which
    exists as soon as the replica can join."""
    learned, tested = digits()
    shard, num_shards = map(int, arguments.shard.split("/"))
    with open(arguments.log, "w") as log:
        # Connect when everything else is ready, because the others wait for live members.
        if arguments.wait:
            input()
        store = connect(arguments.server, arguments.member)
        replica = Replica(store, batches(learned, shard, num_shards))
        print(f"{arguments.member}: joined after round {replica.num_rounds}", flush=True)

        def report(replica, inner_loss):
            loss, accuracy = evaluate(replica.global_model(), tested)
            line = {
                "round": replica.num_rounds,
                "inner_loss": inner_loss,
                "loss": loss,
                "accuracy": accuracy,
                "waited": replica.waited,
                "exchanged": replica.exchanged,
                "late": replica.num_late,
                "members": len(store.members()),
            }
            log.write(json.dumps(line) + "\n")
            log.flush()

        replica.train(arguments.cycles * len(replica.fragments), report)
    store.leave()
    store.close()
    print(f"{arguments.member}: left after round {replica.num_rounds}", flush=True)


def main():
    torch.set_num_threads(1)  # Matrices as small as these take longer on several.
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["prepare", "train"])
    parser.add_argument("--server", required=True, metavar="HOST:PORT")
    parser.add_argument("--member", metavar="NAME", help="the name of this worker")
    parser.add_argument("--shard", default="0/1", help="which part of the digits: 0/3, 1/3 or 2/3")
    parser.add_argument("--cycles", type=int, default=CYCLES, help="exchanges of each fragment")
    parser.add_argument("--wait", action="store_true", help="joins when a line can be read")
    parser.add_argument("--log", default="/dev/null", metavar="FILE")
    arguments = parser.parse_args()
    if arguments.command == "train":
        train(arguments)
    else:
        with mx.kv.create("dist_async", servers=arguments.server, reader=True) as store:
            prepare(store)


if __name__ == "__main__":
    main()
