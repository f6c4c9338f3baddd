"""Writes what `run.sh` has found for other programs to read.

    results.py write OUT STEPS   writes OUT/results.json from the files in OUT and from STEPS, which
                                 has a line for each step: name, status, seconds and note, with tabs
                                 between them
    results.py summary XML       prints how many tests of a JUnit file have passed
"""

import json
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def read(path):
    """Returns the text of a file, or "" if the step that writes it did not run."""
    return path.read_bytes().decode(errors="replace") if path.exists() else ""


def lines(path):
    """Returns the complete lines of a file: a step may end while it writes one."""
    return read(path).split("\n")[:-1]


def steps(path):
    for line in lines(path):
        name, status, seconds, note = line.split("\t", 3)
        yield {"step": name, "status": status, "seconds": int(seconds), "note": note}


def write(out, steps_file):
    out = Path(out)
    results = {
        "steps": list(steps(Path(steps_file))),
        "bench": [json.loads(line) for line in lines(out / "bench.jsonl")],
        "peers": json.loads(read(out / "peers.json") or "null"),
    }
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def summary(xml):
    """Returns the counts in pytest's words."""
    counts = {"failures": 0, "errors": 0, "skipped": 0, "tests": 0}
    for suite in ElementTree.parse(xml).iter("testsuite"):
        for name in counts:
            counts[name] += int(suite.get(name, 0))
    failed = counts["failures"] + counts["errors"]
    passed = counts["tests"] - failed - counts["skipped"]
    named = [(passed, "passed"), (failed, "failed"), (counts["skipped"], "skipped")]
    return ", ".join(f"{count} {name}" for count, name in named if count or name == "passed")


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "write":
        write(*arguments)
    else:
        print(summary(*arguments))
