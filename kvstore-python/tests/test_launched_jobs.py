"""Jobs of MXNet's launchers, which start every process with one command and a role in `DMLC_ROLE`.

The tests do what `tools/launch.py --launcher local` does.
"""

import os
import shlex
import signal
import socket
import subprocess
import sys
import time

import pytest
from children import run
from test_server_processes import CERTIFICATES, SECONDS, ended

NUM_SERVERS, NUM_WORKERS = 2, 2

#: The program of all processes. Servers and the scheduler do not get beyond the import.
SCRIPT = """
import sys
import mxkv as mx
kv = mx.kv.create("dist_async")
kv.init("sum", mx.nd.zeros(2))
kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.5))
kv.barrier()
kv.push("sum", mx.nd.ones(2) * (kv.rank + 1))
kv.barrier()
out = mx.nd.zeros(2)
kv.broadcast("other", mx.nd.ones(2) * 4, out=out)
print("worker", kv.rank, "of", kv.num_workers, kv.pull("sum").tolist(), out.tolist(), sys.argv[1:])
kv.barrier()
"""


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def own_address():
    """Returns an address of this machine that other machines can reach, or `None`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Sends nothing: the system only selects the address from which it would send.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        found = probe.getsockname()[0]
    return None if found.startswith("127.") else found


#: Skips a test on a machine without a network.
needs_network = pytest.mark.skipif(
    own_address() is None, reason="this machine has no address that others can reach"
)


def job(num_servers, num_workers, host="127.0.0.1"):
    """Returns the environment that the launcher sets for every process of a job."""
    return {
        **os.environ,
        "DMLC_PS_ROOT_URI": host,
        "DMLC_PS_ROOT_PORT": str(free_port()),
        "DMLC_NUM_SERVER": str(num_servers),
        "DMLC_NUM_WORKER": str(num_workers),
        "KVSTORE_DIST_TIMEOUT": str(SECONDS),
    }


def roles():
    """Returns the variables that the launcher sets for single processes, in the order of their
    starts. It counts workers and servers together, but not the scheduler.
    """
    tasks = ["worker"] * NUM_WORKERS + ["server"] * NUM_SERVERS
    return [
        {"DMLC_ROLE": "scheduler"},
        *(
            {"DMLC_TASK_ID": str(task), "DMLC_ROLE": role, "DMLC_JOB_CLUSTER": "local"}
            for task, role in enumerate(tasks)
        ),
    ]


def run_job(folder, host="127.0.0.1", variables_of=lambda role: {}):
    """Runs a job, and checks what it prints. `variables_of` returns more variables for a role."""
    (folder / "train.py").write_text(SCRIPT)
    environment = job(NUM_SERVERS, NUM_WORKERS, host)
    command = f"{shlex.quote(sys.executable)} train.py --lr 0.1"
    processes = [
        subprocess.Popen(
            ["bash", "-c", command],
            cwd=folder,
            env={**environment, **role, **variables_of(role["DMLC_ROLE"])},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for role in roles()
    ]
    try:
        outputs = [ended(process) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0] * 5, outputs
    assert [errors for _, errors in outputs] == [""] * 5
    workers = [output for output, _ in outputs if output]
    assert sorted(workers) == [
        f"worker {rank} of 2 [-1.5, -1.5] [4.0, 4.0] ['--lr', '0.1']\n" for rank in range(2)
    ]


def test_a_job_of_five_processes(tmp_path):
    run_job(tmp_path)


def test_a_job_with_certificates(tmp_path):
    def certificates(role):
        folder = "worker" if role == "worker" else "server"
        return {"KVSTORE_CERTIFICATES": str(CERTIFICATES / folder)}

    run_job(tmp_path, variables_of=certificates)


@needs_network
def test_a_job_that_other_machines_can_reach_may_be_insecure(tmp_path):
    """MXNet's local launcher uses such an address."""
    run_job(tmp_path, own_address(), lambda role: {"KVSTORE_INSECURE": "1"})


@needs_network
@pytest.mark.parametrize("role", ["scheduler", "server", "worker"])
def test_a_job_that_other_machines_can_reach_needs_certificates(role):
    done = run(SCRIPT, env={**job(1, 1, own_address()), "DMLC_ROLE": role}, timeout=SECONDS)
    assert done.returncode == 1
    assert f"`{own_address()}:" in done.stderr
    assert "without certificates, connections are neither authenticated" in done.stderr


@pytest.mark.parametrize("role", ["server", "scheduler"])
def test_a_failed_role_ends_its_process_with_an_error(role):
    done = run("import mxkv", env={**os.environ, "DMLC_ROLE": role}, timeout=SECONDS)
    assert done.returncode == 1
    assert "mxkv.errors.InvalidArgumentError: DMLC_PS_ROOT_URI is not set" in done.stderr


def test_a_signal_ends_a_role():
    environment = {**job(1, 1), "DMLC_ROLE": "scheduler"}
    program = "import mxkv"
    process = subprocess.Popen([sys.executable, "-c", program], env=environment)
    try:
        address = ("127.0.0.1", int(environment["DMLC_PS_ROOT_PORT"]))
        deadline = time.monotonic() + SECONDS
        while True:
            with socket.socket() as client:
                if client.connect_ex(address) == 0:
                    break
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == -signal.SIGINT
    finally:
        process.kill()
        process.wait()
