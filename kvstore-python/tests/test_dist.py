"""Stores that several processes share. Needs an MPI launcher."""

import os
import shutil
import subprocess
import sys
import textwrap

import pytest

LAUNCHER = shutil.which("mpirun")

pytestmark = pytest.mark.skipif(LAUNCHER is None, reason="no MPI launcher is installed")

PROGRAM = """
import numpy, mxkv as mx

def adding(key, pushed, stored):
    stored += pushed

def failing(key, pushed, stored):
    raise ValueError(f"not {key}")

with mx.kv.create("dist_sync") as kv:
    value, out = numpy.full(2, kv.rank + 1, dtype="float32"), numpy.zeros(2)
    kv.init(3, mx.nd.zeros(2))
    kv.push(3, value)
    value[:] = 100
    kv.pull(3, out=out)
    assert out.tolist() == [3, 3], out
    kv.set_updater(adding)
    kv.push(3, mx.nd.ones(2))
    assert kv.pull(3).tolist() == [5, 5]
    kv.set_updater(failing)
    try:
        kv.push(3, mx.nd.ones(2))
    except ValueError as error:
        assert str(error) == "not 3"
    kv.barrier()
    print(f"worker of {kv.num_workers} done", flush=True)
"""


def test_two_workers():
    # Open MPI needs these variables in a container. Other implementations ignore them.
    told = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "KVSTORE_DIST_TIMEOUT": "60",
    }
    done = subprocess.run(
        [LAUNCHER, "-n", "2", sys.executable, "-c", textwrap.dedent(PROGRAM)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **told},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("worker of 2 done") == 2
