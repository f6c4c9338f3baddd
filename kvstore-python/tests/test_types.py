"""The type stubs say what is there, and the modules keep to their types."""

import pathlib
import subprocess
import sys

import pytest

import mxkv

pytest.importorskip("mypy", reason="mypy is not installed")


def run(*arguments):
    folder = pathlib.Path(mxkv.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_stubs_are_those_of_the_native_module():
    run("mypy.stubtest", "mxkv._native", "--ignore-disjoint-bases")


def test_the_modules_keep_to_their_types(tmp_path):
    run("mypy", "-p", "mxkv", "--cache-dir", str(tmp_path))
