"""Servers in processes of their own: `python -m mxkv serve`."""

import concurrent.futures
import os
import pathlib
import queue
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time

import pytest

import mxkv as mx

#: Far longer than any process takes.
SECONDS = 60

ROOT = pathlib.Path(__file__).parents[2]

#: A folder with certificates for each role.
CERTIFICATES = ROOT / "tests" / "certificates"


def start(*arguments, **options):
    """Starts Python with these arguments."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def serve(*arguments, **options):
    return start("-m", "mxkv", "serve", *arguments, **options)


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
        if "--config" not in arguments:
            arguments = ("--address", "127.0.0.1:0", *arguments)
        self._wait_for(serve(*arguments, **options))

    @classmethod
    def program(cls, code, **options):
        """Starts a program that prints the address of its server as `serve` does."""
        serving = cls.__new__(cls)
        serving._wait_for(start("-c", code, **options))
        return serving

    def _wait_for(self, process):
        self.process = process
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

    def connect(self, **options):
        return mx.kv.create("dist_async", servers=self.address, timeout=SECONDS, **options)


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


WAITING = """
import sys
def update(key, pushed, stored):
    print("updating", flush=True)
    sys.stdin.readline()
    stored += pushed
"""

RUNNING = f"""{WAITING}
import mxkv as mx
with mx.kvstore_server.KVStoreServer("127.0.0.1:0", updater=update) as server:
    print("listening on", server.address, flush=True)
    server.run()
print("ended", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("how", ["serve", "run"])
def test_a_server_completes_the_calls_that_run_at_a_signal(folder, how, number):
    (folder / "waiting.py").write_text(WAITING)
    options = {"cwd": folder, "stdin": subprocess.PIPE}
    if how == "serve":
        serving = Serving("--updater", "waiting:update", **options)
        text = "ending: completing the calls that run\n"
    else:
        serving, text = Serving.program(RUNNING, **options), "ended\n"
    with serving, concurrent.futures.ThreadPoolExecutor() as threads:
        kv = serving.connect()
        kv.init("w", mx.nd.ones(2))
        pushing = threads.submit(kv.push, "w", mx.nd.ones(2))
        assert serving.process.stdout.readline() == "updating\n"
        serving.process.send_signal(number)
        if how == "serve":
            assert serving.process.stdout.readline() == text
        assert not pushing.done()
        serving.process.stdin.write("continue\n")
        serving.process.stdin.flush()
        pushing.result(SECONDS)
        output, errors = ended(serving.process)
        assert (serving.process.returncode, errors) == (0, "")
        assert output == ("" if how == "serve" else text)
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


def test_the_servers_of_the_environment(monkeypatch):
    with Serving() as serving:
        monkeypatch.setenv("KVSTORE_SERVERS", serving.address)
        kv = mx.kv.create("dist_async")
        kv.init("w", mx.nd.ones(2))
        assert serving.connect().keys() == ["w"]


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


def test_killed_servers_go_back_to_one_moment(tmp_path):
    def serve(index, address, followers):
        recovery = tmp_path / f"recovery-{index}"
        arguments = ["--recovery", str(recovery), "--checkpoints", str(tmp_path)]
        # As if both had the same settings.
        place = ["--followers", followers, "--server-index", str(index)] if followers else []
        return Serving("--address", address, "--save-every", "0.05", *arguments, *place)

    def number():
        (number,) = set(kv.pull("w").tolist())
        return number

    def pushes_a_point():
        kv.push("w", mx.nd.ones(1000))
        time.sleep(0.5)
        return number()

    second = serve(1, "127.0.0.1:0", "")
    first = serve(0, "127.0.0.1:0", second.address)
    kv = mx.kv.create(
        "dist_async", servers=[first.address, second.address], timeout=SECONDS, divide_above=1000
    )
    rewinds = queue.SimpleQueue()
    kv.on_rewind(rewinds.put)
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=1.0))
    kv.init("w", mx.nd.zeros(1000))
    for index in (1, 0):
        kept = pushes_a_point()
        kv.push("w", mx.nd.ones(1000))
        killed = (first, second)[index]
        killed.process.kill()
        killed.process.communicate()
        restarted = serve(index, killed.address, second.address)
        first, second = (first, restarted) if index else (restarted, second)
        rewound = {rewinds.get(timeout=SECONDS).server for _ in range(2)}
        assert rewound == {first.address, second.address}
        # The last push may be in the point.
        assert number() in (kept, kept - 1)
    kv.checkpoint_on_servers("model")
    local = mx.kv.create()
    local.restore(tmp_path / "model")
    assert set(local.pull("w").tolist()) == {number()}
    with first, second:
        kv.set_barrier_before_exit(False)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--lease", "x"], "option `lease`: expected a number of seconds above 0, found `x`"),
        (["--lease", "-1"], "option `lease`: expected a number of seconds above 0"),
        (["--store", "p3"], "store type `p3` on a server"),
        (["--address", "9191"], "address: expected HOST:PORT, found `9191`"),
        (["--address", "127.0.0.1:x"], "address: expected HOST:PORT, found `127.0.0.1:x`"),
        (["--address", ""], "address: expected HOST:PORT, found ``"),
        (
            ["--address", "0.0.0.0:9191"],
            "without certificates, connections are neither authenticated nor encrypted: set "
            "`certificates` (KVSTORE_CERTIFICATES), or, in a private network, `insecure` ",
        ),
        (["--certificates", "no-such-folder"], "certificates: cannot read `no-such-folder/ca.pem`"),
        (["--certificates", "", "--insecure"], "--insecure: not allowed with argument --cert"),
        (["--peer-connections", "0"], "option `peer_connections`: expected a whole number above 0"),
        (["--peer-bytes", "x"], "option `peer_bytes`: expected a whole number above 0, found `x`"),
        (["--keys", "0"], "option `keys`: expected a whole number above 0, found `0`"),
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


def test_the_arguments_are_those_of_the_manual():
    page = ROOT / "docs" / "guides" / "operations.md"
    listed = re.findall(r"^\| `(--[a-z-]+)`", page.read_text(encoding="utf-8"), re.M)
    output, errors = ended(serve("--help", env={**os.environ, "COLUMNS": "1000"}))
    assert errors == ""
    found = set(re.findall(r"--[a-z-]+", output))
    # The native library of the wheel has no log.
    assert found ^ set(listed) == {"--help", "--log", "--log-format", "--updater", "--on-command"}


def test_a_broken_module(folder):
    process = serve("--updater", "broken:f", cwd=folder)
    assert "No module named 'no_such_module'" in ended(process)[1]
    assert process.returncode == 1


def test_insecure_servers():
    with Serving("--insecure", "--address", "0.0.0.0:0") as serving:
        assert serving.address.startswith("0.0.0.0:")


def variables(**settings):
    """Returns an environment with these settings."""
    return {**os.environ, **{f"KVSTORE_{name.upper()}": it for name, it in settings.items()}}


def test_certificates():
    with Serving("--certificates", str(CERTIFICATES / "server")) as serving:
        serving.connect(certificates=CERTIFICATES / "worker").init("w", mx.nd.ones(2))
        reader = serving.connect(certificates=CERTIFICATES / "reader", reader=True)
        assert reader.pull("w").tolist() == [1.0, 1.0]
        with pytest.raises(mx.errors.UnsupportedError, match="needs a certificate with the role"):
            reader.push("w", mx.nd.ones(2))


def test_the_command_line_precedes_variables_and_these_the_file(tmp_path):
    file = tmp_path / "server.toml"
    file.write_text("address = '127.0.0.1:0'\nstore = 'device'\nlease = 0\n")
    arguments = ("--config", str(file))
    # The file alone is wrong.
    process = serve(*arguments)
    assert "option `lease`: expected a number of seconds above 0, found `0`" in ended(process)[1]
    correct = variables(lease="5", store="no such store", keys="1")
    with Serving(*arguments, "--store=local", env=correct) as serving:
        assert not serving.address.endswith(":9191")
        kv = serving.connect()
        kv.init("a", mx.nd.ones(2))
        with pytest.raises(mx.errors.InvalidArgumentError, match="at most 1 keys"):
            kv.init("b", mx.nd.ones(2))
    file.write_text("address = '127.0.0.1:0'\n")
    environment = variables(config=str(file), address="", peer_bytes="65536", checkpoints=".")
    with Serving(*arguments, env=environment, cwd=tmp_path) as serving:
        kv = serving.connect()
        with pytest.raises(mx.errors.InvalidArgumentError, match="at most 65536 bytes"):
            kv.init("large", mx.nd.ones(1 << 20))
        kv.checkpoint_on_servers("model")
        assert (tmp_path / "model").is_dir()


def test_certificates_and_insecure_replace_each_other(tmp_path):
    file = tmp_path / "server.toml"
    file.write_text("address = '0.0.0.0:0'\ninsecure = true\n")
    arguments = ("--config", str(file))
    with Serving(*arguments):
        pass
    wrong = variables(certificates="no-such-folder")
    assert "cannot read `no-such-folder/ca.pem`" in ended(serve(*arguments, env=wrong))[1]
    with Serving(*arguments, "--insecure", env=wrong):
        pass
    both = variables(certificates="no-such-folder", insecure="1")
    text = "option `certificates` and option `insecure`: expected one of them, found both"
    assert text in ended(serve(*arguments, env=both))[1]
    none = variables(insecure="0")
    assert "neither authenticated nor encrypted" in ended(serve(*arguments, env=none))[1]


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
