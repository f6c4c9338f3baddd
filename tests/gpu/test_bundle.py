"""Tests the folder that `make gpu-bundle` has made: its contents, the systems that it requires, and
its script on an emulated driver and on a machine without a driver.

Runs with the Python that scripts/portable.sh installs:
    target/portable-venv/bin/python tests/gpu/test_bundle.py
"""

import gzip
import json
import os
import platform
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "packaging"))
from library import Library  # noqa: E402 after the path

BUNDLE = ROOT / "target" / "gpu-bundle"
SUITES = [
    "backends", "elementwise", "values", "calls", "updaters", "snapshots", "concurrency",
    "races", "bits", "row_sparse",
    "store_snapshots",
]  # fmt: skip
# Runs the program after its options, as the real sanitizer does.
SANITIZER = """#!/bin/sh
[ "$1" != --help ] || exec echo --track-stream-ordered-races
while :; do case $1 in */*) exec "$@" ;; *) shift ;; esac; done
"""


def run(out, **environment):
    """Runs the script. Returns its status, its results or None, and its report."""
    environment = {**os.environ, "OUT": out, "SMALL": "1", **environment}
    ended = subprocess.run(
        ["sh", BUNDLE / "run.sh"], env=environment, stdout=subprocess.DEVNULL, timeout=600
    )
    path = Path(out, "results.json")
    results = json.loads(path.read_text()) if path.exists() else None
    return ended.returncode, results, Path(out, "report.txt").read_text()


def table(report):
    """Returns the lines of the last table, one for each step."""
    return [line.split() for line in report.split("== what ran")[1].splitlines()[1:-1]]


class TheFolder(unittest.TestCase):
    def test_has_every_program_for_the_oldest_systems(self):
        names = [f"test-{suite}" for suite in (*SUITES, "card")] + ["kvstore-gpu-bench"]
        found = {path.name.removesuffix(".gz"): path for path in (BUNDLE / "bin").iterdir()}
        self.assertEqual(sorted(found), sorted(names))
        for name, path in found.items():
            with self.subTest(name):
                self.assertEqual(Library.read(gzip.decompress(path.read_bytes())).complaints(), [])

    def test_has_the_wheel_and_its_tests(self):
        self.assertEqual(len(list(BUNDLE.glob("mxkv-*.whl"))), 1)
        self.assertTrue((BUNDLE / "python-tests" / "test_real_gpus.py").exists())

    def test_is_small(self):
        size = sum(path.stat().st_size for path in BUNDLE.rglob("*") if "results" not in path.parts)
        self.assertLess(size, 60 << 20)


@unittest.skipUnless(
    platform.machine() == "x86_64", "the bundle is for another machine than this one"
)
class TheScript(unittest.TestCase):
    def test_runs_every_step_on_an_emulated_driver(self):
        folder = subprocess.run(
            [ROOT / "tests/emulator/build.sh"], check=True, capture_output=True, text=True
        )
        with tempfile.TemporaryDirectory() as out, tempfile.TemporaryDirectory() as tools:
            sanitizer = Path(tools, "compute-sanitizer")
            sanitizer.write_text(SANITIZER)
            sanitizer.chmod(0o755)
            path = f"{tools}:{os.environ['PATH']}"
            status, results, report = run(out, LD_LIBRARY_PATH=folder.stdout.strip(), PATH=path)
        steps = {step["step"]: step["status"] for step in results["steps"]}
        tests = [f"test-{suite}" for suite in (*SUITES, "card")]
        tools = ["memcheck", "initcheck", "stream-ordered-races", "memcheck-suite"]
        for name in (*tests, *tools, "first-calls-warm", "bench"):
            self.assertEqual(steps.get(name), "ok", f"{name}\n{report}")
        self.assertIn(steps["python"], ("ok", "missing"), report)
        self.assertEqual(status, 0, report)
        machine, *cases = results["bench"]
        self.assertTrue(machine["emulated"])
        names = {case["case"] for case in cases}
        stepped = ("adam_f32", "lamb_f32", "adamw_f16", "small_keys_adamw")
        for name in ("copy", "sum_bf16_16", *stepped, "push_1bit", "rows_gather", "array_sum_f32"):
            self.assertIn(name, names)
        self.assertEqual([case for case in cases if "error" in case], [])
        self.assertIn("These numbers mean nothing", report)
        self.assertEqual([line[0] for line in table(report)], list(steps))

    def test_reports_missing_steps_without_a_driver_and_python(self):
        with tempfile.TemporaryDirectory() as out:
            status, results, report = run(out, LD_LIBRARY_PATH="", PYTHON="no-such-python")
        steps = {line[0]: line[1] for line in table(report)}
        self.assertNotEqual(status, 0)
        self.assertEqual(steps["bench"], "FAILED")
        self.assertEqual(steps["peers"], "missing")
        self.assertEqual(steps["python"], "missing")
        self.assertIsNone(results)
        self.assertIn("no results.json", report)


class TheResults(unittest.TestCase):
    """`results.py`, on files as `run.sh` writes them."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = Path(folder.name)

    def run_results(self, *arguments):
        command = [sys.executable, ROOT / "tests/gpu/results.py", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def written(self, steps):
        path = self.out / "steps"
        path.write_bytes(steps)
        self.run_results("write", self.out, path)
        return json.loads((self.out / "results.json").read_text())

    def test_a_step_may_have_any_note(self):
        results = self.written(b'a\tok\t12\t\nb\tFAILED\t0\tstatus 1; "x\\y"\t\xff\r\x1c\n')
        first = {"step": "a", "status": "ok", "seconds": 12, "note": ""}
        note = 'status 1; "x\\y"\t\ufffd\r\x1c'
        second = {"step": "b", "status": "FAILED", "seconds": 0, "note": note}
        self.assertEqual(results, {"steps": [first, second], "bench": [], "peers": None})

    def test_the_cases_of_an_unfinished_bench_are_in_the_results(self):
        (self.out / "bench.jsonl").write_text('{"emulated": false}\n{"case": "copy"}\n{"case": "s')
        (self.out / "peers.json").write_text('[{"case": "copy"}]')
        results = self.written(b"")
        self.assertEqual(results["bench"], [{"emulated": False}, {"case": "copy"}])
        self.assertEqual(results["peers"], [{"case": "copy"}])

    def test_a_summary_has_the_counts_of_pytest(self):
        xml = self.out / "junit.xml"
        suite = '<testsuite name="pytest" errors="1" failures="2" skipped="3" tests="10" />'
        for counted, expected in [
            (suite, "4 passed, 3 failed, 3 skipped\n"),
            ('<testsuite tests="2" />', "2 passed\n"),
        ]:
            xml.write_text(f"<testsuites>{counted}</testsuites>")
            self.assertEqual(self.run_results("summary", xml), expected)


if __name__ == "__main__":
    unittest.main()
