"""Tests the project's scripts: missing tools, and what the scripts count, install and print.

Runs with any Python:
    python3 tests/packaging/test_scripts.py
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class ScriptTest(unittest.TestCase):
    """Runs scripts in a temporary folder, with stub programs that record their calls."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "scripts").mkdir()
        (self.root / "bin").mkdir()
        self.path = f"{self.root}/bin:/usr/bin:/bin"

    def link(self, *names):
        """Links files of the repository into the folder."""
        for name in names:
            (self.root / name).symlink_to(ROOT / name)

    def program(self, name, script):
        """Adds a stub that hides the program of the machine."""
        path = self.root / "bin" / name
        path.write_text(f"#!/bin/sh\necho {name} \"$@\" >>{self.root}/calls\n{script}\n")
        path.chmod(0o755)

    def environment(self, **changes):
        cargo_home = str(self.root / "no-cargo")
        ours = {"PATH": self.path, "CARGO_HOME": cargo_home, "KVSTORE_SETUP": ""}
        return {**os.environ, **ours, **changes}

    def run_script(self, *command, **environment):
        """Runs a script. Returns its result and the programs that it has called."""
        environment = self.environment(**environment)
        command = ["sh", *command]
        done = subprocess.run(command, cwd=self.root, env=environment, capture_output=True,
                              text=True, timeout=120)
        calls = self.root / "calls"
        return done, calls.read_text() if calls.exists() else ""


class Deny(ScriptTest):
    """`scripts/deny.sh`"""

    def setUp(self):
        super().setUp()
        self.link("scripts/deny.sh", "scripts/venv.py")
        # A stub of setup.sh: Python is present, nothing is installed.
        (self.root / "scripts" / "setup.sh").write_text("#!/bin/sh\n")
        (self.root / "scripts" / "setup.sh").chmod(0o755)

    def run_deny(self, *arguments):
        return self.run_script("scripts/deny.sh", *arguments)

    def test_fails_with_instructions_if_pip_cannot_install_it(self):
        self.program("cargo", '[ "$1" != deny ]')
        self.program("python3", "exit 1")
        done, _ = self.run_deny()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("cargo install cargo-deny --locked", done.stderr)

    def test_checks_other_than_advisories_use_no_network(self):
        self.program("cargo", "")
        done, calls = self.run_deny()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("cargo deny --offline check bans licenses sources\n", calls)

    def test_fetches_advisories_on_request_only(self):
        self.program("cargo", "")
        _, calls = self.run_deny()
        self.assertNotIn("advisories", calls)
        done, calls = self.run_deny("advisories")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("cargo deny check advisories\n", calls)

    def test_returns_the_error_of_cargo_deny(self):
        self.program("cargo", '[ "$*" = "deny --version" ] || [ "$1" = fetch ]')
        done, _ = self.run_deny()
        self.assertNotEqual(done.returncode, 0)


class Setup(ScriptTest):
    """`scripts/setup.sh` without root."""

    def setUp(self):
        super().setUp()
        self.link("scripts/setup.sh", "scripts/apt.sh", "scripts/pythons.sh", "Cargo.toml")
        for name in ["cc", "c++", "mvn"]:
            self.program(name, "")
        self.program("id", "echo 1000")
        self.program("apt-get", "exit 1")
        self.program("apt-cache", "exit 1")

    def test_tests_need_a_python_that_the_wheel_supports(self):
        self.program("python3", "exit 1")
        done, calls = self.run_script("scripts/setup.sh", "test", PYTHONS="python3")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("python3-venv", done.stderr)
        self.assertNotIn("apt-get", calls)

    def test_a_python_that_is_too_old_for_the_wheel_is_not_enough(self):
        # This Python can create environments, but it is too old for pythons.sh.
        self.program("python3", 'case $2 in "import venv, ensurepip") ;; *) exit 1 ;; esac')
        done, _ = self.run_script("scripts/setup.sh", "test", PYTHONS="python3")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("python3-venv", done.stderr)


class FreshSystem(ScriptTest):
    """`scripts/setup.sh` on a Debian or Ubuntu with few tools."""

    PACKAGES = "gcc libc6-dev g++ openjdk-21-jdk-headless maven python3-venv rustup"
    TOOLS = ("sh awk cat chmod cut dirname env flock grep mkdir readlink sed sort touch tr"
             " uniq").split()

    def setUp(self):
        super().setUp()
        self.path = f"{self.root}/bin:{self.root}/tools"
        self.link("scripts/setup.sh", "scripts/apt.sh", "scripts/pythons.sh", "scripts/mpi.sh",
                  "Cargo.toml")
        (self.root / "tools").mkdir()
        for name in self.TOOLS:
            (self.root / "tools" / name).symlink_to(shutil.which(name))
        self.program("id", "echo 0")
        # Without lists, no package has a candidate.
        self.program("apt-cache", f"[ ! -e {self.root}/lists ] || echo '  Candidate: 1'")
        self.installed = self.root / "installed"
        self.installed.mkdir()
        for name in ["cc", "c++", "mvn", "javac"]:
            self.install_later(name, "")
        (self.root / "release").write_text('JAVA_VERSION="21.0.1"\n')
        # The output that pythons.sh reads: a version and a path.
        self.install_later("python3", "echo 11 python3")
        self.install_later("rustup", f"cp {self.root}/rust/* {self.root}/bin")
        self.program("apt-get", f"""
            echo apt-get >&2
            case $* in
                *update) touch {self.root}/lists ;;
                *) [ -e {self.root}/lists ] &&
                   {shutil.which("cp")} {self.installed}/* {self.root}/bin ;;
            esac""")
        (self.root / "rust").mkdir()
        self.install_later("rustc", "echo rustc 9.99.0", "rust")
        self.install_later("cargo", "", "rust")
        (self.root / "tools" / "cp").symlink_to(shutil.which("cp"))

    def install_later(self, name, script, folder="installed"):
        """Moves a stub to a folder, from which the stub of an installer copies it."""
        self.program(name, script)
        (self.root / "bin" / name).rename(self.root / folder / name)

    def run_setup(self, **environment):
        return self.run_script("scripts/setup.sh", "test", JAVA_HOME="", PYTHONS="python3",
                               **environment)

    def assert_nothing_is_installed(self, calls):
        called = {line.split()[0] for line in calls.splitlines()}
        self.assertFalse(called & {"apt-get", "rustup"}, calls)

    def test_root_installs_everything_after_one_complete_message(self):
        done, calls = self.run_setup()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"apt-get install -y --no-install-recommends -q {self.PACKAGES}\n", calls)
        self.assertIn("rustup default stable\n", calls)
        before, after = done.stderr.split("setup: installs: ")
        self.assertTrue(after.startswith(f"{self.PACKAGES} and Rust >= "), after)
        # Before the message, the script only reads the package lists.
        self.assertEqual(before, "apt-get\n")
        self.assertEqual(calls[:calls.index("apt-get install")].count("apt-get -q update\n"), 1)

    def test_prints_and_calls_nothing_if_nothing_is_missing(self):
        self.run_setup()
        (self.root / "calls").unlink()
        done, calls = self.run_setup()
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.assert_nothing_is_installed(calls)

    def test_print_lists_everything_and_the_commands_and_installs_nothing(self):
        (self.root / "lists").touch()
        done, calls = self.run_setup(KVSTORE_SETUP="print")
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"setup: would install: {self.PACKAGES} and Rust >= ", done.stderr)
        install = f"apt-get update && apt-get install -y --no-install-recommends {self.PACKAGES}\n"
        self.assertIn(f"setup:     {install}setup:     rustup default stable\n", done.stderr)
        self.assert_nothing_is_installed(calls)

    def test_print_reports_if_there_is_nothing_to_install(self):
        self.run_setup()
        (self.root / "calls").unlink()
        done, calls = self.run_setup(KVSTORE_SETUP="print")
        self.assertEqual((done.returncode, done.stderr), (0, "setup: nothing to install\n"))
        self.assert_nothing_is_installed(calls)

    def test_another_value_of_the_variable_is_an_error(self):
        done, calls = self.run_setup(KVSTORE_SETUP="prnit")
        self.assertEqual(done.returncode, 1)
        self.assertIn("prnit", done.stderr)
        self.assert_nothing_is_installed(calls)

    def test_without_root_the_message_has_all_commands(self):
        (self.root / "lists").touch()
        self.program("id", "echo 1000")
        done, calls = self.run_setup()
        self.assertEqual(done.returncode, 1)
        command = f"sudo apt-get install -y --no-install-recommends {self.PACKAGES}\n"
        self.assertIn(command, done.stderr)
        self.assertIn("rustup default stable\n", done.stderr)
        self.assert_nothing_is_installed(calls)

    def test_a_release_without_rustup_gets_its_packages_and_the_command_for_rust(self):
        self.program("apt-cache", f"""
            [ $2 = rustup ] || [ ! -e {self.root}/lists ] || echo '  Candidate: 1'""")
        done, calls = self.run_setup()
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"{self.PACKAGES[:-len(' rustup')]}\n", calls)
        self.assertIn("sh.rustup.rs", done.stderr)

    def test_other_scripts_print_once_what_they_install(self):
        (self.root / "lists").touch()
        done, calls = self.run_script("scripts/mpi.sh", "install")
        packages = "openmpi-bin mpich iproute2\n"
        # Callers hide the output of apt.
        self.assertEqual((done.stdout, done.stderr), ("apt-get\n", f"setup: installs: {packages}"))
        self.assertIn(f"apt-get install -y --no-install-recommends -q {packages}", calls)

    def test_other_scripts_print_what_they_would_install(self):
        (self.root / "lists").touch()
        done, calls = self.run_script("scripts/mpi.sh", "install", KVSTORE_SETUP="print")
        self.assertEqual(done.returncode, 1)
        self.assertIn(" -y --no-install-recommends openmpi-bin mpich iproute2\n", done.stderr)
        self.assert_nothing_is_installed(calls)
        script = ". scripts/apt.sh; run_or_print rustup update"
        done, calls = self.run_script("-c", script, KVSTORE_SETUP="print")
        self.assertEqual((done.returncode, done.stderr), (1, "setup: would run: rustup update\n"))
        self.assert_nothing_is_installed(calls)


class Venv(ScriptTest):
    """`scripts/venv.py`, with a stub of Python that creates environments with a stub of pip."""

    def setUp(self):
        super().setUp()
        self.link("scripts/venv.py")
        for name in ["started", "go"]:
            os.mkfifo(self.root / name)
        # The stub runs the script in PIP.
        self.program("inner", 'case "$*" in *" pip install"*) eval "${PIP:-}" ;; esac')
        self.program("python3", f"""
            case $1 in -c) echo /bin/python3 ${{VERSION:-3 11}}; exit ;; esac
            for folder; do :; done
            mkdir -p "$folder/bin"
            touch "$folder/pyvenv.cfg"
            cp {self.root}/bin/inner "$folder/bin/python" """)

    def start(self, *arguments, **environment):
        command = [sys.executable, "scripts/venv.py", *arguments]
        return subprocess.Popen(command, cwd=self.root, env=self.environment(**environment),
                                text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def venv(self, *arguments, **environment):
        """Runs the script. Returns its status, its messages, and how often it has created the
        environment and installed packages."""
        (self.root / "calls").write_text("")
        process = self.start(*arguments, **environment)
        printed, messages = process.communicate(timeout=120)
        self.assertEqual(printed, "")
        return process.returncode, messages, *self.counts()

    def counts(self):
        calls = (self.root / "calls").read_text()
        return calls.count("python3 -m venv"), calls.count("inner -m pip install")

    def test_the_same_packages_are_installed_once(self):
        self.assertEqual(self.venv("folder", "a==1", "b"), (0, "", 1, 1))
        self.assertIn("--disable-pip-version-check a==1 b\n", (self.root / "calls").read_text())
        self.assertEqual(self.venv("folder", "a==1", "b"), (0, "", 0, 0))

    def test_other_packages_options_or_pythons_create_a_new_environment(self):
        for arguments in [["a"], ["b"], ["--no-deps", "b"], ["--python", "python3", "b"],
                          ["--system-site-packages", "b"], ["--import", "b", "b"]]:
            *options, package = arguments
            with self.subTest(arguments):
                self.assertEqual(self.venv(*options, "folder", package), (0, "", 1, 1))
                self.assertEqual(self.venv(*options, "folder", package), (0, "", 0, 0))
        self.venv("--python", "python3", "folder", "b")
        made = self.venv("--python", "python3", "folder", "b", VERSION="3 12")
        self.assertEqual(made, (0, "", 1, 1))

    def test_an_installation_that_fails_or_is_killed_is_not_complete(self):
        for pip in ["exit 1", "kill -9 $PPID"]:
            with self.subTest(pip):
                status, *_ = self.venv("folder", "a", PIP=pip)
                self.assertNotEqual(status, 0)
                self.assertEqual(self.venv("folder", "a"), (0, "", 1, 1))
                shutil.rmtree(self.root / "folder")

    def test_an_environment_without_its_python_is_created_again(self):
        self.venv("folder", "a")
        (self.root / "folder" / "bin" / "python").unlink()
        self.assertEqual(self.venv("folder", "a"), (0, "", 1, 1))

    def test_two_processes_create_one_environment(self):
        (self.root / "calls").write_text("")
        wait = f"echo >{self.root}/started; cat {self.root}/go >/dev/null"
        first = self.start("folder", "a", PIP=wait)
        (self.root / "started").read_text()
        second = self.start("folder", "a")
        self.assertIn("waits for another process", second.stderr.readline())
        (self.root / "go").write_text("")
        for process in [first, second]:
            process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0)
        self.assertEqual(self.counts(), (1, 1))

    def test_a_wheel_is_installed_again_by_each_call(self):
        self.assertEqual(self.venv("--wheel", "our.whl", "folder", "a"), (0, "", 1, 2))
        self.assertEqual(self.venv("--wheel", "our.whl", "folder", "a"), (0, "", 0, 1))
        self.assertIn("--force-reinstall --no-deps our.whl\n", (self.root / "calls").read_text())

    def test_another_folder_is_not_changed(self):
        (self.root / "folder").mkdir()
        (self.root / "folder" / "precious").touch()
        status, messages, *_ = self.venv("folder", "a")
        self.assertEqual(status, 1)
        self.assertIn("is not a virtual environment", messages)
        self.assertTrue((self.root / "folder" / "precious").exists())

    def test_print_installs_nothing(self):
        status, messages, *counts = self.venv("folder", "a==1", KVSTORE_SETUP="print")
        self.assertEqual((status, counts), (1, [0, 0]))
        self.assertIn("would install into folder: a virtual environment a==1\n", messages)
        self.venv("folder", "a==1")
        self.assertEqual(self.venv("folder", "a==1", KVSTORE_SETUP="print"), (0, "", 0, 0))


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

    def test_a_java_trace_keeps_its_error_and_the_project_s_frames(self):
        trace = ["org.opentest4j.AssertionFailedError: expected: 1",
                 "\tat org.junit.Assertions.fail(Assertions.java:1)",
                 "\tat dev.kvstore.PushTest.push(PushTest.java:7)",
                 *["\tat java.base/java.util.A.b(A.java:1)"] * 80,
                 "Caused by: java.io.IOException: no room", "\t... 80 more"]
        report = f"""<testsuite><testcase name="push" classname="dev.kvstore.PushTest">
            <failure>{chr(10).join(trace)}</failure></testcase></testsuite>"""
        self.run_command("java", "exit 1", a_xml=report)
        lines = self.summary("java")[1]
        heading = "java: failed: dev.kvstore.PushTest push"
        self.assertEqual(lines[:5], [heading, trace[0], trace[2], trace[-2], ""])

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


class Zig(ScriptTest):
    """`scripts/zig.sh`"""

    def test_the_flag_is_set_once_even_if_the_caller_has_sourced_the_file(self):
        self.link("scripts/zig.sh", "scripts/apt.sh")
        python = self.root / "target" / "portable-venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        # Writes the library that its last argument names.
        python.write_text('#!/bin/sh\nfor file; do :; done; >"$file"\n')
        python.chmod(0o755)
        use = ". scripts/zig.sh; target=a-b; use_system_unwinder linux-a"
        show = 'echo "$CARGO_TARGET_A_B_RUSTFLAGS;${RUSTFLAGS:-}"'
        flag = "-Clink-arg=target/zigbuild/a-b/libgcc_s.so.1"
        for flags, expected in [("", f" {flag};"), ("-Ca", f" {flag};-Ca {flag}")]:
            done, _ = self.run_script("-c", f"{use}; {use}; {show}", RUSTFLAGS=flags)
            self.assertEqual((done.stdout, done.stderr), (f"{expected}\n", ""))


class BareDebian(ScriptTest):
    """`scripts/bare-debian.sh`"""

    def test_runs_from_any_folder(self):
        self.link("scripts/bare-debian.sh", "scripts/apt.sh")
        self.program("id", "echo 0")
        self.program("debootstrap", "")
        self.program("unshare", 'test -x "$4"')
        done, calls = self.run_script("-c", "cd scripts && ./bare-debian.sh true")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("-- scripts/bare-debian.sh true\n", calls)

    def test_print_installs_nothing(self):
        self.link("scripts/bare-debian.sh", "scripts/apt.sh")
        self.program("id", "echo 0")
        self.program("debootstrap", "")
        self.program("unshare", "")
        done, calls = self.run_script("scripts/bare-debian.sh", KVSTORE_SETUP="print")
        self.assertEqual(done.returncode, 0)
        self.assertIn("would install trixie with ca-certificates git make into ", done.stderr)
        self.assertEqual(calls, "")


if __name__ == "__main__":
    unittest.main()
