"""Servers in processes of their own: `python -m mxkv serve`, and the jobs of MXNet's launchers."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time

import pytest
from children import run

import mxkv as mx

#: Far longer than any process takes.
SECONDS = 60


def serve(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "mxkv", "serve", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def ended(process):
    """Waits for a process. Returns its output and errors."""
    try:
        return process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(process.communicate()) from None


class Serving:
    """A server in a process of its own."""

    def __init__(self, *arguments, **options):
        self.process = serve("--address", "127.0.0.1:0", *arguments, **options)
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            self.process.kill()
            raise AssertionError((line, *self.process.communicate()))
        self.address = line.split()[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def connect(self):
        return mx.kv.create("dist_async", servers=self.address, timeout=SECONDS)


FUNCTIONS = """
import mxkv as mx

def fail(key, pushed, stored):
    raise ValueError(f"message about {key}")

class Group:
    def add(key, pushed, stored):
        stored += pushed

def command(head, body):
    print("command", head, body, flush=True)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    (tmp_path / "broken.py").write_text("import no_such_module")
    return tmp_path


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_server_in_order(number):
    with Serving() as serving:
        kv = serving.connect()
        kv.init("w", mx.nd.ones(2))
        assert kv.pull("w").tolist() == [1.0, 1.0]
        serving.process.send_signal(number)
        output, errors = ended(serving.process)
        assert (serving.process.returncode, errors) == (0, "")
        assert output == "ending: completing the calls that run\n"
        kv.set_barrier_before_exit(False)


def test_an_updater_and_a_handler_of_commands(folder):
    arguments = ["--updater", "functions:Group.add", "--on-command", "functions:command"]
    with Serving(*arguments, cwd=folder) as serving:
        kv = serving.connect()
        kv.init("w", mx.nd.ones(2))
        kv.push("w", mx.nd.ones(2))
        assert kv.pull("w").tolist() == [2.0, 2.0]
        kv._send_command_to_servers(3, "body")
        assert serving.process.stdout.readline() == "command 3 body\n"


def test_the_error_of_an_updater_in_another_process(folder):
    with Serving("--updater", "functions:fail", cwd=folder) as serving:
        kv = serving.connect()
        kv.init("w", mx.nd.ones(2))
        with pytest.raises(mx.errors.UpdaterError, match="ValueError: message about w") as raised:
            kv.push("w", mx.nd.ones(2))
        assert raised.value.key == "w"


def test_checkpoints(tmp_path):
    with Serving("--checkpoints", str(tmp_path), "--store", "device", "--lease", "5") as serving:
        kv = serving.connect()
        kv.init("w", mx.nd.ones(2))
        kv.checkpoint_on_servers("model")
        assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--lease", "x"], "argument --lease: invalid float value: 'x'"),
        (["--lease", "-1"], "option `lease`: expected a number of seconds above 0"),
        (["--store", "p3"], "store type `p3` on a server"),
        (["--address", "9191"], "--address: expected HOST:PORT, found `9191`"),
        (["--address", "127.0.0.1:x"], "--address: expected HOST:PORT, found `127.0.0.1:x`"),
        (
            ["--address", "0.0.0.0:9191"],
            "--address: other machines can reach 0.0.0.0:9191, and connections are neither "
            "authenticated nor encrypted: use a loopback address, or add --insecure in a private "
            "network",
        ),
        (["--updater", "functions"], "--updater: expected MODULE:FUNCTION, found `functions`"),
        (["--updater", "missing.it:f"], "--updater: there is no module `missing`"),
        (["--updater", "functions:x"], "--updater: module `functions` has no `x`"),
        (["--on-command", "functions:mx"], "on_command: expected a function"),
        (["--port", "1"], "unrecognized arguments: --port 1"),
    ],
)
def test_wrong_arguments(folder, arguments, text):
    process = serve(*arguments, cwd=folder)
    output, errors = ended(process)
    assert (process.returncode, output) == (2, "")
    assert text in errors
    assert "Traceback" not in errors


def test_a_broken_module(folder):
    process = serve("--updater", "broken:f", cwd=folder)
    assert "No module named 'no_such_module'" in ended(process)[1]
    assert process.returncode == 1


def test_insecure_servers():
    with Serving("--insecure", "--address", "0.0.0.0:0") as serving:
        assert serving.address.startswith("0.0.0.0:")


def test_a_port_in_use():
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        address = "127.0.0.1:{}".format(used.getsockname()[1])
        process = serve("--address", address)
        output, errors = ended(process)
    assert (process.returncode, output) == (1, "")
    assert errors.startswith(f"mxkv: cannot listen on {address}: Address already in use")


def test_a_server_without_a_reader_of_its_output():
    with Serving() as serving:
        serving.process.stdout.close()
        serving.process.send_signal(signal.SIGTERM)
        assert serving.process.wait(SECONDS) == 0
        # For `communicate`.
        serving.process.stdout = None


def test_a_second_signal_ends_a_server_at_once(folder):
    (folder / "slow.py").write_text(
        "import time\ndef update(key, pushed, stored):\n"
        "    print('updating', flush=True)\n    time.sleep(1000)\n"
    )
    pushing = f"""
    import mxkv as mx, sys
    kv = mx.kv.create("dist_async", servers=sys.argv[1], timeout={SECONDS})
    kv.init("w", mx.nd.ones(2))
    kv.push("w", mx.nd.ones(2))
    """
    with Serving("--updater", "slow:update", cwd=folder) as serving:
        command = [sys.executable, "-c", textwrap.dedent(pushing), serving.address]
        worker = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            assert serving.process.stdout.readline() == "updating\n"
            serving.process.send_signal(signal.SIGTERM)
            assert serving.process.stdout.readline().startswith("ending")
            serving.process.send_signal(signal.SIGTERM)
            assert serving.process.wait(SECONDS) == -signal.SIGTERM
        finally:
            worker.kill()
            worker.wait()


# Jobs of MXNet's launchers.

SCRIPT = """
import mxkv as mx
# Only workers get here.
kv = mx.kv.create("dist_async")
kv.init("sum", mx.nd.zeros(2))
kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.5))
kv.barrier()
kv.push("sum", mx.nd.ones(2) * (kv.rank + 1))
kv.barrier()
out = mx.nd.zeros(2)
kv.broadcast("other", mx.nd.ones(2) * 4, out=out)
print("worker", kv.rank, "of", kv.num_workers, kv.pull("sum").tolist(), out.tolist())
kv.barrier()
"""


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def job(num_servers, num_workers):
    return {
        **os.environ,
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": str(free_port()),
        "DMLC_NUM_SERVER": str(num_servers),
        "DMLC_NUM_WORKER": str(num_workers),
        "KVSTORE_DIST_TIMEOUT": str(SECONDS),
    }


def test_a_job_of_five_processes():
    environment = job(2, 2)
    roles = ["scheduler", "server", "server", "worker", "worker"]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT],
            env={**environment, "DMLC_ROLE": role},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for role in roles
    ]
    try:
        outputs = [ended(process) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * 5, outputs
    assert [errors for _, errors in outputs] == [""] * 5
    assert [output for output, _ in outputs[:3]] == [""] * 3
    lines = sorted(output for output, _ in outputs[3:])
    assert lines == [f"worker {rank} of 2 [-1.5, -1.5] [4.0, 4.0]\n" for rank in range(2)]


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
