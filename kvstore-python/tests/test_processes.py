"""Threads at the end of the interpreter. Forks are in test_forks.py."""

import os
import sys

import pytest
from children import output
from test_threads import Verbs

#: The number of processes in each test. Chance decides what a thread does when the process ends.
RUNS = int(os.environ.get("KVSTORE_TEST_PROCESSES", "3"))


def test_a_process_ends_with_live_objects_and_threads():
    program = """
    import threading
    import numpy, mxkv as mx
    kv = mx.kv.create()
    kv.init('w', numpy.ones(100_000, dtype='float32'))
    kv.set_updater(lambda key, pushed, stored: stored.__iadd__(pushed))
    capsule = kv.pull('w').__dlpack__(max_version=(1, 0))
    view = numpy.asarray(kv.pull('w'))
    def push():
        while True:
            kv.push('w', view)
    threading.Thread(target=push, daemon=True).start()
    """
    for _ in range(RUNS):
        assert output(program) == ""


@pytest.mark.parametrize("waiting", ["updater", "updater that prints", "value"])
def test_a_process_ends_while_a_thread_waits_in_code_that_a_verb_calls(waiting):
    program = f"""
    import os, sys, threading, time
    import numpy, mxkv as mx
    class Value:
        def __dlpack__(self, **options):
            time.sleep(0.001)
            return numpy.ones(2, dtype='float32').__dlpack__()
    def update(key, pushed, stored):
        if {waiting!r} == 'updater':
            time.sleep(0.001)
        else:
            # Python aborts if a daemon thread holds the lock of a buffered file at the end.
            os.write(1, b'.')
    kv = mx.kv.create()
    kv.init('w', mx.nd.ones(2))
    if {waiting!r}.startswith('updater'):
        kv.set_updater(update)
    def push():
        while True:
            kv.push('w', Value() if {waiting!r} == 'value' else mx.nd.ones(2))
    for _ in range(3):
        threading.Thread(target=push, daemon=True).start()
    time.sleep(0.05)
    """
    for _ in range(RUNS):
        assert set(output(program)) <= {"."}


@pytest.mark.parametrize(
    "call",
    [
        "array.context",
        "repr(array)",
        "array.astype(numpy.float64)",
        "kv.push(Map(a=array))",
        "kv.push(Number(), array)",
        "kv.stats()",
        "kv.pull(0)",
        "kv.push('b', array)",
    ],
)
def test_a_process_ends_while_threads_call_the_package(call):
    program = f"""
    import collections, sys, threading, time
    import numpy, mxkv as mx
    class Map(collections.UserDict):
        def __getitem__(self, key):
            time.sleep(0.0001)
            return super().__getitem__(key)
    class Number:
        def __index__(self):
            time.sleep(0.0001)
            return 0
    array, kv = mx.nd.ones(3), mx.kv.create()
    kv.init('a' if 'Map' in {call!r} else 0, array)
    def work():
        while True:
            try:
                {call}
            except (KeyError, TypeError):
                pass
    for _ in range(4):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(0.05)
    """
    for _ in range(RUNS):
        assert output(program) == ""


#: Code that a verb runs, and the verb. Python terminates a thread in the same way if the thread
#: acquires the GIL after the interpreter has ended.
ENDINGS = {
    "updater": "kv.set_updater(lambda *_: end()); kv.push(0, array)",
    "attribute": "nd.from_dlpack(Computed())",
    "method": "nd.from_dlpack(Array())",
    "class": "nd.from_dlpack(Unhashable())",
    "sequence": "nd.zeros(Sequence())",
    "index": "kv.pull(Number())",
}


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc unwinds a thread that ends")
@pytest.mark.parametrize("call", [pytest.param(call, id=name) for name, call in ENDINGS.items()])
def test_a_thread_that_ends_in_code_that_a_verb_calls_is_not_unwound(call):
    program = f"""
    import collections.abc, ctypes, threading
    import numpy, mxkv as mx
    from mxkv import nd
    pthread_exit = ctypes.CDLL(None).pthread_exit
    pthread_exit.argtypes = [ctypes.c_void_p]
    begun = threading.Event()
    def end():
        begun.set()
        pthread_exit(None)
    class Computed:
        @property
        def __array_interface__(self):
            end()
    class Array:
        def __dlpack__(self, **options):
            end()
    class Meta(type):
        def __hash__(self):
            end()
    class Unhashable(metaclass=Meta):
        def __dlpack__(self, **options):
            pass
    class Sequence(collections.abc.Sequence):
        def __len__(self):
            return 1
        def __getitem__(self, index):
            end()
    class Number:
        def __index__(self):
            end()
    array, kv = nd.ones(3), mx.kv.create()
    kv.init(0, array)
    def work():
        {call}
    threading.Thread(target=work, daemon=True).start()
    assert begun.wait(60)
    # The thread keeps the locks of the store, but not the GIL.
    assert nd.ones(3).sum().asscalar() == 3
    """
    for _ in range(RUNS):
        assert output(program) == ""


#: Calls by name. `array` is an `NDArray`, `of_numpy` a NumPy copy of it, `file` its file.
ARRAYS = {
    "to NumPy": "array.asnumpy()",
    "view": "numpy.asarray(array)",
    "into NumPy's": "numpy.copyto(of_numpy, array)",
    "from NumPy": "nd.array(of_numpy)",
    "view of NumPy's": "nd.from_numpy(of_numpy)",
    "to DLPack": "array.__dlpack__()",
    "copy to DLPack": "array.__dlpack__(copy=True)",
    "from DLPack": "nd.from_dlpack(of_numpy)",
    "from DLPack and back": "numpy.asarray(nd.from_dlpack(of_numpy))",
    "sum": "array.sum().asscalar()",
    "in place": "array.__iadd__(1)",
    "copy": "array.copyto(nd.zeros(array.shape))",
    "pickle": "pickle.loads(pickle.dumps(array))",
    "serialize": "array.serialize()",
    "random": "nd.random.uniform(0, 1, 100_000)",
    "save": "nd.save(file, [array])",
    "load": "nd.load(file)",
}

VERBS = [name for name in vars(Verbs) if not name.startswith("_")]


@pytest.mark.parametrize(
    "call",
    [pytest.param(f"getattr(verbs, {name!r})()()", id=name) for name in VERBS]
    + [pytest.param(call, id=name) for name, call in ARRAYS.items()],
)
def test_a_process_ends_inside_every_verb(call, tmp_path):
    program = f"""
    import pickle, sys, threading
    import numpy, mxkv as mx
    from mxkv import nd
    sys.path.insert(0, {os.path.dirname(__file__)!r})
    from pathlib import Path
    from test_threads import Verbs
    failures, begun = [], threading.Semaphore(0)
    def work(number):
        folder = Path({str(tmp_path)!r}, str(number))
        folder.mkdir()
        verbs, array, file = Verbs(folder), nd.ones((2, 100_000)), str(folder / 'file')
        of_numpy = array.asnumpy()
        nd.save(file, [array])
        while True:
            try:
                {call}
            except Exception as error:
                failures.append(error)
            begun.release()
    for number in range(3):
        threading.Thread(target=work, args=(number,), daemon=True).start()
    for _ in range(6):
        assert begun.acquire(timeout=60)
    assert not failures, failures
    """
    assert output(program) == ""


def test_each_module_can_be_imported_alone():
    names = "mxkv.np mxkv.npx mxkv.kv mxkv.nd mxkv.optimizer mxkv.errors mxkv.runtime mxkv.sparse"
    for name in names.split():
        assert output(f"import {name}; print({name}.__name__)") == f"{name}\n"


# Limits the address space to its current size plus `room`. Each call needs at least 160 MB.
LIMITED = """
import resource, numpy, mxkv as mx
def limit(room=50_000_000):
    used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + room, resource.RLIM_INFINITY))
length = 20_000_000
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the address space")
@pytest.mark.parametrize(
    "prepare, call",
    [
        ("wide = numpy.empty((length, 2), 'float64')", "mx.nd.array(wide[:, 0])"),
        (
            "kv = mx.kv.create(); kv.init('w', mx.nd.zeros(2)); "
            "wide = numpy.empty((length, 2), 'float64')",
            "kv.init('v', wide[:, 0])",
        ),
        ("a = mx.nd.ones(length, dtype='float64')", "a.__dlpack__(copy=True)"),
        ("a = mx.nd.ones(length, dtype='float64')", "a.asnumpy()"),
        ("a = mx.nd.ones(length, dtype='float64')", "a + 1"),
    ],
)
def test_a_call_without_memory_raises_a_memory_error(prepare, call):
    program = f"""
{LIMITED}
mx.nd.ones(2).asnumpy()
{prepare}
limit()
try:
    {call}
    print('there was memory')
except MemoryError:
    print('MemoryError')
print(mx.nd.ones(2).asnumpy().sum())
"""
    assert output(program) == "MemoryError\n2.0\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the address space")
def test_serialize_without_memory_raises_a_memory_error():
    program = f"""
{LIMITED}
a = mx.nd.ones(length, dtype='float64')
limit(250_000_000)
try:
    a.serialize()
    print('there was memory')
except MemoryError:
    print('MemoryError')
"""
    assert output(program) == "MemoryError\n"
