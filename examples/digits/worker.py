"""A worker of the examples for Slurm and Kubernetes. It joins the servers in KVSTORE_SERVERS, and
learns to read digits together with the other workers.

    python worker.py --workers 2 [--index 0] [--epochs 60] [--checkpoint NAME]

Slurm and indexed jobs of Kubernetes set the index of the worker in an environment variable. A
worker that is started again takes the name, and so the rank, of the one that has died.

The last line has the loss and the accuracy on digits that no worker has learned, and a digest of
the weights, which is the same in all workers.
"""

import argparse
import os
import sys
import time

import digits
import mxkv as mx

#: The variables with the index of a process, of Slurm and of Kubernetes.
_INDEX = ["SLURM_PROCID", "JOB_COMPLETION_INDEX"]


def _arguments():
    index = next((os.environ[name] for name in _INDEX if name in os.environ), None)
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--workers", type=int, required=True, help="the number of workers")
    parser.add_argument("--index", type=int, default=index, help="from 0")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--checkpoint", help="the folder of a checkpoint on the servers")
    parser.add_argument("--timeout", type=float, default=300, help="seconds")
    found = parser.parse_args()
    if found.index is None:
        parser.error(f"--index: expected a number, found none, and none in {' or '.join(_INDEX)}")
    if not 0 <= found.index < found.workers:
        parser.error(f"--index: expected 0 to {found.workers - 1}, found {found.index}")
    return found


def _wait_until(is_true, what, timeout):
    end = time.monotonic() + timeout
    while not is_true():
        if time.monotonic() > end:
            sys.exit(f"not within {timeout} s: {what}")
        time.sleep(0.05)


def _has_keys(store):
    return set(digits.KEYS) <= set(store.keys())


def _may_begin(store, num_workers):
    """Returns whether the keys exist, and all workers have joined. A worker that is started again
    does not wait for the others, which may have left."""
    if not _has_keys(store):
        return False
    joined = sum(not member.is_reader for member in store.members())
    return joined >= num_workers or store.version(digits.KEYS[0]) > 0


def main():
    options = _arguments()
    batches, tested = digits.load()
    name = f"worker-{options.index}"
    store = mx.kv.create(
        digits.KIND, member=name, timeout=options.timeout, divide_above=digits.DIVIDE_ABOVE
    )
    with store:
        # One worker sets the optimizer, before the keys exist. The others wait for the keys.
        if options.index == 0 and not _has_keys(store):
            store.set_optimizer(mx.optimizer.SGD(learning_rate=digits.LEARNING_RATE))
            store.init(digits.KEYS, digits.initial(), on_existing="keep")
        everyone = f"{options.workers} workers join"
        _wait_until(lambda: _may_begin(store, options.workers), everyone, options.timeout)
        before = digits.loss(digits.initial(), tested)
        digits.train(store, batches[options.index :: options.workers], options.epochs)
        # After the barrier, the store has the pushes of all workers.
        store.barrier()
        parameters = digits.pull(store)
        if options.checkpoint and options.index == 0:
            store.checkpoint_on_servers(options.checkpoint)
    loss = digits.loss(parameters, tested)
    print(
        f"worker {options.index} of {options.workers}: loss {before:.3f} to {loss:.3f}, "
        f"accuracy {digits.accuracy(parameters, tested):.3f}, "
        # One write, because all workers may share a terminal.
        f"weights {digits.digest(parameters)}\n",
        end="",
        flush=True,
    )


if __name__ == "__main__":
    main()
