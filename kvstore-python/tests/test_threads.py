"""Threads: verbs run with the GIL released, and no pushes are lost."""

import sys
import threading
import time
from contextlib import contextmanager

import pytest

import mxkv as mx
from mxkv import nd
from test_store import adding, filled


@contextmanager
def counting():
    """Yields a function that returns how often another thread has run. The switch interval is very
    long, so the other thread runs only if this thread releases the GIL itself.
    """
    rounds, is_over, interval = [0], threading.Event(), sys.getswitchinterval()

    def count():
        while not is_over.is_set():
            rounds[0] += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    sys.setswitchinterval(1000)
    try:
        thread.start()
        yield lambda: rounds[0]
    finally:
        is_over.set()
        sys.setswitchinterval(interval)
        thread.join(60)


def gives_the_lock_up(prepare, seconds=20):
    """Returns whether another thread runs during a call. `prepare` returns the call. Repeats it,
    because one call may end before the other thread wakes up.
    """
    deadline = time.monotonic() + seconds
    with counting() as rounds:
        while time.monotonic() < deadline:
            call = prepare()
            before = rounds()
            call()
            if rounds() != before:
                return True
    return False


def test_a_call_that_keeps_the_gil_is_detected():
    assert not gives_the_lock_up(lambda: lambda: sum(range(1000)), seconds=0.5)


class Verbs:
    """Verbs by name. Each method prepares a call and returns it."""

    def __init__(self, folder):
        self.kv, self.array, self.file = mx.kv.create(), nd.ones((2, 100_000)), folder / "file"
        self.kv.init(["a", "b"], [self.array] * 2)
        self.kv.set_optimizer(mx.optimizer.SGD())
        self.server = None

    def init(self):
        return lambda: self.kv.init("a", self.array, on_existing="replace")

    def push(self):
        return lambda: self.kv.push("a", self.array)

    def push_of_lists(self):
        return lambda: self.kv.push(["a", "b"], [[self.array, self.array], [self.array]])

    def pull(self):
        return lambda: self.kv.pull("a", out=self.array)

    def pull_of_lists(self):
        return lambda: self.kv.pull(["a", "b"], out=[self.array, self.array])

    def pull_of_new_arrays(self):
        return lambda: self.kv.pull("a")

    def pushpull(self):
        return lambda: self.kv.pushpull("a", self.array)

    def broadcast(self):
        if "c" in self.kv:
            self.kv.remove("c")
        return lambda: self.kv.broadcast("c", self.array, out=self.array)

    def row_sparse_pull(self):
        return lambda: self.kv.row_sparse_pull("a", row_ids=[1])

    def remove(self):
        self.kv.init("d", self.array)
        return lambda: self.kv.remove("d")

    def keys(self):
        return self.kv.keys

    def contains(self):
        return lambda: "a" in self.kv

    def length(self):
        return lambda: len(self.kv)

    def type(self):
        return lambda: self.kv.type

    def rank(self):
        return lambda: self.kv.rank

    def num_workers(self):
        return lambda: self.kv.num_workers

    def get_num_dead_node(self):
        return lambda: self.kv.get_num_dead_node(0)

    def set_barrier_before_exit(self):
        return self.kv.set_barrier_before_exit

    def hyper_parameters(self):
        return self.kv.hyper_parameters

    def stats(self):
        return self.kv.stats

    def barrier(self):
        return self.kv.barrier

    def version(self):
        return lambda: self.kv.version("a")

    def _on_server(self):
        """Returns a store on a server."""
        if self.server is None:
            self.server = mx.kvstore_server.KVStoreServer(
                "127.0.0.1:0", checkpoints=self.file.parent
            )
        return mx.kv.create("dist_async", servers=self.server.address)

    def create_on_server(self):
        return self._on_server

    def close_on_server(self):
        return self._on_server().close

    def members(self):
        members = self._on_server().members
        # One call is too short for another thread to wake up.
        return lambda: [members() for _ in range(200)]

    def on_member(self):
        kv = self._on_server()
        return lambda: kv.on_member(print)

    def on_rewind(self):
        kv = self._on_server()
        return lambda: kv.on_rewind(print)

    def set_weight(self):
        self._on_server()
        options = {"servers": self.server.address, "quorum": 1, "weight": 1}
        kv = mx.kv.create("dist_quorum", **options)
        return lambda: [kv.set_weight(2) for _ in range(1000)]

    def leave(self):
        stores = [self._on_server() for _ in range(20)]
        return lambda: [kv.leave() for kv in stores]

    def checkpoint_on_servers(self):
        kv = self._on_server()
        return lambda: kv.checkpoint_on_servers("name")

    def start_server(self):
        return lambda: mx.kvstore_server.KVStoreServer("127.0.0.1:0")

    def close_server(self):
        return mx.kvstore_server.KVStoreServer("127.0.0.1:0").close

    def members_of_a_server(self):
        self._on_server()
        return lambda: [self.server.members() for _ in range(200)]

    def load_snapshot(self):
        kv = self._on_server()
        kv.init("w", self.array, on_existing="keep")
        snapshot = kv.snapshot()
        # A snapshot on a server ends with its store, so the call keeps the store.
        return lambda: (snapshot.load(), kv)

    def set_updater(self):
        return lambda: self.kv.set_updater(print)

    def set_updater_to_none(self):
        return lambda: self.kv.set_updater(None)

    def set_optimizer(self):
        return lambda: self.kv.set_optimizer(mx.optimizer.SGD())

    def set_hyper_parameters(self):
        return lambda: self.kv.set_hyper_parameters(wd=0)

    def set_gradient_compression(self):
        return lambda: self.kv.set_gradient_compression({"type": "2bit"})

    def set_gradient_compression_to_none(self):
        return lambda: self.kv.set_gradient_compression(None)

    def set_clip_global_norm(self):
        return lambda: self.kv.set_clip_global_norm(1)

    def clip_global_norm(self):
        return self.kv.clip_global_norm

    def snapshot(self):
        return self.kv.snapshot

    def rollback(self):
        before = self.kv.snapshot()
        return lambda: self.kv.rollback(before)

    def checkpoint(self):
        return lambda: self.kv.checkpoint(self.file)

    def waits_for_a_checkpoint(self):
        return self.kv.checkpoint(self.file).wait

    def read_checkpoint(self):
        self.kv.checkpoint(self.file).wait()
        return lambda: mx.kvstore.read_checkpoint(self.file)

    def checkpoint_of_a_snapshot(self):
        snapshot = self.kv.snapshot()
        return lambda: snapshot.checkpoint(self.file)

    def restore(self):
        self.kv.checkpoint(self.file).wait()
        return lambda: self.kv.restore(self.file)

    def save_optimizer_states(self):
        return lambda: self.kv.save_optimizer_states(self.file)

    def load_optimizer_states(self):
        self.kv.save_optimizer_states(self.file)
        return lambda: self.kv.load_optimizer_states(self.file)

    def create(self):
        return mx.kv.create

    def close(self):
        return mx.kv.create().close


def test_every_verb_is_covered():
    # Names of the class.
    others = {"is_capable", "kv_registry", "register", "OPTIMIZER"}
    assert {name for name in dir(mx.kv.KVStore) if not name.startswith("_")} - others <= set(
        vars(Verbs)
    )


@pytest.mark.parametrize("name", [name for name in vars(Verbs) if not name.startswith("_")])
def test_other_threads_run_during_every_verb(name, tmp_path):
    prepare = getattr(Verbs(tmp_path), name)
    # Run it once, because the first call may import modules.
    prepare()()
    assert gives_the_lock_up(prepare)


WORK = {
    "sum of two": lambda array, of_numpy, kv: array + array,
    "in place": lambda array, of_numpy, kv: array.__iadd__(1),
    "asnumpy": lambda array, of_numpy, kv: array.asnumpy(),
    "sum": lambda array, of_numpy, kv: array.sum(),
    "ones": lambda array, of_numpy, kv: nd.ones((2, 100_000)),
    "array": lambda array, of_numpy, kv: nd.array(of_numpy),
    "push": lambda array, of_numpy, kv: kv.push("a", of_numpy),
    "pull": lambda array, of_numpy, kv: kv.pull("a", out=of_numpy),
}


@pytest.mark.parametrize("name", WORK)
def test_other_threads_run_during_work_on_arrays(name):
    array, kv = nd.ones((2, 100_000)), mx.kv.create()
    kv.init("a", array)
    of_numpy, work = array.asnumpy(), WORK[name]
    work(array, of_numpy, kv)
    assert gives_the_lock_up(lambda: lambda: work(array, of_numpy, kv))


def test_no_push_of_many_threads_is_lost():
    kv = filled(["a", "b"])
    kv.set_updater(adding)

    def run(key):
        for _ in range(100):
            kv.push(key, nd.ones(2))

    threads = [threading.Thread(target=run, args=("ab"[number % 2],)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [it.tolist() for it in kv.pull(["a", "b"])] == [[200, 200]] * 2


def test_other_threads_run_while_a_push_waits():
    """A push is blocked in its updater until another thread has finished."""
    kv, entered, may_go = filled(["a", "b"]), threading.Event(), threading.Event()

    def update(key, pushed, stored):
        stored += pushed
        if key == "a":
            entered.set()
            assert may_go.wait(60)

    kv.set_updater(update)
    thread = threading.Thread(target=lambda: kv.push("a", nd.ones(2)))
    thread.start()
    assert entered.wait(60)
    # The first push holds the key's lock, so this push waits for it, with the GIL released.
    waiting = threading.Thread(target=lambda: kv.push("a", nd.ones(2)))
    waiting.start()
    assert kv.pull("b").tolist() == [0, 0]
    may_go.set()
    thread.join(60)
    waiting.join(60)
    assert kv.pull("a").tolist() == [2, 2]
