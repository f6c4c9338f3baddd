"""Measures a push and a pull of 4 KiB on a server on loopback, from Rust, Python and Java, and from
Rust with observation: `make peers-languages`.

With observation, the server logs at the level `info`, its metrics are read once a second, and one
call of ten is in a trace that its caller records. "traced" is the same with all calls in a trace.

The programs run at the same time and take turns, so that all meet the same machine.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

# The most microseconds that a push and a pull may take more than from Rust.
BAR = 20
# The most that they may take with observation, as a multiple of the time without.
OBSERVED_BAR = 1.02
OBSERVED = "observed"
TRACED = "traced"
# Calls of one turn, and of the first one, in which the JVM compiles.
NUM_CALLS = 500
NUM_FIRST = 20_000


class Program:
    def __init__(self, name, command):
        self.name, self.times = name, []
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, text=True, **pipes)

    def measure(self, num_calls):
        """Returns the microseconds of a push and a pull."""
        print(num_calls, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline()) / num_calls * 1e6

    def end(self):
        self.process.stdin.close()
        self.process.wait(60)

    def kill(self):
        self.process.kill()
        self.process.wait()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="tests/peers, built")
    parser.add_argument("--server", required=True, help="the command `kvstore`")
    parser.add_argument("--python", required=True, help="a Python with the wheel")
    parser.add_argument("--jar", required=True, help="the jar")
    parser.add_argument("--output", type=Path, required=True, help="where the JSON goes")
    parser.add_argument("--rounds", type=int, default=61, help="turns of each program")
    return parser.parse_args()


@contextlib.contextmanager
def serving(command, *options):
    """Runs a server. Yields what it prints: the address of members and that of metrics."""
    words = [command, "serve", "--address", "127.0.0.1:0", *options]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        lines = [server.stdout.readline() for _ in range(2 if "--metrics" in options else 1)]
        yield [line.split()[-1] for line in lines]
    finally:
        server.terminate()
        server.wait(60)


@contextlib.contextmanager
def read_each_second(url):
    """Reads a page once a second. Fails if a page could not be read."""
    has_ended, pages = threading.Event(), []

    def read():
        while not has_ended.wait(1):
            with urllib.request.urlopen(url, timeout=10) as page:
                pages.append((page.status, len(page.read())))

    thread = threading.Thread(target=read)
    thread.start()
    yield
    has_ended.set()
    is_alive = thread.is_alive()
    thread.join()
    assert is_alive and pages and all(size > 1000 for _, size in pages), pages


def measure(options):
    """Returns the programs with their times."""
    here = Path(__file__).parent
    with contextlib.ExitStack() as stack:
        (address,) = stack.enter_context(serving(options.server))
        logging = ["--metrics", "127.0.0.1:0", "--log", "info"]
        observed, metrics = stack.enter_context(serving(options.server, *logging))
        programs = [
            Program("Rust", [options.program, "net-calls", address, "0"]),
            Program("Python", [options.python, str(here / "calls.py"), address]),
            Program("Java", ["java", "-cp", options.jar, str(here / "Calls.java"), address]),
            Program(OBSERVED, [options.program, "net-calls", observed, "10"]),
            Program(TRACED, [options.program, "net-calls", observed, "1"]),
        ]
        for program in programs:
            stack.callback(program.kill)
        for program in programs:
            program.measure(NUM_FIRST)
        with read_each_second(f"http://{metrics}/metrics"):
            for _ in range(options.rounds):
                for program in programs:
                    program.times.append(program.measure(NUM_CALLS))
        for program in programs:
            program.end()
    return programs


def main():
    options = arguments()
    programs = measure(options)
    rust = programs[0]
    rows, failures = [], []
    print("program        us   quartiles   more than Rust, us   quartiles     ratio   quartiles")
    for program in programs:
        pairs = list(zip(program.times, rust.times))
        us = statistics.quantiles(program.times, n=4)
        more = statistics.quantiles([own - other for own, other in pairs], n=4)
        ratio = statistics.quantiles([own / other for own, other in pairs], n=4)
        found = {"program": program.name, "us": us, "more_than_rust_us": more, "ratio": ratio}
        rows.append(found)
        print(
            f"{program.name:<10}{us[1]:7.1f}   {us[0]:.0f}-{us[2]:.0f}"
            f"{more[1]:17.1f}           {more[0]:.0f}-{more[2]:.0f}"
            f"{ratio[1]:13.3f}      {ratio[0]:.2f}-{ratio[2]:.2f}"
        )
        if program.name == OBSERVED and ratio[1] > OBSERVED_BAR:
            failures.append(f"{program.name}: {ratio[1]:.3f} of Rust, at most {OBSERVED_BAR}")
        elif program.name not in (OBSERVED, TRACED) and more[1] > BAR:
            failures.append(f"{program.name}: {more[1]:.1f} us more than Rust, at most {BAR}")
    options.output.write_text(json.dumps(rows, indent=1))
    print(*failures, sep="\n")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
