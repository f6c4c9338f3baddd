"""Servers, and stores on them."""

import gc
import json
import os
import queue
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import weakref

import children
import numpy
import pytest

import mxkv as mx
from mxkv.kvstore_server import KVStoreServer

#: Far longer than any wait of these tests.
SECONDS = 60


@pytest.fixture
def server():
    with KVStoreServer("127.0.0.1:0") as server:
        yield server


def connect(server, **options):
    return mx.kv.create("dist_async", servers=server.address, timeout=SECONDS, **options)


def wait_until(condition):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc names the threads")
def test_the_threads_of_the_network_start_with_the_first_store_of_servers():
    program = """
    from pathlib import Path
    import mxkv as mx

    def num_threads():
        names = [task.read_text().strip() for task in Path("/proc/self/task").glob("*/comm")]
        return names.count("kvstore-net")

    kv = mx.kv.create("local")
    kv.init("w", mx.nd.ones((1000, 1000)))
    kv.push("w", mx.nd.ones((1000, 1000)))
    kv.pull("w")
    print(num_threads())
    server = mx.kvstore_server.KVStoreServer("127.0.0.1:0")
    mx.kv.create("dist_async", servers=server.address)
    print(num_threads() > 0)
    """
    assert children.output(program, SECONDS) == "0\nTrue\n"


# Options.


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"timeout": -1}, ValueError, "option `timeout`: expected a number of seconds above 0"),
        ({"timeout": "5"}, TypeError, "timeout: expected a number of seconds, found '5'"),
        ({"staleness": -1}, ValueError, "staleness: expected 0 to"),
        ({"staleness": 0.5}, TypeError, "staleness: expected a whole number, found 0.5"),
        ({"reader": 1}, TypeError, "reader: expected True or False, found 1"),
        ({"connections": 0}, ValueError, "option `connections`: expected a whole number above 0"),
        ({"connections": True}, TypeError, "connections: expected a whole number, found True"),
        ({"divide_above": "1"}, TypeError, "divide_above: expected a whole number, found '1'"),
        ({"member": 3}, TypeError, "member: expected a string, found 3"),
        ({"servers": 9191}, TypeError, "servers: expected addresses HOST:PORT, found 9191"),
        ({"servers": []}, ValueError, "option `servers`: expected HOST:PORT"),
        ({"servers": ["a:1", 2]}, TypeError, r"servers\[1\]: expected a string, found 2"),
        ({"stalenes": 1}, TypeError, "`stalenes`: did you mean `staleness`"),
        ({"quorum": 0}, ValueError, "option `quorum`: expected a whole number above 0, found `0`"),
        ({"quorum": 2.5}, TypeError, "quorum: expected a whole number, found 2.5"),
        ({"quorum": 1, "grace": -0.5}, ValueError, "option `grace`: expected a number of seconds "),
        ({"quorum": 1, "grace": "1"}, TypeError, "grace: expected a number of seconds, found '1'"),
        ({"quorum": 1, "late": "drop"}, ValueError, "`late`: expected `reject` or `next`, found "),
        ({"quorum": 1, "late": True}, TypeError, "late: expected a string, found True"),
        ({"quorum": 1, "weight": 0}, ValueError, "weight: expected a finite number above 0, found"),
        ({"quorum": 1, "weight": float("nan")}, ValueError, "weight: expected a finite number"),
        ({"quorum": 1, "weight": True}, TypeError, "weight: expected a number, found True"),
        ({"grace": 1}, ValueError, "quorum: expected the least number of members of a round"),
        ({"late": "next"}, ValueError, "quorum: expected the least number of members of a round"),
        ({"weight": 1}, ValueError, "quorum: expected the least number of members of a round"),
        ({"certificates": 1}, TypeError, "certificates: expected a path, found 1"),
        ({"insecure": "1"}, TypeError, "insecure: expected True or False, found '1'"),
        ({"coordinator": 1}, TypeError, "coordinator: expected a string, found 1"),
        ({"coordinator": "etcd://a:1"}, ValueError, "option `coordinator`: expected one of them"),
        ({"servers": None, "coordinator": "a:1"}, ValueError, "coordinator: expected etcd://HOST"),
        ({"coordinator_certificates": 1}, TypeError, "expected a path, found 1"),
        ({"x": 1}, TypeError, "unknown option `x`. The options are servers, member, "),
    ],
)
def test_wrong_options_of_a_store(options, kind, text):
    for create in (mx.kv.create, mx.kv.KVStore):
        with pytest.raises(mx.errors.InvalidArgumentError, match=text) as raised:
            create("dist_async", **{"servers": "127.0.0.1:1", **options})
        assert isinstance(raised.value, kind)


@pytest.mark.parametrize("name", ["local", "device", "dist_sync", "teststore"])
def test_other_stores_have_no_options(name):
    text = f"unknown option `staleness`: stores of type `{name}` have no options"
    with pytest.raises(mx.errors.InvalidArgumentError, match=text):
        mx.kv.create(name, staleness=1)
    assert mx.kv.create("teststore", staleness=None).rank == 0


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"address": 9191}, TypeError, "address: expected a string, found 9191"),
        ({"address": "9191"}, ValueError, "address: expected HOST:PORT, found `9191`"),
        ({"store": 1}, TypeError, "store: expected a string, found 1"),
        ({"store": "p3"}, ValueError, "store type `p3` on a server: expected one of local, "),
        ({"checkpoints": b"x"}, TypeError, "checkpoints: expected a path, found b'x'"),
        ({"journal": 1}, TypeError, "journal: expected a path, found 1"),
        ({"journal_mode": "full"}, ValueError, "`journal_mode`: expected also `journal`"),
        ({"journal": "j", "journal_mode": "all"}, ValueError, "order or full, found `all`"),
        ({"journal_required": True}, ValueError, "journal_required: expected also `journal`"),
        ({"lease": "1"}, TypeError, "lease: expected a number of seconds, found '1'"),
        ({"lease": 0}, ValueError, "option `lease`: expected a number of seconds above 0"),
        ({"config": 1}, TypeError, "config: expected a path, found 1"),
        ({"certificates": b"x"}, TypeError, "certificates: expected a path, found b'x'"),
        ({"insecure": 1}, TypeError, "insecure: expected True or False, found 1"),
        ({"peer_connections": 0}, ValueError, "option `peer_connections`: expected a whole number"),
        ({"peer_bytes": 0.5}, TypeError, "peer_bytes: expected a whole number, found 0.5"),
        ({"keys": -1}, ValueError, "keys: expected 0 to"),
        ({"updater": 1}, TypeError, "updater: expected a function, found 1"),
        ({"on_command": 1}, TypeError, "on_command: expected a function, found 1"),
        ({"on_comand": 1}, TypeError, "`on_comand`: did you mean `on_command`"),
        ({"x": 1}, TypeError, "unknown option `x`. The options are address, config, "),
    ],
)
def test_wrong_options_of_a_server(options, kind, text):
    with pytest.raises(mx.errors.InvalidArgumentError, match=text) as raised:
        KVStoreServer(**{"address": "127.0.0.1:0", **options})
    assert isinstance(raised.value, kind)


@pytest.mark.parametrize("mode", [None, "full", "order"])
def test_a_journal(tmp_path, mode):
    file = tmp_path / "journal"
    options = {"journal": file, "journal_mode": mode, "journal_required": True}
    with KVStoreServer("127.0.0.1:0", **options) as server:
        kv = mx.kv.create("dist_async", servers=server.address)
        kv.init("w", mx.nd.zeros(1000))
        kv.push("w", mx.nd.ones(1000))
        del kv
    assert file.read_bytes().startswith(b"KVJOURNL")
    assert (file.stat().st_size > 8000) == (mode != "order")


def test_all_options_of_a_store(server):
    options = {"member": "a", "staleness": numpy.int64(3), "reader": True, "connections": 2}
    kv = mx.kv.create(
        "dist_async", servers=[server.address], timeout=30, divide_above=1 << 20, **options
    )
    assert kv.members() == server.members() == [mx.kv.Member("a", 0, True)]
    assert repr(kv) == "<KVStore dist_async>"


# Values and members.


def test_two_stores_share_the_values_of_a_server(server):
    first, second = connect(server), connect(server)
    first.init("w", mx.nd.zeros(2))
    first.push("w", [mx.nd.ones(2), mx.nd.ones(2)])
    assert second.pull("w").tolist() == server.store.pull("w").tolist() == [2.0, 2.0]
    server.store.push("w", mx.nd.ones(2) * 5)
    assert first.pull("w").tolist() == [5.0, 5.0]
    assert (first.rank, second.rank, second.num_workers) == (0, 1, 2)
    assert (first.version("w"), server.store.version("w")) == (2, 2)
    with pytest.raises(KeyError):
        first.version("missing")


def test_several_servers_divide_a_value(server):
    with KVStoreServer("127.0.0.1:0") as other:
        servers = [server.address, other.address]
        kv = mx.kv.create("dist_async", servers=servers, divide_above=8)
        kv.init("w", mx.nd.arange(6).reshape(3, 2))
        assert kv.pull("w").tolist() == [[0, 1], [2, 3], [4, 5]]
        assert server.store.keys() == other.store.keys() == ["w"]
        kv.close()


def test_members_come_and_leave(server):
    first = connect(server, member="a")
    changes = queue.SimpleQueue()
    first.on_member(changes.put)
    second = connect(server, member="b", reader=True)
    both = [mx.kv.Member("a", 0, False), mx.kv.Member("b", 0, True)]
    assert changes.get(timeout=SECONDS) == both == first.members()
    second.leave()
    assert changes.get(timeout=SECONDS) == both[:1]
    with pytest.raises(mx.errors.ClosedError):
        second.pull("w")
    assert repr(second) == "<KVStore dist_async>"
    with pytest.raises(TypeError, match="function: expected a function"):
        first.on_member(None)
    for call in (mx.kv.create().members, mx.kv.create().leave):
        with pytest.raises(mx.errors.UnsupportedError, match="no process joins or leaves"):
            call()


def test_a_server_continues_from_its_recovery_point(tmp_path, monkeypatch):
    reported = queue.SimpleQueue()
    monkeypatch.setattr(sys, "unraisablehook", lambda report: reported.put(report.exc_value))
    rewinds = queue.SimpleQueue()

    def failing(rewound):
        rewinds.put(rewound)
        raise ValueError(rewound.version)

    server = KVStoreServer("127.0.0.1:0", recovery=tmp_path, save_every=0.05)
    kv = connect(server)
    kv.on_rewind(failing)
    kv.init("w", mx.nd.zeros(2))
    for version in (1, 2):
        kv.push("w", mx.nd.ones(2) * version)
        server.close()
        server = KVStoreServer(server.address, recovery=tmp_path)
        assert rewinds.get(timeout=SECONDS) == mx.kv.Rewound(server.address, version)
        assert reported.get(timeout=SECONDS).args == (version,)
        assert kv.pull("w").tolist() == [version, version]
        assert kv.version("w") == version
    with pytest.raises(TypeError, match="function: expected a function"):
        kv.on_rewind(None)
    with pytest.raises(mx.errors.UnsupportedError):
        mx.kv.create().on_rewind(print)
    kv.close()
    server.close()


def test_a_failing_function_for_members_is_reported_and_called_again(server, monkeypatch):
    reported = queue.SimpleQueue()
    monkeypatch.setattr(sys, "unraisablehook", lambda report: reported.put(report.exc_value))
    kv = connect(server)
    errors = []

    def failing(members):
        errors.append(ValueError(len(members)))
        raise errors[-1]

    kv.on_member(failing)
    connect(server).close()
    assert [reported.get(timeout=SECONDS) for _ in range(2)] == errors


def test_a_store_that_is_not_closed_leaves(server):
    kv = connect(server)
    assert len(server.members()) == 1
    del kv
    wait_until(lambda: not server.members())


def test_a_loaded_snapshot_outlives_its_server():
    with KVStoreServer("127.0.0.1:0") as server:
        kv = connect(server)
        kv.init("w", mx.nd.ones(2))
        loaded = kv.snapshot().load()
        kv.push("w", mx.nd.zeros(2))
        kv.close()
    assert loaded.get("w").tolist() == [1.0, 1.0]
    assert loaded.load().is_identical(loaded)


def test_checkpoints_on_servers(tmp_path):
    with KVStoreServer("127.0.0.1:0", checkpoints=tmp_path) as server, connect(server) as kv:
        kv.init("w", mx.nd.ones(2))
        kv.checkpoint_on_servers("model")
        kv.push("w", mx.nd.zeros(2))
        kv.restore(tmp_path / "model")
        assert kv.pull("w").tolist() == [1.0, 1.0]
    with pytest.raises(mx.errors.UnsupportedError, match="the store has no servers"):
        mx.kv.create().checkpoint_on_servers("model")


# Updaters and commands.


def test_the_error_of_an_updater_in_this_process_is_the_same_object(server):
    error = ValueError("message")

    def failing(key, pushed, stored):
        raise error

    server.store.set_updater(failing)
    kv = connect(server)
    kv.init("w", mx.nd.ones(2))
    with pytest.raises(ValueError) as raised:
        kv.push("w", mx.nd.ones(2))
    assert raised.value is error
    assert kv.pull("w").tolist() == [1.0, 1.0]


def test_the_staleness_of_a_push():
    found = []

    def update(key, pushed, stored):
        found.append(mx.kv.push_staleness(key))

    with KVStoreServer("127.0.0.1:0", updater=update) as server:
        slow, fast = connect(server), connect(server)
        slow.init("w", mx.nd.ones(2))
        for kv in (slow, fast):
            kv.pull("w")
        for _ in range(3):
            fast.push("w", mx.nd.ones(2))
            fast.pull("w")
        slow.push("w", mx.nd.ones(2))
        assert found == [0, 0, 0, 3]
        server.store.push("w", mx.nd.ones(2))
        assert found[4:] == [None]
    assert mx.kv.push_staleness("w") is None
    with pytest.raises(TypeError):
        mx.kv.push_staleness(1.5)


def test_commands():
    received = []

    def on_command(head, body):
        if head < 0:
            raise ValueError(body)
        received.append((head, body))

    with KVStoreServer("127.0.0.1:0", on_command=on_command) as server:
        kv = connect(server)
        kv._send_command_to_servers(7, "faster ü")
        assert received == [(7, "faster ü")]
        with pytest.raises(mx.errors.BackendError, match="command -1: ValueError: too fast"):
            kv._send_command_to_servers(-1, "too fast")


def test_a_server_is_not_closed_by_its_own_functions():
    def close(*_):
        server.close()

    with KVStoreServer("127.0.0.1:0", updater=close, on_command=close) as server:
        kv = connect(server)
        kv.init("w", mx.nd.ones(2))
        with pytest.raises(ValueError, match="`close` cannot be called from an updater"):
            kv.push("w", mx.nd.ones(2))
        with pytest.raises(mx.errors.BackendError, match="`close` cannot be called from a handler"):
            kv._send_command_to_servers(0, "")
        assert kv.pull("w").tolist() == [1.0, 1.0]


# The end of servers.


def test_a_closed_server():
    server = KVStoreServer("127.0.0.1:0")
    kv = connect(server)
    kv.init("w", mx.nd.ones(2))
    assert repr(server) == f"<KVStoreServer {server.address}>"
    server.close()
    server.close()
    assert repr(server) == "<KVStoreServer, closed>"
    with pytest.raises(mx.errors.ClosedError, match="the server is closed"):
        server.members()
    assert server.store.pull("w").tolist() == [1.0, 1.0]
    with KVStoreServer(server.address) as another:
        assert another.store.keys() == []


def test_a_port_in_use(server):
    text = f"cannot listen on {server.address}: Address already in use"
    with pytest.raises(mx.errors.BackendError, match=text):
        KVStoreServer(server.address)


def test_close_in_another_thread_ends_run():
    server = KVStoreServer("127.0.0.1:0")
    threading.Timer(0.1, server.close).start()
    server.run()
    assert repr(server) == "<KVStoreServer, closed>"


def test_run_needs_the_main_thread(server):
    errors = []

    def run():
        try:
            server.run()
        except mx.errors.UnsupportedError as error:
            errors.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert "in the main thread only" in errors[0]


def test_a_collected_server_ends_while_its_updater_runs():
    begun, go_on = threading.Event(), threading.Event()

    def update(key, pushed, stored):
        begun.set()
        assert go_on.wait(SECONDS)
        stored += pushed

    server = KVStoreServer("127.0.0.1:0", updater=update)
    kv = connect(server)
    kv.init("w", mx.nd.ones(2))
    pushing = threading.Thread(target=kv.push, args=("w", mx.nd.ones(2)))
    pushing.start()
    assert begun.wait(SECONDS)
    store, is_alive = server.store, weakref.ref(server)
    del server
    gc.collect()
    assert is_alive() is None
    go_on.set()
    pushing.join(SECONDS)
    assert not pushing.is_alive()
    assert store.pull("w").tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    "end",
    [
        "",
        "del server",
        "kv.close()",
        "server.close()",
        "threading.Thread(target=push_for_ever, daemon=True).start(); begun.wait()",
        "sys.exit()",
    ],
)
def test_a_program_ends_with_an_open_server(end):
    program = f"""
import sys, threading
import mxkv as mx
begun = threading.Event()
def update(key, pushed, stored):
    begun.set()
    stored += pushed
def push_for_ever():
    while True:
        kv.push("w", mx.nd.ones(2))
server = mx.kvstore_server.KVStoreServer("127.0.0.1:0", updater=update)
kv = mx.kv.create("dist_async", servers=server.address)
kv.on_member(lambda members: None)
kv.init("w", mx.nd.ones(2))
kv.push("w", mx.nd.ones(2))
begun.clear()
{end}
"""
    start = time.monotonic()
    done = children.run(program, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    if "daemon" not in end:
        assert done.stderr == ""
    assert time.monotonic() - start < 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_neither_uses_nor_ends_the_server():
    program = """
    import os
    import mxkv as mx
    server = mx.kvstore_server.KVStoreServer("127.0.0.1:0")
    server.store.init("w", mx.nd.ones(2))
    child = os.fork()
    if child == 0:
        for call in (server.members, server.store.keys):
            try:
                call()
            except mx.errors.UnsupportedError:
                continue
            os._exit(1)
        server.close()
        raise SystemExit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    kv = mx.kv.create("dist_async", servers=server.address)
    print(kv.pull("w").tolist())
    """
    assert children.output(program, SECONDS) == "[1.0, 1.0]\n"


def test_several_servers_commit_the_same_rounds():
    with KVStoreServer("127.0.0.1:0") as follower:
        for followers in (follower.address, [follower.address]):
            with KVStoreServer("127.0.0.1:0", followers=followers) as leader:
                servers = [leader.address, follower.address]
                kv = mx.kv.create("dist_quorum", servers=servers, quorum=1, timeout=SECONDS)
                for key in ("a", "b", "c", "d"):
                    kv.init(key, mx.nd.zeros(2))
                    kv.push(key, mx.nd.ones(2))
                    assert kv.pull(key).tolist() == [1.0, 1.0]
                    kv.remove(key)
                kv.close()
    with pytest.raises(TypeError, match="followers: expected addresses HOST:PORT, found 9191"):
        KVStoreServer("127.0.0.1:0", followers=9191)
    with pytest.raises(ValueError, match="option `followers`: expected HOST:PORT"):
        KVStoreServer("127.0.0.1:0", followers=[])


@pytest.fixture
def etcd(tmp_path):
    """The address of a group in an etcd without data."""
    with socket.socket() as first, socket.socket() as second:
        for free in (first, second):
            free.bind(("127.0.0.1", 0))
        client, peer = [f"http://127.0.0.1:{it.getsockname()[1]}" for it in (first, second)]
    urls = ["--listen-client-urls", client, "--advertise-client-urls", client]
    urls += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
    command = ["etcd", "--data-dir", tmp_path / "etcd", *urls, "--initial-cluster"]
    process = subprocess.Popen(
        [*command, f"default={peer}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        # A server waits until etcd has started.
        yield f"{client.replace('http', 'etcd')}/digits"
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(shutil.which("etcd") is None, reason="etcd is not installed")
def test_servers_and_workers_find_each_other_in_etcd(etcd):
    def serve(index):
        place = {"server_index": index, "num_servers": 2}
        return KVStoreServer("127.0.0.1:0", coordinator=etcd, **place)

    with serve(0), serve(1):
        kv = mx.kv.create("dist_quorum", coordinator=etcd, quorum=1, grace=0, timeout=SECONDS)
        for key in ("a", "b", "c", "d"):
            kv.init(key, mx.nd.zeros(2))
            kv.push(key, mx.nd.ones(2))
            assert kv.pull(key).tolist() == [1.0, 1.0]
        kv.close()


def test_metrics_and_the_status_page():
    with KVStoreServer("127.0.0.1:0", metrics="127.0.0.1:0", status_page=True) as server:
        kv = mx.kv.create("dist_async", servers=server.address)
        kv.init("w", mx.nd.ones(2))

        def get(path):
            with urllib.request.urlopen(f"http://{server.metrics_address}{path}") as answer:
                return answer.read().decode()

        assert 'kvstore_calls_total{verb="init",outcome="ok"} 1' in get("/metrics")
        assert get("/healthz") == "serving\n"
        assert get("/").startswith("<!DOCTYPE html>")
        assert json.loads(get("/status.json"))["num_keys"] == 1
    with KVStoreServer("127.0.0.1:0") as server:
        assert server.metrics_address is None
