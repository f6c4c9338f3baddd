"""Type checks of the stubs and the modules."""

import os
import pathlib
import subprocess
import sys

import pytest

import mxkv

pytest.importorskip("mypy", reason="mypy is not installed")


def run(folder, *arguments):
    package = pathlib.Path(mxkv.__file__).parents[1]
    # mypy needs the path of the package if it is not installed, and rejects the path otherwise.
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


def test_the_stubs_agree_with_the_native_module(tmp_path):
    run(tmp_path, "mypy.stubtest", "mxkv._native", "--ignore-disjoint-bases")


def test_the_modules_pass_the_type_checker(tmp_path):
    run(tmp_path, "mypy", "-p", "mxkv", "--python-version", "3.10")
