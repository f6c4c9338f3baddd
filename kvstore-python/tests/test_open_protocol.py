"""A client of the network protocol without the native library: only gRPC and the `.proto` file."""

import concurrent.futures
import pathlib
import queue
import sys

import numpy as np
import pytest
from test_server_processes import CERTIFICATES, Serving

grpc = pytest.importorskip("grpc", reason="grpcio is not installed")
protoc = pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools is not installed")

PROTO = pathlib.Path(__file__).parents[2] / "kvstore-net" / "proto"
FILE = "kvstore/v1/store.proto"

#: The certificate of the authority, then the key and the certificate of the member.
FILES = ("ca.pem", "key.pem", "cert.pem")

#: Far longer than any call takes.
SECONDS = 60


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    """Returns the modules that the compiler of gRPC makes of the protocol."""
    folder = tmp_path_factory.mktemp("protocol")
    options = [f"--proto_path={PROTO}", f"--python_out={folder}", f"--grpc_python_out={folder}"]
    assert protoc.main(["protoc", *options, FILE]) == 0
    sys.path.insert(0, str(folder))
    try:
        from kvstore.v1 import store_pb2, store_pb2_grpc
    finally:
        sys.path.remove(str(folder))
    return store_pb2, store_pb2_grpc


class Client:
    """A member of the group of a server, with one stream for all its calls."""

    def __init__(self, modules, channel, name):
        self.pb, stubs = modules
        self.name, self.sequence = name, 0
        #: The version of the last pull of each key. It tells the server which pushes are late.
        self.pulled = {}
        self.channel = channel
        stub = stubs.StoreStub(self.channel)
        self.messages, self.requests = queue.Queue(), queue.Queue()
        join = self.pb.JoinRequest(
            version=1, name=name, process=hash(name) % 2**63 + 1, num_servers=1
        )
        self.messages.put(self.pb.MemberMessage(join=join))
        self.events = stub.Join(iter(self.messages.get, None), timeout=SECONDS)
        try:
            self.joined = next(self.events).joined
        except grpc.RpcError:
            self.messages.put(None)
            channel.close()
            raise
        self.replies = stub.Call(iter(self.requests.get, None), timeout=SECONDS)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.messages.put(self.pb.MemberMessage(leave=self.pb.Leave()))
        list(self.events)
        self.messages.put(None)
        self.requests.put(None)
        self.channel.close()

    def call(self, data=b"", changes=False, supplied=b"", **verb):
        """Makes a call. Sends the ranges of `supplied` that the server asks for. Returns the reply
        and its data.
        """
        self.sequence += changes
        request = self.pb.Request(
            member=self.name,
            incarnation=self.joined.incarnation,
            sequence=self.sequence if changes else 0,
            answered_below=self.sequence,
            unanswered=[self.sequence] if changes else [],
            **verb,
        )
        self.requests.put(self.pb.RequestFrame(request=request, data=data))
        frame = next(self.replies)
        while frame.reply.HasField("wanted"):
            first, num_bytes = frame.reply.wanted.first, frame.reply.wanted.num_bytes
            self.requests.put(self.pb.RequestFrame(data=supplied[first : first + num_bytes]))
            frame = next(self.replies)
        reply, received = frame.reply, bytearray(frame.data)
        expected = sum(
            4 * int(np.prod(value.spec.shape)) for value in reply.values if reply.has_elements
        )
        while len(received) < expected:
            received += next(self.replies).data
        return reply, received

    def value(self, key, array):
        spec = self.pb.Spec(dtype=str(array.dtype), shape=array.shape)
        return self.pb.Value(key=key, spec=spec, version=self.pulled.get(key))

    def init(self, key, array):
        init = self.pb.Init(values=[self.value(key, array)])
        return self.call(array.tobytes(), changes=True, init=init)[0]

    def push(self, key, *arrays):
        push = self.pb.Push(values=[self.value(key, array) for array in arrays])
        return self.call(b"".join(array.tobytes() for array in arrays), changes=True, push=push)[0]

    def push_to_round(self, arrays, weight=None, **rule):
        """Takes part in a round with an array for each key. Returns when the round is committed.

        With a weight, the round computes the weighted mean of all members' arrays.
        """
        keys = sorted(arrays)
        weighted = [arrays[key] * np.float32(1 if weight is None else weight) for key in keys]
        push = self.pb.Push(
            values=[self.value(key, array) for key, array in zip(keys, weighted)],
            round=self.pb.RoundPush(weight=weight, **rule),
        )
        supplied = b"".join(array.tobytes() for array in weighted)
        return self.call(changes=True, push=push, supplied=supplied)[0]

    def pull(self, key):
        reply, data = self.call(pull=self.pb.Pull(keys=[key]))
        assert not reply.HasField("failure"), reply.failure
        self.pulled[key] = reply.values[0].version
        return np.frombuffer(data, np.float32).reshape(reply.values[0].spec.shape)


def connect(modules, server, name):
    return Client(modules, grpc.insecure_channel(server.address), name)


def connect_with_certificate(modules, server, role):
    """Returns a client with the certificate of a role."""
    files = [(CERTIFICATES / role / name).read_bytes() for name in FILES]
    credentials = grpc.ssl_channel_credentials(*files)
    return Client(modules, grpc.secure_channel(server.address, credentials), f"with {role}")


def test_a_client_without_the_native_library_shares_a_store(modules):
    with Serving() as server, connect(modules, server, "other client") as client:
        ones = np.ones((300, 1000), np.float32)
        assert not client.init("w", ones).HasField("failure")
        store = server.connect()
        assert [member.name for member in store.members() if not member.is_reader][0] == client.name
        # The sum of three values replaces the stored one.
        assert not client.push("w", ones, 2 * ones, 3 * ones).HasField("failure")
        assert store.pull("w").asnumpy().tolist() == (6 * ones).tolist()
        store.push("w", 7 * ones)
        assert client.pull("w").tolist() == (7 * ones).tolist()
        failure = client.init("w", ones).failure
        assert "already initialised" in failure.message
        assert failure.key == "w"
        store.close()


def test_a_client_without_the_native_library_takes_part_in_rounds(modules):
    with Serving() as server, connect(modules, server, "other client") as client:
        store = server.connect(member="library", quorum=2, grace=SECONDS, weight=6)
        # The server asks for the large value in several ranges.
        large = np.arange(300_000, dtype=np.float32).reshape(300, 1000)
        small = np.ones(3, np.float32)
        keys = ["w", "a"]
        for key, array in zip(keys, (large, small)):
            assert not client.init(key, 0 * array).HasField("failure")
        rule = {"min": 2, "grace_ms": 1000 * SECONDS}
        for number in range(1, 4):
            with concurrent.futures.ThreadPoolExecutor(1) as threads:
                push = threads.submit(store.push, keys, [number * large, small])
                arrays = {"w": large, "a": 5 * small}
                reply = client.push_to_round(arrays, weight=2, **rule)
                assert not reply.HasField("failure"), reply.failure
                push.result(SECONDS)
            # The members are in the order of their names: "library" is the first one.
            mean = (number * large * 6 + large * 2) / np.float32(8)
            assert client.pull("w").tobytes() == mean.tobytes()
            assert client.pull("a").tolist() == (2 * small).tolist()
        assert store.version("w") == 3
        store.close()


def test_a_late_push_of_a_client_without_the_native_library(modules):
    with Serving() as server, connect(modules, server, "other client") as client:
        store = server.connect(quorum=1, grace=0)
        ones = np.ones(3, np.float32)
        assert not client.init("w", ones).HasField("failure")
        assert client.pull("w").tolist() == [1, 1, 1]
        store.push("w", 2 * ones)
        failure = client.push_to_round({"w": ones}, min=1).failure
        assert failure.message == "push of `w` for round 1: the current round is 2"
        assert (failure.code, failure.key) == (16, "w")
        assert (failure.found_len, failure.expected_len) == (1, 2)
        # The server keeps a push that permits it, or one that is based on the last round.
        late = client.pb.LATE_PUSH_NEXT
        assert not client.push_to_round({"w": 3 * ones}, min=1, late=late).HasField("failure")
        store.pull("w")
        store.push("w", 4 * ones)
        assert client.pull("w").tolist() == [4, 4, 4]
        assert not client.push_to_round({"w": 5 * ones}, min=1).HasField("failure")
        assert store.pull("w").tolist() == [5, 5, 5]
        assert "found 0" in client.push_to_round({"w": ones}, min=0).failure.message
        store.close()


def test_a_client_with_a_certificate_has_its_role(modules):
    with Serving("--certificates", str(CERTIFICATES / "server")) as server:
        with connect_with_certificate(modules, server, "worker") as client:
            ones = np.ones((300, 1000), np.float32)
            assert not client.init("w", ones).HasField("failure")
            assert not client.push("w", ones, 2 * ones).HasField("failure")
            assert client.pull("w").tolist() == (3 * ones).tolist()
            reader = server.connect(certificates=CERTIFICATES / "reader", reader=True)
            assert reader.pull("w").tolist() == (3 * ones).tolist()
        with pytest.raises(grpc.RpcError) as raised:
            connect_with_certificate(modules, server, "reader")
        assert raised.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert "needs a certificate with the role `worker`" in raised.value.details()
        with pytest.raises(grpc.RpcError) as raised:
            connect(modules, server, "without a certificate")
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


def test_errors_are_statuses_of_grpc(modules):
    pb, stubs = modules
    with Serving() as server, grpc.insecure_channel(server.address) as channel:
        stub = stubs.StoreStub(channel)

        def code(calls):
            with pytest.raises(grpc.RpcError) as raised:
                list(calls)
            return raised.value.code()

        later = pb.MemberMessage(join=pb.JoinRequest(version=2, name="a", process=1, num_servers=1))
        assert code(stub.Join(iter([later]))) is grpc.StatusCode.UNIMPLEMENTED
        assert code(stub.Join(iter([pb.MemberMessage()]))) is grpc.StatusCode.INVALID_ARGUMENT
        stranger = pb.Request(member="a", incarnation=5, pull=pb.Pull(keys=["w"]))
        frame = pb.RequestFrame(request=stranger)
        assert code(stub.Call(iter([frame]))) is grpc.StatusCode.FAILED_PRECONDITION
        assert code(stub.Call(iter([pb.RequestFrame()]))) is grpc.StatusCode.INVALID_ARGUMENT
