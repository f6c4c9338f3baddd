"""The type stubs say what is there, and the modules keep to their types."""

import os
import pathlib
import subprocess
import sys

import pytest

import mxkv

pytest.importorskip("mypy", reason="mypy is not installed")


def run(folder, *arguments):
    package = pathlib.Path(mxkv.__file__).parents[1]
    # Where it is not installed it has to be told; where it is it may not be.
    told = {} if package.name == "site-packages" else {"MYPYPATH": str(package)}
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **told},
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_stubs_are_those_of_the_native_module(tmp_path):
    run(tmp_path, "mypy.stubtest", "mxkv._native", "--ignore-disjoint-bases")


def test_the_modules_keep_to_their_types(tmp_path):
    run(tmp_path, "mypy", "-p", "mxkv")
