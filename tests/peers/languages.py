"""Measures a push and a pull of 4 KiB from Rust, Python and Java, on one server on loopback:
`make peers-languages`.

The programs run at the same time and take turns, so that all meet the same machine.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

# The most microseconds that a push and a pull may take more than from Rust.
BAR = 20
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


def main():
    options = arguments()
    server = subprocess.Popen(
        [options.server, "serve", "--address", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    )
    programs = []
    try:
        address = server.stdout.readline().removeprefix("listening on ").strip()
        here = Path(__file__).parent
        programs += [
            Program("Rust", [options.program, "net-calls", address]),
            Program("Python", [options.python, str(here / "calls.py"), address]),
            Program("Java", ["java", "-cp", options.jar, str(here / "Calls.java"), address]),
        ]
        for program in programs:
            program.measure(NUM_FIRST)
        for _ in range(options.rounds):
            for program in programs:
                program.times.append(program.measure(NUM_CALLS))
        for program in programs:
            program.end()
    finally:
        for program in programs:
            program.kill()
        server.terminate()
        server.wait(60)
    rust = programs[0]
    rows, failures = [], []
    print("language       us   quartiles   more than Rust, us   quartiles")
    for program in programs:
        more = [own - other for own, other in zip(program.times, rust.times)]
        found = statistics.quantiles(program.times, n=4), statistics.quantiles(more, n=4)
        rows.append({"language": program.name, "us": found[0], "more_than_rust_us": found[1]})
        print(
            f"{program.name:<10}{found[0][1]:7.1f}   {found[0][0]:.0f}-{found[0][2]:.0f}"
            f"{found[1][1]:17.1f}           {found[1][0]:.0f}-{found[1][2]:.0f}"
        )
        if found[1][1] > BAR:
            failures.append(f"{program.name}: {found[1][1]:.1f} us more than Rust, at most {BAR}")
    options.output.write_text(json.dumps(rows, indent=1))
    print(*failures, sep="\n")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
