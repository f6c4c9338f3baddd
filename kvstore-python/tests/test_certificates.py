"""Servers and members with certificates, and connections that other machines can reach without."""

import contextlib
import pathlib
import socket

import pytest

import mxkv as mx
from mxkv.kvstore_server import KVStoreServer

#: Far longer than any wait of these tests.
SECONDS = 60

#: A folder for each role.
FOLDER = pathlib.Path(__file__).parents[2] / "tests" / "certificates"


@pytest.fixture
def server():
    with KVStoreServer("127.0.0.1:0", certificates=FOLDER / "server") as server:
        yield server


def connect(server, role, **options):
    return mx.kv.create(
        "dist_async",
        servers=server.address,
        timeout=SECONDS,
        certificates=FOLDER / role,
        **options,
    )


@contextlib.contextmanager
def refused(text):
    with pytest.raises(mx.errors.UnsupportedError, match=text):
        yield


def invalid(call, text):
    with pytest.raises(mx.errors.InvalidArgumentError) as raised:
        call()
    assert text in str(raised.value)


# Roles.


def test_a_worker_changes_values_and_a_reader_reads_them(server):
    worker = connect(server, "worker")
    worker.init("w", mx.nd.zeros(2))
    worker.push("w", mx.nd.ones(2))
    reader = connect(server, "reader", reader=True)
    assert reader.pull("w").tolist() == [1.0, 1.0]
    for call, what in [
        (lambda: reader.push("w", mx.nd.ones(2)), "push"),
        (lambda: reader.init("v", mx.nd.ones(2)), "init"),
        (lambda: reader.set_optimizer(mx.optimizer.SGD()), "change_settings"),
    ]:
        with refused(f"{what}.* needs a certificate with the role `worker`, found `reader`"):
            call()
    assert worker.pull("w").tolist() == [1.0, 1.0]
    with refused("a worker needs a certificate with the role `worker`, found `reader`"):
        connect(server, "reader")


def test_only_an_administrator_removes_keys(server):
    worker, admin = connect(server, "worker"), connect(server, "admin")
    worker.init("w", mx.nd.zeros(2))
    with refused("remove needs a certificate with the role `admin`, found `worker`"):
        worker.remove("w")
    admin.remove("w")
    assert worker.keys() == []


def test_a_member_without_certificates_is_refused(server):
    with refused("the server uses certificates, and this member does not"):
        mx.kv.create("dist_async", servers=server.address, timeout=60)
    assert server.members() == []


# Options.


def test_a_wrong_folder_is_named(tmp_path, server):
    for create in (
        lambda: KVStoreServer("127.0.0.1:0", certificates=tmp_path),
        lambda: mx.kv.create("dist_async", servers=server.address, certificates=str(tmp_path)),
    ):
        invalid(create, f"certificates: cannot read `{tmp_path / 'ca.pem'}`")
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / name).write_text("text")
    text = f"`{tmp_path / 'ca.pem'}`: expected a file in the format PEM"
    invalid(lambda: KVStoreServer("127.0.0.1:0", certificates=tmp_path), text)


def test_certificates_and_insecure_exclude_each_other():
    both = {"certificates": FOLDER / "server", "insecure": True}
    text = "option `certificates` and option `insecure`: expected one of them, found both"
    invalid(lambda: KVStoreServer("127.0.0.1:0", **both), text)
    invalid(lambda: mx.kv.create("dist_async", servers="127.0.0.1:1", **both), text)


def test_addresses_that_other_machines_reach_need_certificates():
    text = "without certificates, connections are neither authenticated nor encrypted"
    invalid(lambda: KVStoreServer("0.0.0.0:0"), text)
    invalid(lambda: KVStoreServer("0.0.0.0:0", insecure=False), text)
    invalid(lambda: mx.kv.create("dist_async", servers="192.0.2.1:9", timeout=1), text)
    with KVStoreServer("0.0.0.0:0", insecure=True) as server:
        assert server.address.startswith("0.0.0.0:")
    with KVStoreServer("0.0.0.0:0", certificates=str(FOLDER / "server")) as server:
        port = server.address.rpartition(":")[2]
        server.address = f"127.0.0.1:{port}"
        assert connect(server, "admin").keys() == []


def test_the_environment_has_the_certificates_of_servers_and_members(monkeypatch, tmp_path):
    monkeypatch.setenv("KVSTORE_CERTIFICATES", str(FOLDER / "server"))
    with KVStoreServer("127.0.0.1:0") as server:
        monkeypatch.setenv("KVSTORE_CERTIFICATES", str(FOLDER / "worker"))
        kv = mx.kv.create("dist_async", servers=server.address, timeout=SECONDS)
        with refused("needs a certificate with the role `admin`, found `worker`"):
            kv.remove("w")
    monkeypatch.setenv("KVSTORE_CERTIFICATES", str(tmp_path))
    invalid(lambda: KVStoreServer("127.0.0.1:0"), str(tmp_path))
    # Switching `insecure` off leaves the certificates of the variable, switching it on does not.
    invalid(lambda: KVStoreServer("127.0.0.1:0", insecure=False), str(tmp_path))
    with KVStoreServer("127.0.0.1:0", insecure=True) as server:
        mx.kv.create("dist_async", servers=server.address, timeout=SECONDS, insecure=True)
    monkeypatch.setenv("KVSTORE_INSECURE", "1")
    text = "KVSTORE_CERTIFICATES and KVSTORE_INSECURE: expected one of them, found both"
    invalid(lambda: KVStoreServer("127.0.0.1:0"), text)
    monkeypatch.delenv("KVSTORE_CERTIFICATES")
    with KVStoreServer("0.0.0.0:0") as server:
        assert server.address.startswith("0.0.0.0:")


# Other options of servers.


def test_a_configuration_file_has_the_options_that_are_not_arguments(tmp_path):
    file = tmp_path / "server.toml"
    certificates = str(FOLDER / "server")
    file.write_text(
        f"address = '127.0.0.1:0'\nstore = 'device'\nkeys = 1\ncertificates = '{certificates}'\n"
    )
    with KVStoreServer(config=file) as server:
        assert not server.address.endswith(":9191")
        assert server.store.type == "device"
        worker = connect(server, "worker")
        worker.init("a", mx.nd.zeros(2))
        invalid(lambda: worker.init("b", mx.nd.zeros(2)), "the server has 1 of at most 1 keys")
    with KVStoreServer(config=str(file), store="local", insecure=True, keys=2) as server:
        assert server.store.type == "local"
        kv = mx.kv.create("dist_async", servers=server.address, timeout=SECONDS)
        kv.init(["a", "b"], [mx.nd.zeros(2)] * 2)
    file.write_text("adress = '127.0.0.1:0'")
    invalid(lambda: KVStoreServer(config=file), f"configuration file `{file}`: unknown option")
    with pytest.raises(OSError):
        KVStoreServer(config=tmp_path / "missing.toml")


def test_a_server_limits_what_one_machine_may_use():
    with KVStoreServer("127.0.0.1:0", peer_bytes=1 << 16) as server:
        kv = mx.kv.create("dist_async", servers=server.address, timeout=SECONDS)
        kv.init("small", mx.nd.zeros(2))
        text = "the calls of a peer may hold at most 65536 bytes"
        invalid(lambda: kv.init("large", mx.nd.zeros(1 << 20)), text)
    with KVStoreServer("127.0.0.1:0", peer_connections=1) as server:
        with socket.create_connection(server.address.split(":"), timeout=SECONDS):
            with socket.create_connection(server.address.split(":"), timeout=SECONDS) as second:
                second.settimeout(SECONDS)
                assert second.recv(1) == b""
