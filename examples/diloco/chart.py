"""Draws the losses that `demo.py` has written.

    python chart.py [INPUT [OUTPUT]]

Needs matplotlib. INPUT is `target/diloco.json`, OUTPUT is `loss.svg` in this folder.
"""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
# Text stays text, and the same numbers give the same file.
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "kvstore", "font.size": 9})
from matplotlib import pyplot  # noqa: E402

FOLDER = Path(__file__).parent


def main(source=FOLDER.parents[1] / "target/diloco.json", path=FOLDER / "loss.svg"):
    found = json.loads(Path(source).read_text())
    figure, axes = pyplot.subplots(figsize=(7.2, 3.2))
    for name, label, color in [
        ("plain", "data parallelism, an exchange in each step", "#c8553d"),
        ("diloco", f"DiLoCo, a fragment every {found['steps_between']} steps", "#1b6ca8"),
    ]:
        rows = found[name]
        axes.plot([row["step"] for row in rows], [row["loss"] for row in rows], color=color,
                  label=label)
    for event, step in found["events"].items():
        axes.axvline(step, color="#8a8d91", linewidth=0.8)
        axes.text(step, axes.get_ylim()[1], f" worker {event}", va="top", fontsize=8)
    axes.set_yscale("log")
    axes.set_xlabel("inner steps")
    axes.set_ylabel("loss of new digits")
    axes.legend(loc="upper right", bbox_to_anchor=(1, 0.9))
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    # Git marks spaces at line ends.
    lines = Path(path).read_text().splitlines()
    Path(path).write_text("".join(line.rstrip() + "\n" for line in lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
