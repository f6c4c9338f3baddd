"""The project's scripts on machines without a tool.

Runs with any Python:
    python3 tests/packaging/test_scripts.py
"""

import os
import subprocess
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

    def link(self, *names):
        """Puts files of the repository into the folder."""
        for name in names:
            (self.root / name).symlink_to(ROOT / name)

    def program(self, name, script):
        """Adds a stub that hides the machine's program."""
        path = self.root / "bin" / name
        path.write_text(f"#!/bin/sh\necho {name} \"$@\" >>{self.root}/calls\n{script}\n")
        path.chmod(0o755)

    def run_script(self, *command, **environment):
        """Runs a script, and returns how it ended and which programs it has called."""
        path = f"{self.root}/bin:/usr/bin:/bin"
        environment = {**os.environ, "PATH": path, "CARGO_HOME": str(self.root / "no-cargo"), **environment}
        command = ["sh", *command]
        done = subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=120)
        calls = self.root / "calls"
        return done, calls.read_text() if calls.exists() else ""


class Deny(ScriptTest):
    """`scripts/deny.sh`"""

    def setUp(self):
        super().setUp()
        self.link("scripts/deny.sh")
        # A stub of setup.sh: Python is present, nothing is installed.
        (self.root / "scripts" / "setup.sh").write_text("#!/bin/sh\n")
        (self.root / "scripts" / "setup.sh").chmod(0o755)

    def run_deny(self, *arguments):
        return self.run_script("scripts/deny.sh", *arguments)

    def test_fails_and_says_how_to_install_it_where_it_is_missing_and_pip_cannot_install_it(self):
        self.program("cargo", '[ "$1" != deny ]')
        self.program("python3", "exit 1")
        done, _ = self.run_deny()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("cargo install cargo-deny --locked", done.stderr)

    def test_checks_without_the_network_what_needs_none(self):
        self.program("cargo", "")
        done, calls = self.run_deny()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("cargo deny --offline check bans licenses sources\n", calls)

    def test_fetches_advisories_only_when_asked_to(self):
        self.program("cargo", "")
        _, calls = self.run_deny()
        self.assertNotIn("advisories", calls)
        done, calls = self.run_deny("advisories")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("cargo deny check advisories\n", calls)

    def test_passes_an_error_on(self):
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

    def test_tests_need_a_python_that_the_wheel_works_with(self):
        self.program("python3", "exit 1")
        done, calls = self.run_script("scripts/setup.sh", "test", PYTHONS="python3")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("python3-venv", done.stderr)
        self.assertNotIn("apt-get", calls)

    def test_a_python_that_is_too_old_for_the_wheel_is_not_enough(self):
        # It can create environments, but its version is too old for pythons.sh.
        self.program("python3", 'case $2 in "import venv, ensurepip") ;; *) exit 1 ;; esac')
        done, _ = self.run_script("scripts/setup.sh", "test", PYTHONS="python3")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("python3-venv", done.stderr)


class Zig(ScriptTest):
    """`scripts/zig.sh`"""

    def test_the_flag_is_set_once_even_if_the_caller_has_sourced_the_file(self):
        self.link("scripts/zig.sh")
        python = self.root / "target" / "portable-venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text("#!/bin/sh\n")
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


if __name__ == "__main__":
    unittest.main()
