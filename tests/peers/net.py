"""Measures the network store beside MXNet's `dist_async` and beside plain sockets, on loopback:
`make peers-net`.

Each side has a server and two workers. All sides run at the same time and take turns, as in
`dist.py`.
"""

import argparse
import contextlib
import statistics
import sys
from functools import partial
from pathlib import Path

import numpy as np

import jobs
import pattern
from dist import Report, Workload, init, line, rounds_of, saved, spread, turns, values_after
from workloads import MIB64, resnet50_shapes

NUM_WORKERS = 2
# The bar for our time, divided by that of plain sockets, at 64 MiB.
RAW_BAR = 2
# The bar for our time with certificates, divided by that without, at 64 MiB.
TLS_BAR = 1.8
CERTIFICATES = Path(__file__).parents[1] / "certificates"
# A gradient is pushed some hundred times, so rounding errors stay below this.
MOST_ERROR = 1e-4


class Part:
    """Workloads with the same optimizer, SGD with this momentum."""

    def __init__(self, momentum, workloads, modes):
        self.momentum, self.workloads = momentum, workloads
        # The modes of each side. Its fastest one is reported.
        self.modes = modes

    def jobs(self, program):
        """Returns the jobs of each side."""
        running = {
            "ours": jobs.on_server(program, "net", NUM_WORKERS, (), (self.momentum,)),
            "mxnet": jobs.mxnet(NUM_WORKERS, "dist_async", self.momentum),
        }
        if not self.momentum:
            running["raw"] = jobs.on_server(program, "raw", NUM_WORKERS, (NUM_WORKERS,))
            running["tls"] = jobs.on_server(
                program, "net", NUM_WORKERS, (), (self.momentum,), certificates=CERTIFICATES
            )
        return running

    def is_correct(self, found, workload, num_steps):
        """Returns whether these are the values of all keys after this number of rounds."""
        if not self.momentum:
            after = partial(pattern.after, NUM_WORKERS, num_steps)
            return np.array_equal(found, values_after(workload, after))
        after = partial(pattern.after_momentum, self.momentum, NUM_WORKERS * num_steps)
        return np.allclose(found, values_after(workload, after), MOST_ERROR, MOST_ERROR)


PARTS = [
    Part(
        0.0,
        [
            Workload("4KiB", 4, [(1 << 10,)], 200),
            Workload("1MiB", 1.2, [(1 << 18,)], 40),
            Workload("64MiB", 2, [(MIB64,)], 4),
        ],
        {
            "ours": ["list", "pushpull"],
            "mxnet": ["list", "pushpull"],
            "raw": ["list"],
            "tls": ["list", "pushpull"],
        },
    ),
    # MXNet is often faster key by key, because the server steps one key while others travel.
    Part(
        0.9,
        [Workload("resnet50", 2, resnet50_shapes(), 4)],
        {"ours": ["list", "pushpull"], "mxnet": ["list", "keys", "pushpull"]},
    ),
]

WIDTHS = [24, 9, 9, 6, 12, 5, 8, 6, 12, 14, 6]
HEADER = line(
    "workload,ours ms,MXNet ms,ratio,quartiles,bar,raw ms,of raw,quartiles,spreads,".split(","),
    WIDTHS,
)


def fastest(times, side):
    """Returns the name and the times of the side's fastest mode."""
    modes = {name: seconds for name, seconds in times.items() if name[0] == side}
    return min(modes.items(), key=lambda item: statistics.median(item[1]), default=(None, None))


def ratio(times, other):
    """Returns the quartiles of the ratio of two sides, over turns."""
    ratios = [theirs / ours for ours, theirs in zip(times, other)]
    return statistics.quantiles(ratios, n=4)


def report_on(workload, times, report):
    """Adds the row of a workload and prints it."""
    best = {side: fastest(times, side) for side in ("ours", "mxnet", "raw", "tls")}
    (ours_name, ours), (peer_name, peer), (_, raw), (_, tls) = best.values()
    found = {"workload": workload.name}
    found |= {"ours_mode": ours_name[1], "peer_mode": peer_name[1]}
    found |= {"ours_ms": 1e3 * statistics.median(ours), "peer_ms": 1e3 * statistics.median(peer)}
    quartiles = ratio(ours, peer)
    found |= {"ratio": found["peer_ms"] / found["ours_ms"], "ratio_quartiles": quartiles}
    of_raw = ratio(raw, ours) if raw else None
    found |= {
        "raw_ms": raw and 1e3 * statistics.median(raw),
        "of_raw": raw and statistics.median(ours) / statistics.median(raw),
        "of_raw_quartiles": of_raw,
        "modes_ms": {" ".join(name): 1e3 * statistics.median(it) for name, it in times.items()},
    }
    if tls:
        found |= {"tls_ratio": statistics.median(tls) / statistics.median(ours)}
        found |= {"tls_ratio_quartiles": ratio(ours, tls)}
    report.rows.append(found)
    has_passed = found["ratio"] >= workload.bar
    if workload.name == "64MiB":
        has_passed = has_passed and found["of_raw"] <= RAW_BAR
        has_passed = has_passed and found["tls_ratio"] <= TLS_BAR
    cells = [
        workload.name,
        f"{found['ours_ms']:.3f}",
        f"{found['peer_ms']:.3f}",
        f"{found['ratio']:.2f}",
        f"{quartiles[0]:.2f}-{quartiles[2]:.2f}",
        workload.bar,
        f"{found['raw_ms']:.3f}" if raw else "",
        f"{found['of_raw']:.2f}" if raw else "",
        f"{of_raw[0]:.2f}-{of_raw[2]:.2f}" if raw else "",
        " ".join(spread(statistics.quantiles(it, n=4)) for it in (ours, peer, raw) if it),
        "passed" if has_passed else "missed",
    ]
    report.say(line(cells, WIDTHS))
    if tls:
        low, _, high = found["tls_ratio_quartiles"]
        text = f"{found['tls_ratio']:.2f} of plain text, quartiles {low:.2f}-{high:.2f}"
        report.say(f"    with certificates: {text}")
    for name, milliseconds in found["modes_ms"].items():
        report.say(f"    {name:<20}{milliseconds:9.3f}")


def measure(part, options, report):
    """Measures the workloads of a part, and checks the values of all sides."""
    workloads = [workload for workload in part.workloads if workload.name in options.only]
    if not workloads:
        return
    with contextlib.ExitStack() as stack:
        running = {
            side: stack.enter_context(job) for side, job in part.jobs(options.program).items()
        }
        for workload in workloads:
            init(running, workload.values, workload.shapes)
            sides = {
                (side, mode): (job, mode) for side, job in running.items()
                for mode in part.modes[side]
            }
            report_on(workload, turns(sides, workload, options.rounds), report)
            for side, job in running.items():
                num_steps = len(part.modes[side]) * rounds_of(workload, options.rounds)
                if not part.is_correct(saved(job, workload.values), workload, num_steps):
                    report.failures.append(
                        f"{workload.name}: what {side} holds is not what {num_steps} rounds make"
                    )


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="our server and worker, built")
    parser.add_argument("--output", type=Path, required=True, help="where the JSON goes")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each side")
    names = [workload.name for part in PARTS for workload in part.workloads]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    return parser.parse_args()


def main():
    options = arguments()
    report = Report()
    report.say(HEADER)
    for part in PARTS:
        measure(part, options, report)
    return report.finish(options.output)


if __name__ == "__main__":
    jobs.end_as_if_interrupted()
    sys.exit(main())
