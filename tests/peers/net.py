"""Measures the network store beside MXNet's `dist_async` and beside plain sockets, on one machine:
`make peers-net`.

Each side has a server and two workers. All sides run at the same time and take turns, as in
`dist.py`. The store runs three times: over its Unix socket (`ours`), over TCP (`tcp`), and over TCP
with certificates (`tls`). The other sides use TCP.
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
# The bar for our time over TCP, divided by that of plain sockets, at 64 MiB.
RAW_BAR = 2
# The bar for our time with certificates, divided by that over TCP without, at 64 MiB.
TLS_BAR = 1.8
# A loopback address for which the store has no Unix socket.
TCP_HOST = "127.0.0.2"
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
        store = partial(jobs.on_server, program, "net", NUM_WORKERS, (), (self.momentum,))
        running = {
            "ours": store(),
            "tcp": store(host=TCP_HOST),
            "mxnet": jobs.mxnet(NUM_WORKERS, "dist_async", self.momentum),
        }
        if not self.momentum:
            running["raw"] = jobs.on_server(program, "raw", NUM_WORKERS, (NUM_WORKERS,))
            running["tls"] = store(certificates=CERTIFICATES)
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
            "tcp": ["list", "pushpull"],
            "mxnet": ["list", "pushpull"],
            "raw": ["list"],
            "tls": ["list", "pushpull"],
        },
    ),
    # MXNet is often faster key by key, because the server steps one key while others travel.
    Part(
        0.9,
        [Workload("resnet50", 2, resnet50_shapes(), 4)],
        {
            "ours": ["list", "pushpull"],
            "tcp": ["list", "pushpull"],
            "mxnet": ["list", "keys", "pushpull"],
        },
    ),
]

WIDTHS = [24, 9, 9, 6, 12, 5, 8, 9, 8, 14, 6]
HEADER = line(
    "workload,ours ms,MXNet ms,ratio,quartiles,bar,tcp ms,ratio tcp,raw ms,spreads,".split(","),
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
    best = {side: fastest(times, side) for side in ("ours", "tcp", "mxnet", "raw", "tls")}
    best = {side: (name, seconds) for side, (name, seconds) in best.items() if name}
    medians = {side: 1e3 * statistics.median(seconds) for side, (_, seconds) in best.items()}
    found = {"workload": workload.name}
    found |= {f"{side}_mode": name[1] for side, (name, _) in best.items()}
    found |= {f"{side}_ms": milliseconds for side, milliseconds in medians.items()}
    has_passed = True

    def compare(name, side, other, bar=None, is_most=False):
        """Adds the time of `other` divided by that of `side`."""
        nonlocal has_passed
        found[name] = medians[other] / medians[side]
        low, _, high = ratio(best[side][1], best[other][1])
        found[f"{name}_quartiles"] = low, high
        has_passed &= bar is None or (found[name] <= bar if is_most else found[name] >= bar)
        return f"{low:.2f}-{high:.2f}"

    quartiles = compare("ratio", "ours", "mxnet", workload.bar)
    compare("tcp_ratio", "tcp", "mxnet")
    more = []
    if "raw" in best:
        is_judged = workload.name == "64MiB"
        texts = [
            ("of_raw", "raw", "tcp", RAW_BAR, "TCP", "plain sockets"),
            ("tls_ratio", "tcp", "tls", TLS_BAR, "certificates", "TCP without them"),
        ]
        for name, side, other, bar, what, of in texts:
            spread_of = compare(name, side, other, bar if is_judged else None, is_most=True)
            more.append(f"    {what}: {found[name]:.2f} of {of}, quartiles {spread_of}")
    spreads = [spread(statistics.quantiles(seconds, n=4)) for _, seconds in best.values()]
    cells = [
        workload.name,
        f"{medians['ours']:.3f}",
        f"{medians['mxnet']:.3f}",
        f"{found['ratio']:.2f}",
        quartiles,
        workload.bar,
        f"{medians['tcp']:.3f}",
        f"{found['tcp_ratio']:.2f}",
        f"{medians['raw']:.3f}" if "raw" in medians else "",
        " ".join(spreads[:3]),
        "passed" if has_passed else "missed",
    ]
    found["modes_ms"] = {" ".join(name): 1e3 * statistics.median(it) for name, it in times.items()}
    report.rows.append(found)
    report.say(line(cells, WIDTHS))
    for text in more:
        report.say(text)
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
