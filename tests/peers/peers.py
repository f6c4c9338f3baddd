"""Measures the store beside MXNet in one process: `make peers`.

Every round gives each side a turn: our store from C and from Python, both of MXNet's stores on one
machine, PyTorch in its fastest forms if it can do the same without a store, and two copies that
show the bandwidth of the memory. The order of the turns rotates, so that no side always follows the
same other.
"""

import argparse
import functools
import gc
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

import ours
import torch_side
from mxnet_side import Peer, Python
from ours import Ours
from workloads import MIB64, WORKLOADS, Running, RunningRows

# OpenMP's threads spin for a while after their work. The next turn starts when they sleep.
PAUSE = 0.2
WARM_UP_ROUNDS = 3
# How often `timed` runs a turn. After two turns of 10 ms, the system has not yet settled the
# threads on cores: our store took a quarter longer than in a loop, MXNet a twentieth. After four
# turns, both are as fast as in a loop.
TURNS = 4
# Both sides add in `f32`, but may add in another order, and every step rounds its result. MXNet
# also rounds an optimizer's factors to `f32` (`1 - 0.999` keeps five digits), an error relative to
# the distance that a weight has moved.
RELATIVE = 1e-5
OF_THE_WAY = 5e-5
OF_A_STEP = 2.0**-24
ABSOLUTE = 1e-6
# The share of a bar that the store must reach from Python.
PYTHON_PART = 0.9
# The number of pairs of 64 MiB that the copy copies.
NUM_COPIES = 4
# The number of trials per form of PyTorch before the rounds, and of the fastest forms that take
# part.
TRIALS = 3
NUM_FINALISTS = 2
COMPILED = "compiled by PyTorch"


class Copies:
    """The copies whose bandwidth is compared with the store's."""

    KINDS = {"memcpy": 0, "blocks": 1}

    def __init__(self):
        self.sources = [np.ones(MIB64, np.float32) for _ in range(NUM_COPIES)]
        self.targets = [np.zeros(MIB64, np.float32) for _ in range(NUM_COPIES)]

    def turn(self, kind):
        for target, source in zip(self.targets, self.sources):
            ours.copy(target, source, self.KINDS[kind])

    def gb_per_s(self, seconds):
        """Returns bytes read plus bytes written per second, of the faster kind."""
        num_bytes = sum(array.nbytes for array in self.sources + self.targets)
        return num_bytes / min(seconds[kind] for kind in self.KINDS) / 1e9


def timed(turn):
    time.sleep(PAUSE)
    # Sleeping threads wake up late, and not always on their own core. The last turn is like one in
    # the middle of many.
    for _ in range(TURNS - 1):
        turn()
    start = time.perf_counter()
    turn()
    return time.perf_counter() - start


def seconds_of(turns, num_rounds):
    """Returns the quartiles of each turn's seconds."""
    times = {name: [] for name in turns}
    names = list(turns)
    for number in range(WARM_UP_ROUNDS + num_rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            seconds = timed(turns[name])
            if number >= WARM_UP_ROUNDS:
                times[name].append(seconds)
    return {name: statistics.quantiles(seconds, n=4) for name, seconds in times.items()}


def torch_forms(workload):
    """Tries every form of PyTorch. Returns the fastest ones and the compiled one, by name."""
    forms, missing = torch_side.forms(workload)
    for line in missing:
        print(f"peers: {workload.name}: skipped: PyTorch's {line}")
    inputs = torch_side.Inputs(workload)

    def trial(form):
        running = torch_side.RunningTorch(workload, inputs, form)
        seconds = min(timed(running.turn) for _ in range(TRIALS))
        del running
        gc.collect()  # an optimizer is in a reference cycle
        return seconds

    seconds = {form: trial(form) for form in forms}
    fastest = sorted(forms, key=seconds.get)[:NUM_FINALISTS]
    running = {f"torch {form}": torch_side.RunningTorch(workload, inputs, form) for form in fastest}
    if compiles():
        running[COMPILED] = torch_side.RunningCompiled(workload, inputs)
    return running


@functools.cache
def compiles():
    """Returns whether `torch.compile` works here. Prints the reason if not."""
    error = torch_side.compile_error()
    if error:
        print(f"peers: skipped: torch.compile: {error}")
    return error is None


def differences(running, num_steps):
    """Returns a line for each of our outputs that differs from the peers' after this number of
    steps."""
    found = []
    expected, starts = running["ours"].outputs(), running["ours"].starts()
    for name in running.keys() - {"ours"}:
        for index, (one, other) in enumerate(zip(expected, running[name].outputs())):
            largest = (
                np.maximum(np.abs(other), np.abs(starts[index])) if num_steps else np.abs(other)
            )
            allowed = (RELATIVE + OF_A_STEP * num_steps) * largest + ABSOLUTE * np.abs(other).max()
            if num_steps:
                allowed += OF_THE_WAY * np.abs(other - starts[index])
            worst = np.max(np.abs(one - other) - allowed)
            if not worst <= 0:  # a NaN is a difference
                found.append(f"output {index} differs from `{name}` by {worst} more than allowed")
    return found


def measured(workload, copies, num_rounds):
    """Returns the row of a workload, and the differences."""
    sides = [Ours(), Python(), Peer("local"), Peer("device")]
    form = RunningRows if workload.rows else Running
    running = {side.name: form(workload, side, np.sum) for side in sides}
    torch = torch_forms(workload) if torch_side.can(workload) else {}
    running |= torch
    turns = {name: side.turn for name, side in running.items()}
    if workload.is_read:
        turns.update({f"{name} read": side.read for name, side in running.items()})
    turns.update({kind: lambda kind=kind: copies.turn(kind) for kind in Copies.KINDS})
    gc.collect()
    gc.disable()
    quartiles = seconds_of(turns, num_rounds)
    gc.enable()
    seconds = {name: median for name, (_, median, _) in quartiles.items()}

    peer = min(("local", "device"), key=seconds.get)
    milliseconds = {name: 1e3 * value / workload.repeats for name, value in seconds.items()}
    num_bytes = workload.minimal_bytes()
    row = {
        "workload": workload.name,
        "ours_ms": milliseconds["ours"],
        "peer_ms": milliseconds[peer],
        "ratio": milliseconds[peer] / milliseconds["ours"],
        "gb_per_s": num_bytes and num_bytes / milliseconds["ours"] / 1e6,
        "copy_gb_per_s": copies.gb_per_s(seconds),
        "python_ms": milliseconds["python"],
        "python_ratio": milliseconds[peer] / milliseconds["python"],
    }
    if torch:
        fastest = min(torch.keys() - {COMPILED}, key=milliseconds.get)
        row["torch_ms"] = milliseconds[fastest]
        row["torch_ratio"] = milliseconds[fastest] / milliseconds["python"]
        row["torch_form"] = fastest.removeprefix("torch ")
    if COMPILED in torch:
        row["compiled_ms"] = milliseconds[COMPILED]
        row["compiled_ratio"] = milliseconds[COMPILED] / milliseconds["python"]
    if workload.is_read:
        row["ours_read_ms"] = milliseconds["ours read"]
        row["peer_read_ms"] = milliseconds[f"{peer} read"]
    # The distance between the quartiles, which is large on a busy machine.
    spread = [
        (quartiles[name][2] - quartiles[name][0]) / seconds[name]
        for name in ("ours", peer, "python")
    ]
    num_turns = TURNS * (WARM_UP_ROUNDS + num_rounds)
    num_steps = num_turns * workload.repeats if workload.optimizer else 0
    return row, peer, spread, differences(running, num_steps)


def line(cells):
    widths = [20, 9, 9, 6, 7, 5, 6, 6, 5, 5, 9, 7, 5, 9, 6, 11, 6]
    return "  ".join(
        str(cell).ljust(width) if index in (0, 3, 16) else str(cell).rjust(width)
        for index, (cell, width) in enumerate(zip(cells, widths))
    ).rstrip()


HEADER = line(
    (
        "workload,ours ms,peer ms,peer,ratio,bar,GB/s,copy,part,bar,python ms,ratio,bar,"
        "torch ms,ratio,spreads,"
    ).split(",")
)


def cells(workload, row, peer, spread):
    """Returns the cells of a row of the table."""
    part = row["gb_per_s"] and row["gb_per_s"] / row["copy_gb_per_s"]
    bar = workload.bar or 0
    python_bar = PYTHON_PART * bar
    wanted = [
        ("missed", row["ratio"], bar),
        ("missed: bandwidth", part or 1, workload.bandwidth_bar or 0),
        ("missed: Python", row["python_ratio"], python_bar),
    ]
    note = [text for text, found, bar in wanted if found < bar]
    has_torch = "torch_ms" in row
    if has_torch:
        note.append(f"PyTorch: {row['torch_form']}")
    if "compiled_ms" in row:
        note.append(f"compiled: {row['compiled_ms']:.2f} ms, {row['compiled_ratio']:.2f}")
    if workload.is_read:
        note.append(f"reading alone: {row['ours_read_ms']:.2f} ms, {row['peer_read_ms']:.2f} ms")
    return [
        workload.name,
        f"{row['ours_ms']:.4f}",
        f"{row['peer_ms']:.4f}",
        peer,
        f"{row['ratio']:.2f}",
        bar or "",
        f"{row['gb_per_s']:.2f}" if part else "",
        f"{row['copy_gb_per_s']:.2f}",
        f"{part:.2f}" if part else "",
        workload.bandwidth_bar or "",
        f"{row['python_ms']:.4f}",
        f"{row['python_ratio']:.2f}",
        f"{python_bar:g}" if bar else "",
        f"{row['torch_ms']:.4f}" if has_torch else "",
        f"{row['torch_ratio']:.2f}" if has_torch else "",
        " ".join(f"{part:.0%}" for part in spread),
        "; ".join(note),
    ]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True, help="the crate beside this file, built")
    parser.add_argument("--output", type=Path, required=True, help="where the JSON goes")
    parser.add_argument("--rounds", type=int, default=15)
    names = [workload.name for workload in WORKLOADS]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error(f"--rounds: expected at least 2, found {options.rounds}")
    return options


def main():
    options = arguments()
    ours.load(options.library)
    copies = Copies()
    if not torch_side.is_installed():
        print("peers: skipped: the comparison with PyTorch, which is not installed")
    rows, failures = [], []
    print(HEADER, flush=True)
    for workload in WORKLOADS:
        if workload.name not in options.only:
            continue
        row, peer, spread, found = measured(workload, copies, options.rounds)
        rows.append(row)
        failures += [f"{workload.name}: {failure}" for failure in found]
        print(line(cells(workload, row, peer, spread)), flush=True)
    options.output.write_text(json.dumps(rows, indent=2) + "\n")
    print("\n".join(failures), file=sys.stderr, end="\n" if failures else "")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
