"""Checkpoints that a program does not wait for."""

import os
import signal
import subprocess
import sys
import textwrap

import children
import numpy
import pytest

import mxkv as mx

#: 64 MiB, so that writing takes longer than ending the program.
NUM_ELEMENTS = 16 << 20

BEGIN = f"""
import atexit, os, sys, threading
import numpy, mxkv as mx
kv = mx.kv.create()
kv.init('w', numpy.full({NUM_ELEMENTS}, 7, dtype='float32'))
path = sys.argv[1]
checkpoint = kv.checkpoint(path)
"""


def run(program, path, **options):
    """Runs a program that starts a checkpoint to a file."""
    return children.run(BEGIN + textwrap.dedent(program), path, **options)


def is_complete(path):
    kv = mx.kv.create()
    kv.restore(path)
    found = kv.pull("w").asnumpy()
    assert os.listdir(path.parent) == [path.name]
    return found.shape == (NUM_ELEMENTS,) and bool((found == 7).all())


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("", 0),
        ("del checkpoint", 0),
        ("del checkpoint, kv", 0),
        ("sys.exit(3)", 3),
        ("raise RuntimeError('over')", 1),
        (
            "begun = threading.Event()\n"
            "def save(): kv.checkpoint(path); begun.set(); threading.Event().wait()\n"
            "threading.Thread(target=save, daemon=True).start()\n"
            "begun.wait()",
            0,
        ),
        ("threading.Thread(target=kv.checkpoint, args=(path,)).start()", 0),
        ("threading.Thread(target=lambda: checkpoint.wait(), daemon=True).start()", 0),
        ("checkpoint = kv.snapshot().checkpoint(path)", 0),
        ("kv.close(); os._exit(0)", 0),
        ("with kv: pass\nos._exit(0)", 0),
        ("kv.close(); checkpoint.wait(); kv.close()", 0),
        ("checkpoint.wait(); kv.close()", 0),
    ],
)
def test_unawaited_checkpoint_is_complete(tmp_path, end, status):
    path = tmp_path / "model"
    done = run(end, path)
    assert done.returncode == status, done.stderr
    assert ("over" in done.stderr) if "over" in end else done.stderr == ""
    assert is_complete(path)


@pytest.mark.parametrize(
    ("end", "status", "expected"),
    [
        ("", 0, "Exception ignored in atexit callback"),
        ("del checkpoint, kv", 0, "Exception ignored in atexit callback"),
        ("sys.exit(3)", 3, "Exception ignored in atexit callback"),
        ("kv.close()", 1, "Traceback"),
        ("with kv: pass", 1, "Traceback"),
    ],
)
def test_unawaited_failure_is_reported(tmp_path, end, status, expected):
    path = tmp_path / "missing" / "model"
    done = run(end, path)
    assert done.returncode == status, done.stderr
    assert expected in done.stderr
    last = f"mxkv.errors.StoreIOError: {path}: writing: No such file or directory"
    assert done.stderr.count(last) == 1, done.stderr


def test_every_failed_checkpoint_is_reported_once(tmp_path):
    program = """
    other = kv.checkpoint(path + '2')
    try:
        checkpoint.wait()
    except OSError:
        pass
    third = kv.checkpoint(path + '3')
    try:
        kv.close()
    except OSError:
        pass
    """
    done = run(program, tmp_path / "missing" / "model")
    assert done.returncode == 0
    reported = [line for line in done.stderr.splitlines() if "StoreIOError" in line]
    # `close` has raised the error of `other`, and the program has caught it.
    assert len(reported) == 1 and "model3: writing: No such file" in reported[0], done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of file sizes on this system")
def test_a_full_disk_is_reported(tmp_path):
    import resource

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    done = run("", tmp_path / "model", preexec_fn=limit)
    assert done.returncode == 0
    assert "model: writing: File too large" in done.stderr, done.stderr
    assert os.listdir(tmp_path) == []


def _interrupted(process):
    """Sends SIGINT until the process ends, because the first signal may end another callback."""
    for _ in range(600):
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=0.1)[1]
        except subprocess.TimeoutExpired:
            pass
    raise AssertionError("the process continues")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_ctrl_c_ends_the_wait_at_exit(tmp_path):
    """The checkpoint is written to a full pipe without a reader, so writing never ends."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    program = "atexit.register(print, 'begins to end', flush=True)"
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", BEGIN + program, str(pipe)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        # `atexit` calls functions in reverse order of registration.
        assert process.stdout.readline() == "begins to end\n"
        errors = _interrupted(process)
    finally:
        process.kill()
        os.close(reader)
    assert "KeyboardInterrupt" in errors


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_ctrl_c_ends_wait_and_close(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    program = """
    import signal
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    for wait in [checkpoint.wait, kv.close]:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            wait()
        except KeyboardInterrupt:
            # `os._exit` does not flush.
            print('interrupted', flush=True)
    os._exit(0)
    """
    done = run(program, pipe)
    os.close(reader)
    assert (done.stdout, done.stderr) == ("interrupted\n" * 2, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_waits_for_its_own_checkpoints_only(tmp_path):
    program = """
    child = os.fork()
    if child == 0:
        try:
            checkpoint.wait()
        except mx.errors.InvalidArgumentError as error:
            assert 'not a forked child' in str(error), error
            print('not ours', flush=True)
        other = mx.kv.create()
        other.init('w', numpy.full(3, 7, dtype='float32'))
        # The parent is still writing to the same file.
        other.checkpoint(path)
        other.checkpoint(path + '.child')
        sys.exit(5)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    path = tmp_path / "model"
    done = run(program, path)
    assert (done.stdout, done.stderr, done.returncode) == ("not ours\n5\n", "", 0)
    kv = mx.kv.create()
    kv.restore(f"{path}.child")
    assert kv.pull("w").tolist() == [7, 7, 7]
    assert set(os.listdir(tmp_path)) == {"model", "model.child"}


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_child_of_multiprocessing_waits_for_its_checkpoints(tmp_path, method):
    import multiprocessing

    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} on this system")
    path = tmp_path / "model"
    process = multiprocessing.get_context(method).Process(target=save, args=(path,))
    process.start()
    process.join(120)
    assert process.exitcode == 0
    assert is_complete(path)


def save(path):
    kv = mx.kv.create()
    kv.init("w", numpy.full(NUM_ELEMENTS, 7, dtype="float32"))
    kv.checkpoint(path)


def test_a_failed_restore_names_the_cause(tmp_path):
    kv = mx.kv.create()
    with pytest.raises(
        mx.errors.StoreIOError, match="reading a checkpoint: No such file or directory"
    ):
        kv.restore(tmp_path / "missing")
    (tmp_path / "damaged").write_bytes(bytes(100))
    with pytest.raises(mx.errors.CorruptError, match="damaged is damaged: "):
        kv.restore(tmp_path / "damaged")
