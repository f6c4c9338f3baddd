"""Trains with DiLoCo while a worker is killed and another joins, and with plain data parallelism.

    python demo.py [OUTPUT]

Starts a server and three workers, each in a process of its own. Kills the third worker, and starts
a fourth, which continues with its digits. Then trains the same network as usual, with the gradients
of three replicas in each step. Checks the result, and writes the losses to OUTPUT
(`target/diloco.json`), from which `chart.py` draws a chart.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import diloco
import mxkv as mx
import torch
from torch.nn import functional

ROOT = Path(__file__).parents[2]
NUM_REPLICAS = 3
#: The rounds after which a worker is killed and another one joins.
KILLED, JOINED = 18, 30
#: Far longer than the training takes.
SECONDS = 150
#: The largest difference between the accuracies, and the least accuracy.
DIFFERENCE, LEAST = 0.03, 0.9


class Processes(contextlib.ExitStack):
    """The processes of the demo, which do not outlive it."""

    def start(self, *arguments, **options):
        process = subprocess.Popen([sys.executable, *map(str, arguments)], text=True, **options)
        self.callback(process.wait)
        self.callback(process.kill)
        return process

    def serve(self):
        """Starts a server. Returns its address."""
        arguments = ["-m", "mxkv", "serve", "--address", "127.0.0.1:0"]
        line = self.start(*arguments, stdout=subprocess.PIPE).stdout.readline()
        return line.split()[-1]


def join(worker):
    """Makes a worker that waits join the training."""
    worker.stdin.write("\n")
    worker.stdin.flush()


def check(value, text):
    if not value:
        raise SystemExit(f"demo: {text}")


def rounds_of(log):
    """Returns the lines that a worker has completed in its log."""
    if not log.exists():
        return []
    lines = log.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def wait_until(is_true, text, deadline):
    while not is_true():
        check(time.monotonic() < deadline, f"waited in vain for {text}")
        time.sleep(0.02)


def wait_for(log, num_rounds, deadline):
    """Waits until a worker has taken part in this round, or a later one."""

    def has_round():
        return any(line["round"] >= num_rounds for line in rounds_of(log))

    wait_until(has_round, f"round {num_rounds}", deadline)


def train_diloco(cycles):
    """Trains over a server. Returns the rounds in the logs of all workers."""
    deadline = time.monotonic() + SECONDS
    with Processes() as processes, tempfile.TemporaryDirectory() as folder:
        address = processes.serve()
        script = Path(__file__).with_name("diloco.py")
        processes.start(script, "prepare", "--server", address).wait(SECONDS)
        logs = {}

        def work(member, shard):
            logs[member] = Path(folder, member)
            arguments = ["--server", address, "--member", member, "--log", logs[member], "--wait"]
            arguments += ["--shard", f"{shard}/{NUM_REPLICAS}", "--cycles", cycles]
            return processes.start(script, "train", *arguments, stdin=subprocess.PIPE)

        # The fourth replaces the third. Its process starts early, because loading takes longer
        # than the training.
        workers = {member: work(member, min(index, 2)) for index, member in enumerate("abcd")}
        wait_until(lambda: all(log.exists() for log in logs.values()), "workers", deadline)
        for member in "abc":
            join(workers[member])
        wait_for(logs["c"], KILLED, deadline)
        workers["c"].kill()
        print(f"c: killed after round {rounds_of(logs['c'])[-1]['round']}", flush=True)
        wait_for(logs["a"], JOINED, deadline)
        join(workers["d"])
        for member in "abd":
            status = workers[member].wait(max(deadline - time.monotonic(), 1))
            check(status == 0, f"worker {member} returned {status}")
        with mx.kv.create("dist_async", servers=address, reader=True) as store:
            model = diloco.network()
            names, parameters = zip(*model.named_parameters())
            with torch.no_grad():
                store.pull(list(names), out=list(parameters))
        return model, {member: rounds_of(log) for member, log in logs.items()}


def train_plain(num_steps):
    """Trains with the mean gradient of three replicas in each step. Returns the model, and its
    loss and accuracy after each round."""
    learned, tested = diloco.digits()
    shards = [diloco.batches(learned, shard, NUM_REPLICAS) for shard in range(NUM_REPLICAS)]
    model, rows = diloco.network(), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=diloco.INNER_RATE)
    steps_between = diloco.STEPS // len(diloco.fragments(model))
    for step in range(1, num_steps + 1):
        optimizer.zero_grad()
        for pixels, labels in map(next, shards):
            (functional.cross_entropy(model(pixels), labels) / NUM_REPLICAS).backward()
        optimizer.step()
        if step % steps_between == 0:
            loss, accuracy = diloco.evaluate(model, tested)
            rows.append({"step": step, "loss": loss, "accuracy": accuracy})
    return model, rows


def main():
    output = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "target/diloco.json")
    torch.set_num_threads(1)
    model, logs = train_diloco(diloco.CYCLES)
    steps_between = diloco.STEPS // len(diloco.fragments(model))
    num_rounds = diloco.CYCLES * len(diloco.fragments(model))
    num_steps = steps_between * num_rounds
    _, plain = train_plain(num_steps)
    _, tested = diloco.digits()
    loss, accuracy = diloco.evaluate(model, tested)

    a, d = logs["a"], logs["d"]
    check(a[-1]["round"] == num_rounds, "a did not reach the last round")
    check(len(logs["c"]) < num_rounds, "c was not killed")
    check(d and d[-1]["round"] == num_rounds, "d did not reach the last round")
    check(accuracy > LEAST, f"accuracy {accuracy}")
    check(accuracy > plain[-1]["accuracy"] - DIFFERENCE, f"plain: {plain[-1]['accuracy']}")
    hidden = 1 - a[-1]["waited"] / a[-1]["exchanged"]
    check(a[-1]["waited"] < a[-1]["exchanged"], "no exchange overlaps with computation")
    rows = [{**line, "step": line["round"] * steps_between} for line in a]
    events = {
        "killed": logs["c"][-1]["round"] * steps_between,
        "joined": d[0]["round"] * steps_between,
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    found = {"diloco": rows, "plain": plain, "events": events, "steps_between": steps_between}
    output.write_text(json.dumps(found))
    print(
        f"DiLoCo, an exchange of a third of the layers after each {steps_between} steps: "
        f"{accuracy:.1%} of new digits are read, loss {loss:.3f}; plain data parallelism, an "
        f"exchange of all in each step: {plain[-1]['accuracy']:.1%}, loss {plain[-1]['loss']:.3f}; "
        f"{hidden:.0%} of the time of exchanges overlaps with computation"
    )


if __name__ == "__main__":
    main()
