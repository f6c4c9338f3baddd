"""The child process of test_failed_allocations.py: runs a case with each long allocation failing in turn.

The arguments are the name of a case and the preloaded library of tests/failing-malloc.
"""

import ctypes
import faulthandler
import gc
import sys
import threading

# Importing them registers their cases.
import allocation_cases_arrays  # noqa: F401
import allocation_cases_store  # noqa: F401
from allocation_cases import CASES

import mxkv as mx

#: No case has so many long allocations.
MOST = 1000


class Allocations:
    """The allocations of the calling thread."""

    def __init__(self, library):
        library = ctypes.CDLL(library)
        self.fail = library.kvstore_fail_allocations
        self.fail.argtypes, self.fail.restype = [ctypes.c_int64, ctypes.c_int], None
        self.stop = library.kvstore_stop_failing
        self.stop.argtypes, self.stop.restype = [], ctypes.c_int


def attempt(run, allocations, count, once):
    """Calls in a thread of its own, whose thread-local buffers are empty. The first `count` long allocations succeed.
    Returns whether one has failed, the result and what was raised.
    """
    outcome = []

    def call():
        result = raised = None
        allocations.fail(count, once)
        try:
            result = run()
        except BaseException as error:
            raised = error
        outcome.append((bool(allocations.stop()), result, raised))

    mx.runtime.trim()
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    return outcome.pop()


def fail_each(call, allocations, once):
    """Calls once per long allocation, which fails then. Returns the number of allocations."""
    for count in range(MOST):
        has_failed, result, raised = attempt(call.run, allocations, count, once)
        if raised is None:
            call.check_done(result)
            if not has_failed:
                return count
            # Other memory was enough.
            call.undo()
        elif has_failed and isinstance(raised, MemoryError):
            call.check_unchanged()
        else:
            raise raised
    raise AssertionError(f"more than {MOST} long allocations")


def main(name, library):
    faulthandler.enable()
    # A collection would run at another allocation each time.
    gc.disable()
    allocations = Allocations(library)
    call, counts = CASES[name](), []
    for once in (True, False):
        counts.append(fail_each(call, allocations, once))
        call.undo()
    print("allocations:", *counts)


if __name__ == "__main__":
    main(*sys.argv[1:])
