"""Runs the project's scripts with stub programs."""

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
