"""Measures stores that span processes beside MXNet's `dist_sync`, on loopback: `make peers-dist`.

All jobs of a part run at the same time and take turns. A job without a turn waits for the driver's
next line and uses no core.
"""

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

import jobs
import pattern
from workloads import MIB64, resnet50_shapes

# OpenMP's threads spin for a while after their work. The next turn starts when they sleep.
PAUSE = 0.2
WARM_UP_TURNS = 2
NUM_WORKERS = 2
# The launcher that the bars apply to. Like MXNet's, it sends its bytes over loopback.
JUDGED = "ours"
HIDDEN_BAR = 0.7
MAX_WORKERS = 4


class Workload:
    def __init__(self, name, bar, shapes, count, mode="list"):
        self.name, self.bar, self.shapes, self.mode = name, bar, shapes, mode
        # The number of rounds of a turn. The rounds before them wake sleeping threads and fill the
        # caches.
        self.count, self.warm = count, 1 + count // 2

    @property
    def values(self):
        """Returns the name of its keys. Several workloads may use the same keys."""
        return self.name.split("_")[0]

    def sent_bytes(self, num_workers):
        """Returns the bytes that a worker sends in a round, and receives: the sums that others add,
        the weights that others step."""
        num_bytes = 4 * sum(int(np.prod(shape)) for shape in self.shapes)
        return 2 * num_bytes * (num_workers - 1) / num_workers


WORKLOADS = [
    Workload("4KiB", 10, [(1 << 10,)], 200),
    Workload("1MiB", 4, [(1 << 18,)], 40),
    Workload("64MiB", 3.5, [(MIB64,)], 4),
    Workload("resnet50", 4, resnet50_shapes(), 4),
    Workload("resnet50_keys", 4, resnet50_shapes(), 4, "keys"),
]
# 16 layers of 4 MiB, and the parameters of ResNet-50.
OVERLAPS = {"layers16": [(1 << 20,)] * 16, "resnet50": resnet50_shapes()}


def init(running, name, shapes):
    words = ["x".join(map(str, shape)) for shape in shapes]
    for job in running.values():
        job.ask("init", name, *words)


def turns(sides, workload, num_turns):
    """Returns the seconds of a round on each side, one number per turn: the median of the rounds,
    and the mean of that over the workers. A side is a job and the mode of its rounds."""
    times = {name: [] for name in sides}
    names = list(sides)
    for number in range(WARM_UP_TURNS + num_turns):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            time.sleep(PAUSE)
            job, mode = sides[name]
            workers = job.ask_all("rounds", workload.values, mode, workload.warm, workload.count)
            if number >= WARM_UP_TURNS:
                times[name].append(statistics.mean(map(statistics.median, workers)))
    return times


def quartiles_of(times):
    """Returns the quartiles of each side's times."""
    return {name: statistics.quantiles(seconds, n=4) for name, seconds in times.items()}


def rounds_of(workload, num_turns):
    """Returns how many rounds [`turns`] runs on each side."""
    return (WARM_UP_TURNS + num_turns) * (workload.warm + workload.count)


def saved(job, name):
    """Returns the values of all keys in a row, as the store has them."""
    with tempfile.NamedTemporaryFile() as file:
        job.ask("save", name, file.name)
        return np.fromfile(file.name, np.float32)


def values_after(workload, value):
    """Returns the values of all keys in a row. `value` returns that of a key with this index and
    shape."""
    return np.concatenate([value(i, shape).ravel() for i, shape in enumerate(workload.shapes)])


def differences(running, workload, num_workers, num_steps):
    """Returns a line for each side whose values are not bitwise those after this number of
    rounds."""
    expected = values_after(workload, partial(pattern.after, num_workers, num_steps))
    return [
        f"{workload.values}: what {side} holds is not what {num_steps} rounds make"
        for side, job in running.items()
        if side != "wire" and not np.array_equal(saved(job, workload.values), expected)
    ]


def row(name, workload, side, quartiles, num_workers):
    """Returns a row of the JSON."""
    milliseconds = {side: 1e3 * median for side, (_, median, _) in quartiles.items()}
    ours, peer, wire = (milliseconds.get(it) for it in (side, "mxnet", "wire"))
    num_bytes = workload.sent_bytes(num_workers)
    return {
        "workload": name,
        "ours_ms": ours,
        "peer_ms": peer,
        "ratio": peer / ours,
        "gb_per_s": num_bytes / ours / 1e6 or None,
        "copy_gb_per_s": wire and num_bytes / wire / 1e6,
    }


WIDTHS = [24, 9, 9, 6, 5, 6, 6, 10, 6]


def line(cells, widths=WIDTHS):
    padded = zip(cells, widths)
    texts = [
        str(cell).ljust(width) if width in (24,) else str(cell).rjust(width)
        for cell, width in padded
    ]
    return "  ".join(texts).rstrip()


HEADER = line("workload,ours ms,MXNet ms,ratio,bar,GB/s,wire,spreads,".split(","))


def spread(quartiles):
    low, median, high = quartiles
    return f"{(high - low) / median:.0%}"


def cells(row, bar, quartiles, side):
    return [
        row["workload"],
        f"{row['ours_ms']:.4f}",
        f"{row['peer_ms']:.4f}",
        f"{row['ratio']:.2f}",
        bar or "",
        f"{row['gb_per_s']:.2f}" if row["gb_per_s"] else "",
        f"{row['copy_gb_per_s']:.2f}" if row["copy_gb_per_s"] else "",
        f"{spread(quartiles[side])} {spread(quartiles['mxnet'])}",
        ("passed" if row["ratio"] >= bar else "missed") if bar else "",
    ]


class Report:
    """The rows, the printed table, and the faults."""

    def __init__(self):
        self.rows, self.lines, self.failures = [], [], []

    def say(self, text):
        self.lines.append(text)
        print(text, flush=True)

    def finish(self, path):
        """Writes the rows and prints the faults. Returns the exit status."""
        path.write_text(json.dumps(self.rows, indent=2) + "\n")
        print("\n".join(self.failures), file=sys.stderr, end="\n" if self.failures else "")
        return 1 if self.failures else 0


def launchers(num_workers):
    """Returns the installed launchers, by the names of their rows."""
    found = {"ours": jobs.OPEN_MPI}
    # MPICH polls without pause, so workers without their own core would slow each other down.
    if num_workers == NUM_WORKERS:
        found["ours_mpich"] = jobs.MPICH
    return {name: command for name, command in found.items() if jobs.is_installed(command)}


def part(options, num_workers, report):
    """Measures the rounds with this number of workers, and with two workers the overlap."""
    with contextlib.ExitStack() as stack:

        def started(job):
            return stack.enter_context(job)

        ours = {
            name: started(jobs.ours(options.program, command, num_workers))
            for name, command in launchers(num_workers).items()
        }
        running = {**ours, "mxnet": started(jobs.mxnet(num_workers))}
        if num_workers == NUM_WORKERS:
            running["wire"] = started(jobs.wire(options.program))
        report.say(
            f"\n{num_workers} workers\n{HEADER}" if num_workers > 1 else f"\n1 worker\n{HEADER}"
        )
        workloads = [workload for workload in WORKLOADS if workload.name in options.only]
        if num_workers != NUM_WORKERS:
            workloads = [workload for workload in workloads if workload.mode == "list"]
        num_steps = {}
        for workload in workloads:
            if workload.values not in num_steps:
                init(running, workload.values, workload.shapes)
            sides = {name: (job, workload.mode) for name, job in running.items()}
            quartiles = quartiles_of(turns(sides, workload, options.rounds))
            steps = rounds_of(workload, options.rounds)
            num_steps[workload.values] = num_steps.get(workload.values, 0) + steps
            for side in ours:
                name = workload.name + side.removeprefix("ours")
                name += f"_{num_workers}_workers" if num_workers != NUM_WORKERS else ""
                found = row(name, workload, side, quartiles, num_workers)
                report.rows.append(found)
                bar = workload.bar if side == JUDGED and num_workers == NUM_WORKERS else None
                report.say(line(cells(found, bar, quartiles, side)))
        for workload in workloads:
            if workload.values in num_steps:
                steps = num_steps.pop(workload.values)
                report.failures += differences(running, workload, num_workers, steps)
        if num_workers == NUM_WORKERS and "overlap" in options.only:
            running.pop("mxnet")
            overlaps(ours, options, report)


def overlaps(ours, options, report):
    report.say("\noverlap                 compute   transfer   both ms    hidden    bar")
    for name, shapes in OVERLAPS.items():
        init(ours, f"overlap-{name}", shapes)
        for kind in ("wait", "work"):
            for side, job in ours.items():
                overlap(job, (name, kind, side), options.rounds, report)


def overlap(job, case, num_rounds, report):
    """Measures a step whose computation takes as long as the transfer."""
    name, kind, side = case

    def medians(seconds, count):
        time.sleep(PAUSE)
        found = job.ask("overlap", f"overlap-{name}", kind, seconds, count)
        return {part: 1e3 * statistics.median(times) for part, times in found.items()}

    compute = medians(0.01, 5)["transfer"] / 1e3
    # The computation takes slightly longer or shorter than requested, and the first transfer is
    # slow.
    for _ in range(2):
        found = medians(compute, 5)
        compute *= found["transfer"] / found["compute"]
    found = medians(compute, 2 * num_rounds)
    shorter = min(found["compute"], found["transfer"])
    hidden = (found["compute"] + found["transfer"] - found["both"]) / shorter
    label = f"overlap_{name}_{kind}{side.removeprefix('ours')}"
    report.rows.append(
        {
            "workload": label,
            "ours_ms": found["both"],
            "peer_ms": None,
            "ratio": None,
            "gb_per_s": None,
            "copy_gb_per_s": None,
            "compute_ms": found["compute"],
            "transfer_ms": found["transfer"],
            "hidden": hidden,
        }
    )
    bar = HIDDEN_BAR if kind == "wait" and side == JUDGED else None
    verdict = ("passed" if hidden >= bar else "missed") if bar else ""
    numbers = "".join(f"{found[part]:10.2f}" for part in ("compute", "transfer", "both"))
    report.say(f"{label:<27}{numbers}{hidden:9.0%}  {bar or '':>5}  {verdict}".rstrip())


def growth(report):
    """Reports how a round grows with the number of workers."""
    milliseconds = {row["workload"]: (row["ours_ms"], row["peer_ms"]) for row in report.rows}
    report.say(
        "\nms of a round, ours / MXNet: "
        + ", ".join(f"{n}" for n in range(1, MAX_WORKERS + 1))
        + " workers"
    )
    for workload in WORKLOADS:
        names = [
            workload.name + (f"_{n}_workers" if n != NUM_WORKERS else "")
            for n in range(1, MAX_WORKERS + 1)
        ]
        if all(name in milliseconds for name in names):
            pairs = ["{:.3g} / {:.3g}".format(*milliseconds[name]) for name in names]
            report.say(f"{workload.name:<14}" + "".join(f"{pair:>18}" for pair in pairs))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="our worker, built")
    parser.add_argument("--output", type=Path, required=True, help="where the JSON goes")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each side")
    everyone = [NUM_WORKERS] + [n for n in range(1, MAX_WORKERS + 1) if n != NUM_WORKERS]
    parser.add_argument("--workers", type=int, nargs="+", choices=everyone, default=everyone)
    names = [workload.name for workload in WORKLOADS] + ["overlap"]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    return parser.parse_args()


def main():
    options = arguments()
    report = Report()
    for num_workers in options.workers:
        part(options, num_workers, report)
    growth(report)
    verdicts = [text for text in report.lines if text.endswith(("passed", "missed"))]
    print("\n".join(["", "bars", *verdicts]))
    return report.finish(options.output)


if __name__ == "__main__":
    jobs.end_as_if_interrupted()
    sys.exit(main())
