"""Programs in child processes."""

import signal
import subprocess
import sys
import textwrap

# A shell's background jobs ignore SIGINT, and their children inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def run(program, *arguments, timeout=120, **options):
    """Runs a program and returns its status, output and errors."""
    # Newer Pythons warn about forks in programs with threads. These tests fork on purpose.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(program)]
    return subprocess.run(
        [*command, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        **options,
    )


def output(program, timeout=120):
    """Returns what a program prints. Fails if the program fails or writes to standard error."""
    done = run(program, timeout=timeout)
    # Pass a message, because pytest shows the values of assertions in test files only.
    assert (done.returncode, done.stderr) == (0, ""), f"{done.returncode}: {done.stderr}"
    return done.stdout
