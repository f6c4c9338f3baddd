"""Calls of one program in Python, which `languages.py` compares with those of other languages."""

import sys
import time

import numpy

import mxkv as mx


def main():
    kv = mx.kv.create("dist_async", servers=sys.argv[1])
    gradient = mx.nd.ones(1 << 10)
    pulled = mx.nd.zeros(1 << 10)
    if "w" not in kv:
        kv.init("w", numpy.ones(1 << 10, dtype="float32"))
    for line in sys.stdin:
        count = int(line)
        start = time.perf_counter()
        for _ in range(count):
            kv.push("w", gradient)
            kv.pull("w", out=pulled)
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
