"""Draws charts of the measurements of `make peers` and `make bench`.

    python3 scripts/charts.py [TARGET [FOLDER]]

Reads from TARGET (`target`) what other commands left there:

- `peers.json`: `make peers`
- `criterion/scaling`: `cargo bench -p kvstore --bench small_keys -- scaling`

Writes SVG files into FOLDER (`docs/performance`), and prints the numbers as Markdown tables. Fails
if a measurement is missing.
"""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
# Text stays text, and the same numbers give the same file.
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "kvstore", "font.size": 9})
from matplotlib import pyplot  # noqa: E402

OURS, PEERS = "#1b6ca8", ["#c8553d", "#8a8d91", "#d9a441"]


def read_scaling(folder):
    """Returns `{name: [(parameter, nanoseconds, bytes)]}` and the copy's bytes per nanosecond."""
    found = {}
    for path in folder.glob("*/*/new/benchmark.json"):
        group = json.loads(path.read_text())
        median = (
            json.loads((path.parent / "estimates.json").read_text())["median"]["point_estimate"]
        )
        row = (int(group["value_str"]), median, group["throughput"]["Bytes"])
        found.setdefault(group["function_id"], []).append(row)
    path = folder / "copy" / "new"
    throughput = json.loads((path / "benchmark.json").read_text())["throughput"]["Bytes"]
    copy = (
        throughput / json.loads((path / "estimates.json").read_text())["median"]["point_estimate"]
    )
    return {name: sorted(rows) for name, rows in found.items()}, copy


def save(figure, path):
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    # Git marks spaces at line ends.
    path.write_text("".join(line.rstrip() + "\n" for line in path.read_text().splitlines()))


def draw_peers(rows, path):
    """Time of each peer over ours, one bar each."""
    peers = [
        ("MXNet 1.9.1", "ratio"),
        ("PyTorch", "torch_ratio"),
        ("torch.compile", "compiled_ratio"),
    ]
    # A pull copies nothing here, so its ratio would hide the others.
    rows = [row for row in rows if row["ratio"] < 1000]
    figure, axes = pyplot.subplots(figsize=(7.2, 0.38 * len(rows) + 1))
    for place, (peer, field) in enumerate(peers):
        bars = [
            (index + 0.26 * (place - 1), row[field])
            for index, row in enumerate(rows)
            if field in row
        ]
        axes.barh(
            [y for y, _ in bars], [ratio for _, ratio in bars], 0.24, label=peer, color=PEERS[place]
        )
        for y, ratio in bars:
            axes.text(ratio * 1.03, y, f"{ratio:.1f}", va="center", fontsize=7)
    axes.axvline(1, color=OURS)
    axes.set_xscale("log")
    axes.margins(x=0.1)
    axes.set_yticks(range(len(rows)), [row["workload"] for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel("time of the peer / time of the store (1 = as fast)")
    axes.legend(loc="upper right")
    save(figure, path)


def draw_bandwidth(rows, path):
    """Draws the bandwidth that each workload needs, divided by the bandwidth of a copy."""
    rows = [row for row in rows if row["gb_per_s"]]
    shares = [row["gb_per_s"] / row["copy_gb_per_s"] for row in rows]
    figure, axes = pyplot.subplots(figsize=(7.2, 0.34 * len(rows) + 0.9))
    axes.barh(range(len(rows)), shares, 0.6, color=OURS)
    for index, share in enumerate(shares):
        axes.text(share + 0.01, index, f"{share:.2f}", va="center", fontsize=8)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.margins(x=0.1)
    axes.set_yticks(range(len(rows)), [row["workload"] for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel("share of a copy's bandwidth (1 = as fast as copying memory)")
    save(figure, path)


def draw_scaling(scaling, copy, path):
    """A push by number of keys, of values and of elements."""
    figure, (keys, values, elements) = pyplot.subplots(1, 3, figsize=(9, 2.9))
    rows = scaling["keys"]
    keys.loglog(
        [count for count, _, _ in rows], [time / count for count, time, _ in rows], "o-", color=OURS
    )
    keys.set_xlabel("keys of 4 x 64 floats")
    keys.set_ylabel("ns per key")
    for axes, name in [(values, "values"), (elements, "elements")]:
        rows = scaling[name]
        axes.plot(
            [count for count, _, _ in rows],
            [size / time for _, time, size in rows],
            "o-",
            color=OURS,
        )
        axes.axhline(copy, color="black", linewidth=0.8)
        axes.text(rows[0][0], copy, "copy", va="bottom", fontsize=8)
        axes.set_xscale("log", base=2)
        axes.set_ylim(0, 1.15 * max(copy, *(size / time for _, time, size in rows)))
        axes.set_ylabel("GB/s")
    values.set_xlabel("values of 64 MiB")
    elements.set_xlabel("elements of 4 values")
    save(figure, path)


def table(head, rows):
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def short(number):
    """Returns a number with three digits, without an exponent."""
    return f"{number:.0f}" if number >= 1000 else f"{number:.3g}"


def ratio(row, name):
    return short(row[name]) if name in row else ""


def print_tables(rows, scaling):
    numbers = [
        [
            f"`{row['workload']}`",
            short(row["ours_ms"]),
            *(ratio(row, name) for name in ["ratio", "torch_ratio", "compiled_ratio"]),
            f"{row['gb_per_s'] / row['copy_gb_per_s']:.2f}" if row["gb_per_s"] else "",
        ]
        for row in rows
    ]
    head = ["workload", "store (ms)", "MXNet", "PyTorch", "compiled", "of a copy"]
    print(table(head, numbers))
    for name, of_name in scaling.items():
        print()
        print(
            table(
                [name, "a push", "GB/s"],
                [
                    [str(count), f"{time / 1e3:.4g} us", f"{size / time:.2f}"]
                    for count, time, size in of_name
                ],
            )
        )


def main(target="target", folder="docs/performance"):
    target, folder = Path(target), Path(folder)
    rows = json.loads((target / "peers.json").read_text())
    scaling, copy = read_scaling(target / "criterion" / "scaling")
    folder.mkdir(parents=True, exist_ok=True)
    draw_peers(rows, folder / "peers.svg")
    draw_bandwidth(rows, folder / "bandwidth.svg")
    draw_scaling(scaling, copy, folder / "scaling.svg")
    print_tables(rows, scaling)


if __name__ == "__main__":
    main(*sys.argv[1:])
