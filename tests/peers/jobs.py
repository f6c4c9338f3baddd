"""Jobs: processes that start together, answer the driver's lines together, and end together."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# MXNet sometimes hangs at the start.
NUM_STARTS = 3
START_SECONDS = 60
ANSWER_SECONDS = 120
END_SECONDS = 5

OPEN_MPI = (
    "mpirun.openmpi --oversubscribe --allow-run-as-root --mca btl tcp,self"
    " --mca btl_tcp_if_include lo -n"
).split()
MPICH = "mpirun.mpich -n".split()


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Job:
    """Some workers, each with a connection to the driver. As a context manager, it ends all its
    processes."""

    def __init__(self, num_workers, commands, num_servers=0):
        """`commands` returns the arguments and the environment of each process. It is called for
        every start. `num_servers` processes connect, too, but their answers mean nothing."""
        self.num_workers, self.commands = num_workers, commands
        self.num_connections = num_workers + num_servers
        self.processes, self.connections = [], {}

    def __enter__(self):
        for number in range(NUM_STARTS):
            try:
                self.start()
                return self
            except BaseException as error:
                self.kill()
                if not isinstance(error, OSError) or number == NUM_STARTS - 1:
                    raise
                print(f"a start failed ({error}); once more", file=sys.stderr)

    def start(self):
        deadline = time.monotonic() + START_SECONDS
        self.log = tempfile.TemporaryFile()
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = "{}:{}".format(*server.getsockname())
            for arguments, environment in self.commands():
                environment = {**os.environ, **environment, "KVSTORE_PEERS": address}
                options = {"stdin": subprocess.DEVNULL, "stdout": self.log, "stderr": self.log}
                process = subprocess.Popen(
                    arguments, env=environment, start_new_session=True, **options
                )
                self.processes.append(process)
            while len(self.connections) < self.num_connections:
                connection = self.accept(server, deadline)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.settimeout(ANSWER_SECONDS)
                lines = connection.makefile("rw")
                self.connections[json.loads(lines.readline())["rank"]] = lines
                connection.close()

    def accept(self, server, deadline):
        server.settimeout(1)
        while time.monotonic() < deadline:
            try:
                return server.accept()[0]
            except TimeoutError:
                if any(process.poll() for process in self.processes):
                    raise RuntimeError(f"a process has failed: {self.tail()}") from None
        raise TimeoutError(f"{START_SECONDS} s without an answer")

    def ask(self, *words):
        """Sends a line to all workers, and returns the answer of rank 0."""
        return self.ask_all(*words)[0]

    def ask_all(self, *words):
        """Sends a line to all workers, and returns their answers in the order of ranks."""
        for lines in self.connections.values():
            print(*words, file=lines, flush=True)
        try:
            answers = {rank: lines.readline() for rank, lines in self.connections.items()}
        except TimeoutError:
            words, program = " ".join(words)[:40], self.processes[0].args[0]
            raise RuntimeError(
                f"{ANSWER_SECONDS} s without an answer of {program} to `{words}`: {self.tail()}"
            ) from None
        if not all(answers.values()):
            raise RuntimeError(f"a worker is gone: {self.tail()}")
        answers = {rank: json.loads(answer) for rank, answer in answers.items()}
        for rank, answer in answers.items():
            if "error" in answer:
                raise RuntimeError(f"rank {rank}: {answer['error']}")
        return [answers[rank] for rank in range(self.num_workers)]

    def tail(self):
        self.log.seek(0)
        return self.log.read()[-2000:].decode(errors="replace")

    def __exit__(self, *_):
        try:
            for lines in self.connections.values():
                print("end", file=lines, flush=True)
            self.wait(END_SECONDS)
        except OSError:
            pass
        finally:
            self.kill()

    def wait(self, seconds):
        deadline = time.monotonic() + seconds
        while (
            any(process.poll() is None for process in self.processes)
            and time.monotonic() < deadline
        ):
            time.sleep(0.02)

    def kill(self):
        # A launcher that receives SIGTERM ends its processes. They also end when their connection
        # closes.
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self.processes:
                try:
                    os.killpg(process.pid, number)
                except ProcessLookupError:
                    pass
            self.wait(END_SECONDS)
        for lines in self.connections.values():
            try:
                lines.close()
            except OSError:
                pass
        self.processes, self.connections = [], {}


def is_installed(launcher):
    return shutil.which(launcher[0]) is not None


def ours(program, launcher, num_workers):
    return Job(num_workers, lambda: [([*launcher, str(num_workers), program], {})])


def wire(program):
    return Job(1, lambda: [([program, "wire"], {})])


def on_server(
    program,
    kind,
    num_workers,
    server_arguments=(),
    worker_arguments=(),
    certificates=None,
    host="127.0.0.1",
):
    """Returns a server and its workers. `kind` is `net` for the network store, `raw` for plain
    sockets. `certificates` is a folder with those of each role. Without certificates, workers reach
    the store of 127.0.0.1 over a Unix socket, and that of other hosts over TCP."""

    def environment(role):
        return {"KVSTORE_CERTIFICATES": str(certificates / role)} if certificates else {}

    def commands():
        address = f"{host}:{free_port()}"
        server = [program, f"{kind}-server", address, *map(str, server_arguments)]
        worker = [program, f"{kind}-worker", address, *map(str, worker_arguments)]
        workers = [(worker, environment("worker"))] * num_workers
        return [(server, environment("server")), *workers]

    return Job(num_workers, commands, num_servers=1)


def mxnet(num_workers, store="dist_sync", momentum=0.0):
    """Returns a scheduler, a server and the workers, on loopback."""

    def commands():
        environment = {
            "DMLC_PS_ROOT_URI": "127.0.0.1",
            "DMLC_PS_ROOT_PORT": str(free_port()),
            "DMLC_NUM_SERVER": "1",
            "DMLC_NUM_WORKER": str(num_workers),
            "DMLC_INTERFACE": "lo",
        }
        program = str(Path(__file__).with_name("dist_mxnet.py"))
        command = [sys.executable, program, store, str(momentum)]
        roles = ["scheduler", "server"] + ["worker"] * num_workers
        return [(command, {**environment, "DMLC_ROLE": role}) for role in roles]

    return Job(num_workers, commands)


def end_as_if_interrupted():
    """Makes a signal that would end the driver end its jobs first."""

    def interrupt(*_):
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
