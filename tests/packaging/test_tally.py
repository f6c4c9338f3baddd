"""Tests how the results of the test commands are counted and printed.

Runs with any Python:
    python3 tests/packaging/test_tally.py
"""

import sys
import unittest

from stub_programs import ScriptTest


class Tally(ScriptTest):
    """`scripts/tally.sh`, `tally.py` and `run_unittests.py`."""

    SUREFIRE = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="dev.kvstore.KVStoreTest" time="0.4" tests="4" errors="1" skipped="1" failures="1">
  <properties><property name="testcase" value="1"/></properties>
  <testcase name="init" classname="dev.kvstore.KVStoreTest" time="0.1"
    ><system-out>skipped</system-out></testcase>
  <testcase name="push" classname="dev.kvstore.KVStoreTest"
    ><failure message="1" type="E">trace</failure></testcase>
  <testcase name="pull" classname="dev.kvstore.KVStoreTest"><error type="E">trace</error></testcase>
  <testcase name="gpu" classname="dev.kvstore.KVStoreTest"><skipped message="no GPU"/></testcase>
</testsuite>"""
    CONSOLE = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="JUnit Jupiter" tests="2" skipped="1" failures="0" errors="0">
  <testcase name="init()" classname="dev.kvstore.KVStoreTest"/>
  <testcase name="gpu()" classname="dev.kvstore.KVStoreTest"><skipped><![CDATA[
org.opentest4j.TestAbortedException: Assumption failed: no GPU
\tat org.junit]]></skipped></testcase>
</testsuite>"""
    PYTEST = """<?xml version="1.0" encoding="utf-8"?>
<testsuites name="pytest tests">
<testsuite name="pytest" errors="0" failures="1" skipped="1" tests="3">
  <testcase classname="test_store" name="test_init" time="0.001"/>
  <testcase classname="test_store" name="test_push"
    ><failure message="assert 1 == 2">trace</failure></testcase>
  <testcase classname="test_gpus" name="test_gpu"
    ><skipped type="pytest.skip" message="no GPU">a.py:1</skipped></testcase>
</testsuite></testsuites>"""

    def setUp(self):
        super().setUp()
        self.link("scripts/tally.sh", "scripts/tally.py", "scripts/run_unittests.py")
        self.program("python3", f'exec {sys.executable} "$@"')

    def run_command(self, name, script, **reports):
        """Runs a shell script after copying the reports. Returns its status."""
        for report, text in reports.items():
            file, _, suffix = report.rpartition("_")
            (self.root / f"{file}.{suffix}").write_text(text)
            # Some tools write to their own folders.
            folder = f"$KVSTORE_REPORTS/{file}"
            script = f"mkdir {folder}; cp {file}.{suffix} {folder}; {script}"
        done, _ = self.run_script("scripts/tally.sh", name, "sh", "-c", script)
        return done.returncode

    def summary(self, *names):
        """Returns the status of the summary, and its lines."""
        done, _ = self.run_script("scripts/tally.sh", "--summary", *names)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout.splitlines()

    def assert_counts(self, line, name, passed, failed, skipped):
        pattern = f"{name} +{passed} passed +{failed} failed +{skipped} skipped +\\d+ s"
        self.assertRegex(line, pattern)

    def test_each_line_names_its_command_and_make_s_options_are_removed(self):
        script = 'echo one; echo two >&2; echo "flags: ${MAKEFLAGS-none}"'
        done, _ = self.run_script("scripts/tally.sh", "rust", "sh", "-c", script,
                                  MAKEFLAGS="-j2 --jobserver-auth=3,4")
        self.assertEqual(done.stdout, "rust: one\nrust: two\nrust: flags: none\n")
        log = (self.root / "target" / "tally" / "rust" / "output.log").read_text()
        self.assertEqual(log, "one\ntwo\nflags: none\n")

    def test_the_reports_of_surefire_junit_s_console_and_pytest_are_added(self):
        reports = {"a_xml": self.SUREFIRE, "b_xml": self.CONSOLE, "c_xml": self.PYTEST}
        self.assertEqual(self.run_command("all", "exit 3", **reports), 3)
        status, lines = self.summary("all")
        self.assertEqual(status, 1)
        failed = [f"all: failed: {test}"
                  for test in ("dev.kvstore.KVStoreTest push", "dev.kvstore.KVStoreTest pull",
                               "test_store test_push")]
        self.assertEqual(lines[:9], [line for test in failed for line in (test, "trace", "")])
        self.assert_counts(lines[9], "all", 3, 3, 3)
        self.assertEqual(lines[10].split(), "3 skipped: no GPU".split())
        self.assertEqual(lines[11:], [f"{test}: trace" for test in failed])

    def test_the_last_lines_name_the_error_of_each_failed_test(self):
        pytest = """<testsuite><testcase classname="test_store" name="test_push"><failure>
def test_push():
&gt;       assert 1 == 2
E       assert 1 == 2

test_store.py:7: AssertionError</failure></testcase></testsuite>"""
        (self.root / "cargo.log").write_text("""
failures:

---- pushes::are_summed stdout ----
1000 cases

thread 'pushes::are_summed' (7) panicked at tests/src/pushes.rs:7:9:
expected 3, found 2
stack backtrace:

failures:
    pushes::are_summed

test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured
""")
        self.run_command("mixed", "cat cargo.log; exit 1", a_xml=pytest)
        self.assertEqual(self.summary("mixed")[1][-2:], [
            "mixed: failed: test_store test_push: assert 1 == 2",
            "mixed: failed: ---- pushes::are_summed stdout ----: expected 3, found 2"])

    def test_the_error_of_a_child_process_follows_its_exit_status(self):
        (self.root / "cargo.log").write_text("""
failures:

---- every_case_runs stdout ----

thread 'every_case_runs' (7) panicked at tests/src/cases.rs:7:9:
the second case: exit status: 101:
running 1 test

thread 'every_case_runs' (8) panicked at tests/src/cases.rs:9:9:
expected 3, found 2

failures:
    every_case_runs

test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured
""")
        self.run_command("rust", "cat cargo.log; exit 1")
        self.assertEqual(self.summary("rust")[1][-1],
            "rust: failed: ---- every_case_runs stdout ----: the second case: exit status: 101:"
            " expected 3, found 2")

    def test_a_java_trace_keeps_its_error_and_the_project_s_frames(self):
        trace = ["org.opentest4j.AssertionFailedError: expected: 1",
                 "2 but was: 3",
                 "\tat org.junit.Assertions.fail(Assertions.java:1)",
                 "\tat dev.kvstore.PushTest.push(PushTest.java:7)",
                 *["\tat java.base/java.util.A.b(A.java:1)"] * 80,
                 "Caused by: java.io.IOException: no room", "\t... 80 more"]
        report = f"""<testsuite><testcase name="push" classname="dev.kvstore.PushTest">
            <failure>{chr(10).join(trace)}</failure></testcase></testsuite>"""
        self.run_command("java", "exit 1", a_xml=report)
        lines = self.summary("java")[1]
        heading = "java: failed: dev.kvstore.PushTest push"
        self.assertEqual(lines[:6], [heading, *trace[:2], trace[3], trace[-2], ""])
        self.assertEqual(lines[-1], f"{heading}: {trace[0]} 2 but was: 3")

    def test_the_output_of_failed_cargo_tests_is_repeated(self):
        script = """
            printf 'successes:\n\n---- good stdout ----\nnothing of it\n\nsuccesses:\n    good\n'
            printf 'failures:\n\n---- bad stdout ----\nleft: 1\nright: 2\n---- worse stdout ----\n'
            seq 100
            printf 'failures:\n    bad\n    worse\n\n'
            echo "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out"
            exit 101"""
        self.run_command("rust", script)
        lines = self.summary("rust")[1]
        failed = ["rust: failed: ---- bad stdout ----", "rust: failed: ---- worse stdout ----"]
        self.assertEqual(lines[:4], [failed[0], "left: 1", "right: 2", ""])
        self.assertEqual(lines[4:25], [failed[1], *map(str, range(1, 21))])
        self.assertEqual(lines[25:67], ["[40 lines left out]", *map(str, range(61, 101)), ""])
        self.assert_counts(lines[67], "rust", 1, 2, 0)
        self.assertEqual(lines[68:], [f"{failed[0]}: left: 1", f"{failed[1]}: 1"])

    def test_cargo_s_lines_are_added(self):
        script = """
            rest="0 measured; 0 filtered out"
            echo "test result: ok. 3 passed; 0 failed; 1 ignored; $rest; finished in 0.01s"
            printf 'test result: \\033[32mok\\033[0m. 4 passed; 0 failed; 0 ignored; %s\\n' "$rest"
            echo "not a test result: ok. 9 passed; 9 failed; 9 ignored"
            echo "test result: FAILED. 2 passed; 1 failed; 0 ignored; $rest" >&2
            exit 101"""
        self.assertEqual(self.run_command("rust", script), 101)
        status, lines = self.summary("rust")
        self.assertEqual((status, len(lines)), (1, 1))
        self.assert_counts(lines[0], "rust", 9, 1, 1)

    def test_the_output_of_other_tools_is_not_read(self):
        script = ("echo 'Ran 3 tests in 0.1s'; echo '3 passed in 1s';"
                  " echo 'Tests run: 3, Failures: 0, Errors: 0, Skipped: 0'")
        self.run_command("text", script)
        status, lines = self.summary("text")
        self.assertEqual(status, 1)
        self.assert_counts(lines[0], "text", 0, 1, 0)

    def test_reasons_that_scripts_print_are_repeated(self):
        self.run_command("gpu", """
            echo 'not run: no Linux'; echo 'not run: no Linux'
            echo 'on which GPUs: emulated ones'""")
        self.run_command("rust", """
            echo 'test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out'
            echo 'skipped: no MPI'; echo 'skipped: no MPI'; echo 'skipped: no root'""")
        status, lines = self.summary("gpu", "rust")
        self.assertEqual((status, len(lines)), (0, 2))
        self.assert_counts(lines[0], "gpu", 0, 0, 0)
        notes = " s  not run: no Linux  on which GPUs: emulated ones"
        self.assertTrue(lines[0].endswith(notes), lines[0])
        self.assertTrue(lines[1].endswith(" s  not run: 3 checks: no MPI; no root"), lines[1])

    def test_a_command_that_fails_without_a_report_is_not_a_success(self):
        self.assertEqual(self.run_command("broken", "exit 7"), 7)
        status, lines = self.summary("broken")
        self.assertEqual(status, 1)
        self.assert_counts(lines[0], "broken", 0, 1, 0)
        self.assertIn("ended with status 7", lines[0])

    def test_a_command_that_fails_after_tests_that_passed_is_not_a_success(self):
        self.run_command("crash", "exit 134", a_json='{"passed": 5, "failed": 0}')
        status, lines = self.summary("crash")
        self.assertEqual(status, 1)
        self.assert_counts(lines[0], "crash", 5, 1, 0)

    def test_a_command_that_passes_without_a_report_is_not_a_success(self):
        self.assertEqual(self.run_command("empty", "true"), 0)
        status, lines = self.summary("empty")
        self.assertEqual(status, 1)
        self.assertIn("no report", lines[0])

    def test_a_command_that_did_not_run_or_end_is_not_a_success(self):
        folder = self.root / "target" / "tally" / "killed"
        folder.mkdir(parents=True)
        (folder / "output.log").write_text("test result: ok. 3 passed; 0 failed; 0 ignored;\n")
        status, lines = self.summary("never", "killed")
        self.assertEqual(status, 1)
        self.assertIn("did not run", lines[0])
        self.assertIn("was interrupted", lines[1])

    def test_a_report_that_is_cut_off_is_a_failure(self):
        for name, report in [("a_xml", self.PYTEST[:300]), ("a_json", '{"passed": 3'),
                             ("b_json", "[]"), ("c_json", "{}")]:
            with self.subTest(name):
                self.run_command("cut", "true", **{name: report})
                status, lines = self.summary("cut")
                self.assertEqual(status, 1)
                self.assertIn("cannot read the report", lines[0])

    def test_reports_of_an_earlier_run_are_not_counted(self):
        self.run_command("again", "true", a_json='{"passed": 3, "failed": 0}')
        self.run_command("again", "true", b_json='{"passed": 1, "failed": 0}')
        self.assert_counts(self.summary("again")[1][0], "again", 1, 0, 0)
        self.run_command("again", "exit 1")
        self.assert_counts(self.summary("again")[1][0], "again", 0, 1, 0)

    def test_a_file_of_unittest_s_tests_writes_a_report(self):
        (self.root / "test_all.py").write_text("""
import unittest
class Case(unittest.TestCase):
    def test_that_passes(self): pass
    def test_that_fails(self): self.fail()
    def test_with_an_error(self): raise KeyError
    def test_with_two_failed_parts(self):
        for part in range(2):
            with self.subTest(part): self.fail()
    @unittest.skip("no card")
    def test_that_is_skipped(self): pass
    @unittest.expectedFailure
    def test_that_fails_as_expected(self): self.fail()
""")
        (self.root / "test_none.py").write_text("")
        for name, counts in [("all", (2, 3, 1)), ("none", (0, 1, 0))]:
            with self.subTest(name):
                status = self.run_command(name, f"python3 scripts/run_unittests.py test_{name}.py")
                self.assertEqual(status, 1)
                self.assert_counts(self.summary(name)[1][0], name, *counts)


if __name__ == "__main__":
    unittest.main()
