"""Players in processes of their own: a library that ends its process takes nobody with it."""

import json
import pathlib
import subprocess
import tempfile
import threading

PLAYER = pathlib.Path(__file__).parent / "player.py"
#: Far more than a program takes: what has not answered by then never will.
SECONDS = 120

#: What became of a step that ended the process, or never came back.
DIED = {"error": "the process ended"}


class Worker:
    """A process that plays programs with one module, started again when it has ended."""

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
        """Returns what became of making the store and of each step, up to the one that ended the process."""
        outcomes = self.play_once(program)
        # What a program does to a process, it does again; what a machine that stands still does, it does not.
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
                # There is no store to call.
                break
        return outcomes

    def said(self):
        """Returns the end of what the processes have printed."""
        self.errors.seek(0, 2)
        self.errors.seek(max(0, self.errors.tell() - 2000))
        return self.errors.read().decode(errors="replace")
