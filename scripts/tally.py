"""Sums the test results of the commands that scripts/tally.sh has run, and prints a line for each.

    python3 scripts/tally.py FOLDER NAME..

Reads from FOLDER/NAME:

- `reports/**/*.xml`: JUnit XML, written by Surefire, Failsafe, JUnit's console launcher and pytest
- `reports/**/*.json`: `{"passed": 3, "failed": 0, "skipped": ["a reason"]}`, written by
  run_unittests.py and the replay of programs
- `output.log`: cargo's lines `test result: ..`, and lines of the project's own scripts and tests.
  `not run: REASON` and `on which GPUs: ..` are repeated. Each `skipped: REASON` is a check within a
  Rust test that could not run.
- `status` and `seconds`, written by tally.sh

Prints the output of failed tests above the counts, and their names and errors below them, because
CI may show only the end of a log.

Ends with status 1 if a test failed. A command that did not run, was interrupted, failed without a
failed test, or passed without any result, counts as a failed test.
"""

import collections
import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# cargo has no stable machine-readable report; docs/design.md explains why this line is read.
CARGO = re.compile(r"test result: (?:ok|FAILED)\. (\d+) passed; (\d+) failed; (\d+) ignored;")
CARGO_HEADING = re.compile(r"---- .* stdout ----$")
# JUnit's launcher reports the exception of an assumption. Only its message is the reason.
EXCEPTION = re.compile(r"^[\w.$]+Exception: (Assumption failed: )?")
LONGEST_REASON = 160
# A frame of a Java stack trace outside this project's packages.
FOREIGN_FRAME = re.compile(r"\s+at (?!dev\.kvstore|org\.apache\.clojure_mxnet)|\s+\.\.\. \d+ more")
# The number of repeated lines of a failed test's output. Java prints the error first, other tools
# last.
FIRST_LINES = 20
LAST_LINES = 40


class Tally:
    """The results of one command."""

    def __init__(self):
        self.passed = self.failed = 0
        # The reasons for skipped tests, with their numbers. "" is an unknown reason.
        self.skipped = collections.Counter()
        self.checks = collections.Counter()
        self.notes = []
        # The heading and the output of each failed test.
        self.failures = []
        self.seconds = "?"

    def fail(self, reason):
        self.failed += 1
        self.notes.append(reason)

    def count_junit(self, path):
        """Counts the test cases of a file, not the counts of its suites, which differ between
        writers."""
        for case in ElementTree.parse(path).iter("testcase"):
            skip = case.find("skipped")
            failures = case.findall("failure") + case.findall("error")
            if failures:
                self.failed += 1
                name = f"{case.get('classname')} {case.get('name')}"
                texts = [failure.text or failure.get("message") or "" for failure in failures]
                lines = [
                    line for line in "\n".join(texts).splitlines() if not FOREIGN_FRAME.match(line)
                ]
                self.failures.append([name, *shortened(lines)])
            elif skip is not None:
                self.skipped[first_line(skip.get("message") or skip.text)] += 1
            else:
                self.passed += 1

    def count_json(self, path):
        report = json.loads(path.read_text(encoding="utf-8"))
        self.passed += report["passed"]
        self.failed += report["failed"]
        self.skipped.update(map(first_line, report.get("skipped", [])))

    def count_log(self, path):
        # cargo prints `failures:` twice: before the output of failed tests, and before their names.
        printed = None
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            line = COLOUR.sub("", line)
            if line == "failures:" and printed is None:
                printed = []
            elif printed is not None:
                printed.append(line)
            cargo = CARGO.match(line)
            if cargo and printed is not None:
                self.failures.extend(failures_of(printed))
                printed = None
            if cargo:
                passed, failed, ignored = map(int, cargo.groups())
                self.passed += passed
                self.failed += failed
                self.skipped[""] += ignored
            elif line.startswith(("not run: ", "on which GPUs: ")):
                if line not in self.notes:
                    self.notes.append(line)
            elif line.startswith("skipped: "):
                self.checks[line[len("skipped: ") :]] += 1

    def is_empty(self):
        has_results = self.passed + self.failed + sum(self.skipped.values()) > 0
        return not has_results and not any(note.startswith("not run: ") for note in self.notes)


def failures_of(printed):
    """Returns the heading and the shortened output of each failed test of a test program."""
    if "failures:" in printed:
        printed = printed[: printed.index("failures:")]
    failures = []
    for line in printed:
        if CARGO_HEADING.match(line):
            failures.append([line])
        elif failures:
            failures[-1].append(line)
    return [[heading, *shortened(lines)] for heading, *lines in failures]


def shortened(lines):
    """Returns the first and the last lines, if there are many."""
    if len(lines) <= FIRST_LINES + LAST_LINES:
        return lines
    left_out = len(lines) - FIRST_LINES - LAST_LINES
    return [*lines[:FIRST_LINES], f"[{left_out} lines left out]", *lines[-LAST_LINES:]]


def error_of(output):
    """Returns the error of a failed test in one line: after Rust's `panicked at`, after pytest's
    `E`, before Java's stack trace, or else the first line. The output of a child process follows an
    error that ends with a colon."""
    lines = [line.strip() for line in output if line.strip()]
    for index, (line, error) in enumerate(zip(lines, lines[1:])):
        if re.search(r"panicked at .*:\d+:$", line):
            if error.endswith(":"):
                error = f"{error} {error_of(lines[index + 2 :])}"
            return error[:LONGEST_REASON]
    errors = [line[1:].strip() for line in lines if re.match(r"E\s", line)]
    if errors:
        return first_line(errors[0])
    frames = [line.startswith("at ") for line in lines]
    end = frames.index(True) if any(frames) else 1
    return first_line(" ".join(lines[:end]))


def first_line(reason):
    lines = (reason or "").strip().splitlines()
    return EXCEPTION.sub("", lines[0])[:LONGEST_REASON] if lines else ""


def read(path):
    return path.read_text().strip() if path.is_file() else None


def tally(folder):
    """Returns the results of the command with this folder."""
    result = Tally()
    if not folder.is_dir():
        result.fail("did not run")
        return result
    for path in sorted((folder / "reports").rglob("*")):
        count = {".xml": result.count_junit, ".json": result.count_json}.get(path.suffix)
        try:
            if count:
                count(path)
        except (ElementTree.ParseError, ValueError, KeyError, TypeError) as error:
            result.fail(f"cannot read the report {path.name}: {error}")
    if (folder / "output.log").is_file():
        result.count_log(folder / "output.log")
    result.seconds = read(folder / "seconds") or "?"
    status = read(folder / "status")
    if status is None:
        result.fail("was interrupted")
    elif status != "0" and result.failed == 0:
        result.fail(f"ended with status {status}")
    elif status == "0" and result.is_empty():
        result.fail("no report")
    return result


def lines(name, result):
    """Yields a line of counts, and a line for each reason of skipped tests."""
    notes = list(result.notes)
    if result.checks:
        reasons = "; ".join(result.checks)
        notes.append(f"not run: {sum(result.checks.values())} checks: {reasons}")
    yield "  ".join(
        [
            f"{name:<12} {result.passed:6} passed {result.failed:4} failed"
            f" {sum(result.skipped.values()):4} skipped {result.seconds:>5} s",
            *notes,
        ]
    )
    for reason, number in sorted(result.skipped.items()):
        if reason:
            yield f"             {number:6} skipped: {reason}"


def main(folder, *names):
    results = {name: tally(Path(folder) / name) for name in names}
    failures = [(name, *failure) for name, result in results.items() for failure in result.failures]
    for name, test, *output in failures:
        print("\n".join([f"{name}: failed: {test}", *output, ""]))
    for name, result in results.items():
        print("\n".join(lines(name, result)))
    for name, test, *output in failures:
        print(f"{name}: failed: {test}: {error_of(output)}")
    return 1 if any(result.failed for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
