"""Federated averaging with Python clients and JVM clients, some of which send damaged changes.

    mvn compile dependency:build-classpath
    python federated.py

Each client has digits that no other process sees, and no client has all ten. One round gets NaN and
one gets huge numbers. The program computes each round again from what the clients have sent, and
compares all bits.
"""

import contextlib
import gzip
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from client import NUM_COLUMNS, NUM_DIGITS, Digits
from coordinator import SECONDS, Coordinator

FOLDER = Path(__file__).parent
DIGITS = FOLDER.parent / "resume/resources/digits.csv.gz"
#: The digits of each client, and how many of them it has at most.
CLIENTS = {
    "java-a": ("01234", 400),
    "java-b": ("56789", 150),
    "java-c": ("02468", 60),
    "python-a": ("13579", 300),
    "python-b": ("45670", 200),
    "python-c": ("89123", 33),
}
POISON = {"python-b": "3:nan", "java-a": "6:1e30"}
NUM_ROUNDS = 20
SEED = 1998
#: How many clients may miss a round, and how many seconds a round waits for them.
MISSING, GRACE = 2, 30
#: The least accuracy.
LEAST = 0.86


class Processes(contextlib.ExitStack):
    """The processes of the demo, which do not outlive it."""

    def start(self, *arguments, **options):
        process = subprocess.Popen([str(one) for one in arguments], text=True, **options)
        self.callback(process.wait)
        self.callback(process.kill)
        return process

    def serve(self):
        """Starts a server. Returns its address and its process."""
        arguments = ["-m", "mxkv", "serve", "--address", "127.0.0.1:0"]
        server = self.start(sys.executable, *arguments, stdout=subprocess.PIPE)
        return server.stdout.readline().split()[-1], server


def java(*options):
    """Returns the start of a command that runs a class of the Maven project."""
    found = FOLDER / "target/classpath.txt"
    if not found.exists():
        raise SystemExit(f"there is no {found}: run Maven first, as `make demo-federated` does")
    program = Path(os.environ["JAVA_HOME"], "bin/java") if os.environ.get("JAVA_HOME") else "java"
    classes = f"{FOLDER / 'target/classes'}{os.pathsep}{found.read_text()}"
    return [program, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *options, "-cp", classes]


def divide(clients, folder):
    """Writes the digits of each client to a file. Returns their numbers, and the digits that no
    client has."""
    with gzip.open(DIGITS, "rt") as file:
        lines = [line.strip() for line in file]
    tested, rest = lines[::5], [line for index, line in enumerate(lines) if index % 5]
    sizes, draw = {}, random.Random(SEED)
    for name, (labels, most) in clients.items():
        own = [line for line in rest if line.rpartition(",")[2] in labels]
        own = draw.sample(own, min(most, len(own)))
        given = set(own)
        rest = [line for line in rest if line not in given]
        folder.joinpath(name).write_text("\n".join(own))
        sizes[name] = len(own)
    return sizes, Digits(tested)


def weighted_mean(number, sizes, records):
    """Computes a round again: the sum of weighted changes in the order of the clients' names, in
    float32, divided once by the sum of the weights."""
    total = None
    for name in sorted(sizes):
        change = np.frombuffer(records.joinpath(f"{number}-{name}").read_bytes(), np.float32)
        weighted = change.reshape(NUM_DIGITS, NUM_COLUMNS) * np.float32(sizes[name])
        total = weighted if total is None else total + weighted
    return total / np.float32(sum(sizes.values()))


def bits(model):
    """Returns the bits of a model, the same for all NaNs."""
    return np.where(np.isnan(model), np.float32(np.nan), model).view(np.uint32)


def check(value, text):
    if not value:
        raise SystemExit(f"federated: {text}")


def make_rounds(coordinator, sizes, records, num_rounds):
    """Makes rounds and checks their bits. Returns the numbers of those that were rolled back."""
    bad = []
    for number in range(1, num_rounds + 1):
        before, after, is_good = coordinator.make_round()
        with np.errstate(all="ignore"):
            expected = before - weighted_mean(number, sizes, records)
        check((bits(after) == bits(expected)).all(), f"round {number} has other bits")
        if not is_good:
            bad.append(number)
            is_restored = (bits(coordinator.model()) == bits(before)).all()
            check(is_restored, f"the model after the rollback of round {number} has other bits")
    return bad


def train(clients, poison, num_rounds):
    """Trains. Returns the number of digits of each client, the accuracy, and the numbers of the
    rounds that were rolled back."""
    with Processes() as processes, tempfile.TemporaryDirectory() as folder:
        shards, records = Path(folder, "shards"), Path(folder, "records")
        shards.mkdir()
        records.mkdir()
        sizes, tested = divide(clients, shards)
        address, _ = processes.serve()
        coordinator = Coordinator(address, tested)
        started = []
        for name in clients:
            program = [sys.executable, FOLDER / "client.py"]
            if name.startswith("java"):
                program = [*java("-Xmx64m"), "example.Client"]
            options = ["--server", address, "--name", name, "--digits", shards / name]
            options += ["--quorum", len(clients) - MISSING, "--grace", GRACE, "--record", records]
            options += ["--poison", poison.get(name, "0:0")]
            started.append(processes.start(*program, *options))
        coordinator.wait_for_workers(clients)
        bad = make_rounds(coordinator, sizes, records, num_rounds)
        coordinator.close()
        for client in started:
            check(client.wait(SECONDS) == 0, f"a client returned {client.returncode}")
    return sizes, coordinator.accuracy, bad


def main():
    sizes, accuracy, bad = train(CLIENTS, POISON, NUM_ROUNDS)
    poisoned = sorted(int(one.partition(":")[0]) for one in POISON.values())
    check(bad == poisoned, f"rounds {bad} were rolled back, and {poisoned} were poisoned")
    check(accuracy > LEAST, f"accuracy {accuracy}")
    print(
        f"{len(sizes)} clients with {min(sizes.values())} to {max(sizes.values())} digits: "
        f"{accuracy:.1%} of new digits are read; {NUM_ROUNDS} rounds have the bits of a local "
        f"weighted mean; rounds {' and '.join(map(str, bad))} were rolled back"
    )


if __name__ == "__main__":
    main()
