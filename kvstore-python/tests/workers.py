"""Players in separate processes, so that a crash of a library does not end the tests."""

import json
import pathlib
import subprocess
import tempfile
import threading

PLAYER = pathlib.Path(__file__).parent / "player.py"
#: Far longer than a program takes. A process that has not answered by then hangs.
SECONDS = 120

#: The outcome of a step that ended its process or hung.
DIED = {"error": "the process ended"}


class Worker:
    """A process that plays programs with one module. It is restarted after it has ended."""

    def __init__(self, python, module):
        self.command = [str(python), str(PLAYER), module]
        self.process = None
        self.errors = tempfile.TemporaryFile()
        self.num_ended = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        self.errors.close()

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process.stdout.close()
            self.process = None

    def start(self):
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors
        )

    def play(self, program):
        """Returns the outcomes of creating the store and of each step, up to one that ended the
        process.
        """
        outcomes = self.play_once(program)
        # Repeat a program that ended its process. A crash repeats, a pause of the machine does not.
        return self.play_once(program) if DIED in outcomes else outcomes

    def play_once(self, program):
        if self.process is None:
            self.start()
        watch = threading.Timer(SECONDS, self.process.kill)
        watch.start()
        try:
            return self.outcomes(program)
        finally:
            watch.cancel()

    def outcomes(self, program):
        self.process.stdin.write(json.dumps(program).encode() + b"\n")
        self.process.stdin.flush()
        outcomes = []
        for _ in range(1 + len(program["steps"])):
            line = self.process.stdout.readline()
            if not line.endswith(b"\n"):
                self.stop()
                self.num_ended += 1
                return [*outcomes, DIED]
            outcomes.append(json.loads(line))
            if "error" in outcomes[0]:
                # The process has no store to call.
                break
        return outcomes

    def said(self):
        """Returns the last part of the output of the processes."""
        self.errors.seek(0, 2)
        self.errors.seek(max(0, self.errors.tell() - 2000))
        return self.errors.read().decode(errors="replace")
