"""Measures the load times of native libraries, interleaved.

    load.py LIBRARY.. [--rounds N]

Each load runs in a new process that has loaded the system's libraries. Prints the median and the
quartiles, and the ratio to the first library.
"""

import argparse
import statistics
import subprocess
import sys

LOAD = """
import _ctypes, sys, time
for name in ("libgcc_s.so.1", "libm.so.6", "libpthread.so.0", "libdl.so.2"):
    _ctypes.dlopen(name, 2)
start = time.perf_counter()
_ctypes.dlopen(sys.argv[1], 2)
print(time.perf_counter() - start)
"""


def milliseconds(library):
    command = [sys.executable, "-S", "-E", "-c", LOAD, library]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout) * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("libraries", nargs="+", metavar="LIBRARY", help="a path with a slash")
    parser.add_argument("--rounds", type=int, default=300)
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds: expected at least 2")
    times = {library: [] for library in options.libraries}
    for _ in range(options.rounds):
        for library, found in times.items():
            found.append(milliseconds(library))
    first = statistics.median(times[options.libraries[0]])
    for library, found in times.items():
        low, median, high = statistics.quantiles(found, n=4)
        print(f"{median:.3f} ms ({low:.3f} to {high:.3f}), {median / first:.2f}  {library}")


if __name__ == "__main__":
    main()
