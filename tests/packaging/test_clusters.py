"""The examples for clusters: their shell scripts, and their options of `kvstore`.

Runs with any Python. `make examples-cluster` runs the examples themselves.
    python3 tests/packaging/test_clusters.py
"""

import re
import shutil
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# These contain calls of the command `kvstore` or its settings.
PLACES = ["Containerfile", "examples/kubernetes", "examples/slurm", "docs/guides/clusters.md"]
SCRIPTS = ["examples/slurm/train.sbatch", "examples/spark/run-local", "tests/clusters/slurm.sh",
           "scripts/static.sh", "scripts/container.sh", "scripts/examples-cluster.sh"]
# A command of the program, with the text up to the end of its call. A call may have several lines.
CALL = re.compile(r"(?<![\w./])(serve|status|certs)(?=[\s,])((?:\\\n|,\n|[^\n])*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
SETTING = re.compile(r"^ {4}(\w+) = ", re.M)
ROW = re.compile(r"^\| `--([a-z-]+)` \| `(KVSTORE_[A-Z_]+)` \|", re.M)
# Options of the other commands, which have no table.
STATUS = {"--server", "--timeout", "--ready", "--certificates", "--insecure"}
CERTS = {"--folder", "--hosts", "--days"}


def files():
    """Yields the path and the text of each file."""
    for place in PLACES:
        path = ROOT / place
        found = sorted(path.iterdir()) if path.is_dir() else [path]
        for file in found:
            yield file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")


def serve_options():
    """Returns the options of `kvstore serve` and its variables, from the table that
    kvstore-cli/tests/manual.rs compares with the command."""
    page = (ROOT / "docs/guides/operations.md").read_text(encoding="utf-8")
    found = ROW.findall(page)
    return {f"--{name}" for name, _ in found}, {variable for _, variable in found}


def unknown_options(text):
    """Returns the options in calls of `kvstore` that it does not have."""
    known = {"serve": serve_options()[0], "status": STATUS, "certs": CERTS}
    return [option for command, rest in CALL.findall(text)
            for option in OPTION.findall(rest) if option not in known[command]]


class Options(unittest.TestCase):
    def test_calls_have_only_options_of_the_command(self):
        found = {name: unknown_options(text) for name, text in files()}
        self.assertEqual({name: options for name, options in found.items() if options}, {})
        self.assertGreater(sum(len(CALL.findall(text)) for _, text in files()), 5)

    def test_settings_in_the_file_are_options(self):
        options, variables = serve_options()
        text = (ROOT / "examples/kubernetes/servers.yaml").read_text(encoding="utf-8")
        settings = SETTING.findall(text)
        self.assertIn("address", settings)
        self.assertLessEqual({f"--{name.replace('_', '-')}" for name in settings}, options)
        used = set(re.findall(r"\bKVSTORE_[A-Z_]+\b", text)) - {"KVSTORE_"}
        self.assertLessEqual(used, variables)

    def test_planted_options_are_found(self):
        self.assertEqual(unknown_options("kvstore serve --adress a --keys 1"), ["--adress"])
        self.assertEqual(unknown_options("kvstore status \\\n    --folder b"), ["--folder"])
        self.assertEqual(unknown_options("[/kvstore, status, --server, a,\n  --day, b]"), ["--day"])
        self.assertEqual(unknown_options("kvstore certs --hosts a\nsrun --label\n"), [])


class Scripts(unittest.TestCase):
    def test_scripts_can_be_parsed(self):
        for script in SCRIPTS:
            done = subprocess.run(["sh", "-n", ROOT / script], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""), script)

    @unittest.skipIf(shutil.which("shellcheck") is None, "no `shellcheck` on this machine")
    def test_shellcheck_has_no_complaints(self):
        # Versions differ in what they suggest.
        command = ["shellcheck", "--external-sources", "--shell=sh", "--severity=warning"]
        done = subprocess.run([*command, *SCRIPTS], cwd=ROOT, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, ""))


if __name__ == "__main__":
    unittest.main()
