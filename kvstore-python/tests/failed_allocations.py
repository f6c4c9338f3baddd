"""The child process of test_failed_allocations.py. It runs one case, and lets each long allocation
fail in turn.

The arguments are the name of a case and the preloaded library of tests/failing-malloc.
"""

import ctypes
import faulthandler
import gc
import os
import sys
import threading

# Importing these modules registers their cases.
import allocation_cases_arrays  # noqa: F401
import allocation_cases_store  # noqa: F401
from allocation_cases import CASES

import mxkv as mx

#: More than the number of long allocations of any case.
MOST = 1000
#: Each allocation would take long, so only `make nightly` lets each fail.
STEP = int(os.environ.get("KVSTORE_TEST_ALLOCATIONS", "3"))


class Allocations:
    """The functions that make allocations of the calling thread fail."""

    def __init__(self, library):
        library = ctypes.CDLL(library)
        self.fail = library.kvstore_fail_allocations
        self.fail.argtypes, self.fail.restype = [ctypes.c_int64, ctypes.c_int], None
        self.stop = library.kvstore_stop_failing
        self.stop.argtypes, self.stop.restype = [], ctypes.c_int


def attempt(run, allocations, count, once):
    """Runs a call in a new thread, whose thread-local buffers are empty. The first `count` long
    allocations succeed. Returns whether an allocation failed, the result and the exception.
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
    """Runs a call once for every `STEP`-th long allocation, which then fails. Returns the number of
    allocations, which is up to `STEP` - 1 too large.
    """
    for count in range(0, MOST, STEP):
        has_failed, result, raised = attempt(call.run, allocations, count, once)
        if raised is None:
            call.check_done(result)
            if not has_failed:
                return count
            # The call succeeded with other memory.
            call.undo()
        elif has_failed and isinstance(raised, MemoryError):
            call.check_unchanged()
        else:
            raise raised
    raise AssertionError(f"more than {MOST} long allocations")


def main(name, library):
    faulthandler.enable()
    # A collection would run at a different allocation each time.
    gc.disable()
    allocations = Allocations(library)
    call, counts = CASES[name](), []
    for once in (True, False):
        counts.append(fail_each(call, allocations, once))
        call.undo()
    print("allocations:", *counts)


if __name__ == "__main__":
    main(*sys.argv[1:])
