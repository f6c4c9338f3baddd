"""A failed allocation of a data-dependent size raises `MemoryError` and changes nothing."""

import functools
import os
import pathlib
import platform
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from failed_allocations import CASES

CHILD = pathlib.Path(__file__).parent / "failed_allocations.py"
CRATE = pathlib.Path(__file__).parents[2] / "tests" / "failing-malloc"


@functools.cache
def library():
    """Builds the library for LD_PRELOAD. Skips the test if it cannot be built or preloaded."""
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        pytest.skip("the failing malloc needs glibc on Linux")
    if shutil.which("cargo") is None:
        pytest.skip("cargo is not installed, which builds the failing malloc")
    done = subprocess.run([CRATE / "build.sh"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return str(pathlib.Path(done.stdout.strip()) / "libkvstore_failing_malloc.so")


def run_child(name, preloaded):
    return subprocess.run(
        [sys.executable, "-W", "ignore", CHILD, name, preloaded],
        env={**os.environ, "LD_PRELOAD": preloaded},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def outcomes(request):
    """Returns the outcome of each selected case. The cases run in parallel."""
    preloaded = library()
    items = [item for item in request.session.items if item.module is request.module]
    names = [item.callspec.params["name"] for item in items]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        outcomes = {name: threads.submit(run_child, name, preloaded) for name in names}
        yield outcomes
        for outcome in outcomes.values():
            outcome.cancel()


@pytest.mark.parametrize("name", CASES)
def test_a_failed_allocation_is_a_memory_error(outcomes, name):
    done = outcomes[name].result()
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"
    assert done.stdout.startswith("allocations: ")
