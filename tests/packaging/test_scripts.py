"""Tests the project's scripts: missing tools, and what the scripts install and print.

Runs with any Python:
    python3 tests/packaging/test_scripts.py
"""

import os
import shutil
import subprocess
import sys
import unittest

from stub_programs import ScriptTest


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
        flag = f"-Clink-arg={self.root}/target/zigbuild/a-b/libgcc_s.so.1"
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
