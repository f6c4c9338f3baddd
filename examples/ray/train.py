"""Learns to read digits on Ray: servers and workers are actors. One worker is killed, and Ray
starts it again.

    python train.py [--address RAY] [--workers 2] [--epochs 60]

Without --address, starts Ray on this machine. On several machines, servers and workers also need
the environment variable KVSTORE_CERTIFICATES, or KVSTORE_INSECURE=1 in a private network.
"""

import argparse
import sys
import time
from pathlib import Path

import mxkv as mx
import ray

DIGITS = Path(__file__).resolve().parents[1] / "digits"
sys.path.insert(0, str(DIGITS))
import digits  # noqa: E402

NUM_SERVERS = 2
SECONDS_TO_WAIT = 60


@ray.remote(num_cpus=0)
class Server:
    """A server of the store. If it dies, the training fails: its values are lost."""

    def __init__(self, host):
        host = host or ray.util.get_node_ip_address()
        self._server = mx.kvstore_server.KVStoreServer(f"{host}:0")

    def address(self):
        return self._server.address

    def close(self):
        self._server.close()


@ray.remote(num_cpus=1, max_restarts=1, max_task_retries=1)
class Worker:
    """A worker. If its process dies, Ray starts another one and repeats the call in progress. The
    new process takes the name of the dead one, and continues with the weights in the store."""

    def __init__(self, servers, index):
        self._store = connect(servers, f"worker-{index}")

    def process(self):
        """Returns the identity of this process and the rank of the worker."""
        return ray.get_runtime_context().get_worker_id(), self._store.rank

    def train(self, batches, epochs):
        digits.train(self._store, batches, epochs)

    def result(self, tested):
        """Returns a digest of the weights, the loss and the accuracy."""
        parameters = digits.pull(self._store)
        loss = digits.loss(parameters, tested)
        return digits.digest(parameters), loss, digits.accuracy(parameters, tested)


def connect(servers, name, **options):
    return mx.kv.create(
        digits.KIND,
        servers=servers,
        member=name,
        timeout=SECONDS_TO_WAIT,
        divide_above=digits.DIVIDE_ABOVE,
        **options,
    )


def init(servers):
    with connect(servers, "driver") as store:
        store.set_optimizer(mx.optimizer.SGD(learning_rate=digits.LEARNING_RATE))
        store.init(digits.KEYS, digits.initial())


def kill_while_it_trains(store, worker):
    """Kills a worker after the next pushes. Ray starts it again."""
    end = time.monotonic() + SECONDS_TO_WAIT
    wanted = store.version(digits.KEYS[0]) + 10
    while store.version(digits.KEYS[0]) < wanted:
        if time.monotonic() > end:
            sys.exit(f"not within {SECONDS_TO_WAIT} s: {wanted} pushes")
        time.sleep(0.001)
    ray.kill(worker, no_restart=False)


def train(servers, num_workers, epochs):
    """Trains in two halves, and kills a worker in the second one. Prints the result."""
    batches, tested = digits.load()
    # Ray's store of objects has each share once. The weights are in ours.
    shares = [ray.put(batches[index::num_workers]) for index in range(num_workers)]
    workers = [Worker.remote(servers, index) for index in range(num_workers)]

    def learn(epochs):
        return [worker.train.remote(share, epochs) for worker, share in zip(workers, shares)]

    before = ray.get([worker.process.remote() for worker in workers])
    ray.get(learn(epochs // 2))
    with connect(servers, "driver", reader=True) as store:
        second = learn(epochs - epochs // 2)
        kill_while_it_trains(store, workers[-1])
        ray.get(second)
        found = store.version(digits.KEYS[0])
    after = ray.get([worker.process.remote() for worker in workers])
    results = ray.get([worker.result.remote(tested) for worker in workers])
    check(before, after, results)
    digest, loss, accuracy = results[0]
    first = digits.loss(digits.initial(), tested)
    print(
        f"{num_workers} workers, one killed and started again: loss {first:.3f} to {loss:.3f}, "
        f"accuracy {accuracy:.3f}, {found} pushes, weights {digest}",
        flush=True,
    )
    if found < epochs * len(batches) or loss > first / 3 or accuracy < 0.9:
        sys.exit("the training has not reached its goal")


def check(before, after, results):
    """Exits if the weights differ between workers, or other processes changed than that of the
    killed worker."""
    if len({digest for digest, _, _ in results}) != 1:
        sys.exit(f"expected the same weights in all workers, found {results}")
    (killed, killed_rank), (new, new_rank) = before[-1], after[-1]
    if before[:-1] != after[:-1] or killed == new or killed_rank != new_rank:
        sys.exit(f"expected a new process of the last worker, found {before} and {after}")


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--address", help="a running cluster, for example `auto`")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=60)
    options = parser.parse_args()
    # On this machine, a processor for each worker, even if it has fewer.
    local = {} if options.address else {
        "num_cpus": options.workers,
        "include_dashboard": False,
        "object_store_memory": 100 << 20,
    }
    # Sends the module of the model to all machines.
    ray.init(options.address, runtime_env={"working_dir": str(DIGITS)}, **local)
    host = None if options.address else "127.0.0.1"
    servers = [Server.remote(host) for _ in range(NUM_SERVERS)]
    addresses = ray.get([server.address.remote() for server in servers])
    init(addresses)
    train(addresses, options.workers, options.epochs)
    ray.get([server.close.remote() for server in servers])
    ray.shutdown()


if __name__ == "__main__":
    main()
