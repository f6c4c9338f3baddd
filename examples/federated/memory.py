"""Measures the memory of a server while many clients push a large model to its rounds.

    python memory.py [CLIENTS [MEGABYTES [ROUNDS]]]    # 100 clients of 100 MB, 2 rounds

The clients are threads of one JVM (`Load.java`) that compute their values when the server asks for
them. Compares all bits of the result with a local weighted mean, and fails if the server needs more
than two models (the model and the sum of a round), 64 MiB, and 1 MiB for each client.
"""

import subprocess
import sys
import time
from pathlib import Path

import mxkv as mx
import numpy as np
from federated import SECONDS, Processes, java

MB = 1_000_000
#: The elements of the clients repeat after this number.
PERIOD = 4096
#: What the server may hold besides the model and the sum.
WINDOW, FOR_EACH_CLIENT = 64 << 20, 1 << 20


def peak_of(process):
    """Returns the largest resident memory of a process so far, in bytes."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def expected(num_clients, num_rounds):
    """Computes the first elements of the model after the rounds."""
    elements = np.arange(PERIOD, dtype=np.float32) / PERIOD
    weights = [1 + index % 3 for index in range(num_clients)]
    model = np.zeros(PERIOD, np.float32)
    for _ in range(num_rounds):
        total = elements * np.float32(weights[0])
        for weight in weights[1:]:
            total = total + elements * np.float32(weight)
        model = model - total / np.float32(sum(weights))
    return model


def measure(num_clients, num_bytes, num_rounds):
    """Returns the peak memory of the server before and after the rounds, and seconds per round."""
    num_elements = num_bytes // 4
    with Processes() as processes:
        address, server = processes.serve()
        empty = peak_of(server)
        store = mx.kv.create("dist_async", servers=address, reader=True)
        store.set_optimizer(mx.optimizer.SGD(learning_rate=1.0))
        store.init("model", np.zeros(num_elements, np.float32))
        with_model = peak_of(server)
        start = time.monotonic()
        command = [*java("-Xmx1g"), "example.Load", address, num_clients, num_elements, num_rounds]
        load = subprocess.run([str(one) for one in command], timeout=4 * SECONDS)
        seconds = (time.monotonic() - start) / num_rounds
        if load.returncode != 0:
            raise SystemExit(f"memory: the clients returned {load.returncode}")
        peak = peak_of(server)
        model = store.pull("model").asnumpy()
        pattern = expected(num_clients, num_rounds)
        if not (model == np.resize(pattern, num_elements)).all():
            raise SystemExit("memory: the model differs from a local weighted mean")
        store.close()
    return empty, with_model, peak, seconds


def main(num_clients="100", megabytes="100", num_rounds="2"):
    num_clients, num_bytes = int(num_clients), int(megabytes) * MB
    empty, with_model, peak, seconds = measure(num_clients, num_bytes, int(num_rounds))
    rows = [
        ("empty server", empty),
        ("server with the model", with_model),
        ("peak during the rounds", peak),
        ("one model", num_bytes),
        ("clients + 2 models", (num_clients + 2) * num_bytes),
    ]
    print(f"{num_clients} clients of {megabytes} MB, {seconds:.0f} s a round:")
    for text, size in rows:
        print(f"  {text}: {size / MB:.0f} MB")
    bound = empty + 2 * num_bytes + WINDOW + num_clients * FOR_EACH_CLIENT
    if peak > bound:
        raise SystemExit(f"memory: expected at most {bound / MB:.0f} MB, found {peak / MB:.0f} MB")


if __name__ == "__main__":
    main(*sys.argv[1:])
