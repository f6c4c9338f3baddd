"""Replays recorded runs of programs, optimizers, arrays and files, which all languages share.

Each test prints how many runs it has replayed. ``NOT_HERE`` has the data that Python cannot replay.
"""

import base64
import json
import math
import operator
import pathlib

import numpy
import pytest
from player import Player

import mxkv as mx

FILE = pathlib.Path(__file__).parents[2] / "tests" / "data" / "store_cases.json"
RECORDED = json.loads(FILE.read_text(encoding="utf-8"))
STORES = ["local", "device"]

#: Programs of these groups run only on the store that they name. Others run on every store.
AS_WRITTEN = {"types"}

#: The parts of the file that do not apply to Python, with the reasons.
NOT_HERE = {
    "gradient_compression_bytes": "codes of compressed values, which Python does not see",
    "optimizers of scala": (
        "formulas and defaults of MXNet's Scala, which the package does not offer"
    ),
    "dcasgd with momentum": "MXNet fails and changes nothing, here it works (docs/migration.md)",
}

#: Relative tolerances.
OPTIMIZERS, ELEMENTWISE, HALF = 2e-5, 1e-6, 1e-3


def number(recorded):
    """Converts the strings for NaN and infinities, which JSON lacks."""
    return float(recorded) if isinstance(recorded, str) else recorded


def flat(recorded):
    return (
        [one for part in recorded for one in flat(part)]
        if isinstance(recorded, list)
        else [recorded]
    )


def is_close(expected, found, tolerance=0.0):
    """Returns whether the numbers are equal, both NaN, or close."""
    expected = number(expected)
    if expected == found or (math.isnan(expected) and math.isnan(found)):
        return True
    return abs(expected - found) <= tolerance * abs(expected)


def difference(expected, found, tolerance=0.0):
    """Returns a description of the difference between two values, or `None`."""
    same = [expected[part] == found[part] for part in ("shape", "dtype")]
    pairs = list(zip(expected["data"], found["data"]))
    if all(same) and len(expected["data"]) == len(pairs) == len(found["data"]):
        if all(is_close(a, b, tolerance) for a, b in pairs):
            return None
    return f"expected {expected}, found {found}"


def step_failure(player, step, tolerance):
    """Runs a step. Returns how its result differs from the recorded result, or `None`."""
    code = step.get("expect_error")
    try:
        given = player.play(step)
    except mx.KVStoreError as error:
        return None if error.code == code else f"expected {code}, found {error.code}: {error}"
    if code is not None:
        return f"expected {code}, but it succeeded"
    expected = step.get("expect")
    if expected is None:
        return None
    if step["op"] in ("updater_log", "info"):
        return None if given == expected else f"expected {expected}, found {given}"
    values = flat(expected)
    if len(values) != len(given):
        return f"expected {len(values)} values, found {len(given)}"
    differences = [difference(a, b, tolerance) for a, b in zip(values, given)]
    return next(filter(None, differences), None)


def failure(case, store):
    """Runs a recorded program. Returns a description of the first failure, or `None`."""
    where = f"{case['name']} on `{store}`"
    try:
        player = Player(mx, store)
    except mx.KVStoreError as error:
        expected = case.get("create_error")
        return None if error.code == expected else f"{where}: {error}"
    if "create_error" in case:
        return f"{where}: it was created"
    for position, step in enumerate(case["ops"]):
        found = step_failure(player, step, case.get("rtol", 0.0))
        if found is not None:
            return f"{where}, step {position} ({step['op']}): {found}"
    return None


def report(capsys, what, ran, failures, left_out=()):
    with capsys.disabled():
        print(f"\nrecorded {what}: {ran} ran, {len(failures)} failed, {len(left_out)} not run")
        for one in left_out:
            print(f"    not run: {one}")
    assert not failures, "\n".join(failures)


def test_programs(capsys):
    ran, calls, failures = 0, 0, []
    for case in RECORDED["cases"]:
        for store in [case["store_type"]] if case["group"] in AS_WRITTEN else STORES:
            failures.append(failure(case, store))
            ran += 1
            calls += len(case["ops"])
    assert ran >= 8 + 285 * len(STORES), "programs are missing from the file"
    what = f"programs ({len(RECORDED['cases'])} on {' and '.join(STORES)}, {calls} calls)"
    report(capsys, what, ran, [one for one in failures if one])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda step: step["expect"]["data"].__setitem__(0, 0.125),
        lambda step: step["expect"].update(dtype="float64"),
        lambda step: step.update(expect_error="KeyNotFound"),
        lambda step: step.update(op="push", values=step.pop("expect"), expect_error="KeyExists"),
    ],
    ids=["value", "dtype", "error", "verb"],
)
def test_a_spoilt_program_fails(spoil):
    case = next(case for case in RECORDED["cases"] if case["name"] == "type_local")
    assert failure(case, "local") is None
    case = json.loads(json.dumps(case))
    spoil(case["ops"][-1])
    assert failure(case, "local") is not None


VERBS = sorted({step["op"] for case in RECORDED["cases"] for step in case["ops"]} - {"barrier"})


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_that_does_nothing_is_detected(verb, monkeypatch):
    monkeypatch.setattr(Player, verb, lambda player, step: [])
    assert any(failure(case, "local") for case in RECORDED["cases"])


# Optimizers and schedules.


def optimizer_failure(run, store):
    shape = RECORDED["optimizers"]["shape"]

    def array(numbers):
        return mx.nd.array(numpy.array(numbers).reshape(shape))

    kv, out = mx.kv.create(store), mx.nd.zeros(shape)
    kv.init(3, array(RECORDED["optimizers"]["weight0"]))
    kv.set_optimizer(mx.optimizer.create(run["optimizer"], **run["kwargs"]))
    for gradient, expected in zip(RECORDED["optimizers"]["grads"], run["weights"]):
        kv.push(3, array(gradient))
        kv.pull(3, out=out)
        found = out.asnumpy().ravel().tolist()
        if not all(is_close(a, b, OPTIMIZERS) for a, b in zip(expected, found)):
            return f"{run['optimizer']} {run['kwargs']}: expected {expected}, found {found}"
    return None


def test_optimizers(capsys):
    runs, left_out = [], []
    for run in RECORDED["optimizers"]["python"]:
        is_mended = run["optimizer"] == "dcasgd" and run["kwargs"].get("momentum")
        (left_out if is_mended else runs).append(run)
    assert (len(runs), len(left_out)) == (30, 1)
    left_out = [f"dcasgd {left_out[0]['kwargs']}: {NOT_HERE['dcasgd with momentum']}"]
    for run in RECORDED["optimizers"]["scala"]:
        left_out.append(f"{run['optimizer']}: {NOT_HERE['optimizers of scala']}")
    failures = [optimizer_failure(run, store) for run in runs for store in STORES]
    report(capsys, "optimizers", len(failures), [one for one in failures if one], left_out)


def test_schedule():
    run = RECORDED["lr_schedule"]["factor_step2_0.5_base0.1"]["python_effective_lr_per_update"]
    schedule = mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=0.1)
    assert [schedule(count) for count in range(1, len(run) + 1)] == pytest.approx(run, rel=1e-12)


# Row-sparse arrays.


def test_pulls_of_rows(capsys):
    failures, ran = [], 0
    for case in RECORDED["row_sparse_pull"]:
        for store in STORES:
            kv, shape = mx.kv.create(store), numpy.shape(case["stored"])
            every = numpy.arange(shape[0])
            kv.init("r", mx.nd.sparse.row_sparse_array((case["stored"], every), shape=shape))
            out = mx.nd.sparse.zeros("row_sparse", shape)
            kv.row_sparse_pull("r", out=out, row_ids=mx.nd.array(case["row_ids"], dtype="int64"))
            found = (out.indices.asnumpy().tolist(), out.asnumpy().tolist())
            ran += 1
            if found != (case["indices"], case["dense"]):
                failures.append(f"{case}: {found}")
    assert ran >= 3 * len(STORES)
    report(capsys, "pulls of rows", ran, failures)


# Arrays and their files.

BINARY = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "div": operator.truediv,
    "%": operator.mod,
    "**": operator.pow,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "equal": operator.eq,
    "not-equal": operator.ne,
    "maximum": mx.nd.maximum,
    "minimum": mx.nd.minimum,
    "dot": mx.nd.dot,
}
OTHER = {
    "t": lambda a: a.T,
    "max": lambda a: a.max(),
    "min": lambda a: a.min(),
    "mean": lambda a: a.mean(),
}
#: Operations whose last bit depends on the math library.
INEXACT = {"exp", "log", "sin", "cos", "rsqrt", "**", "sum", "mean", "norm", "dot"}


def operation_failure(case):
    def array(value):
        numbers = [number(one) for one in value["data"]]
        elements = numpy.array(numbers, dtype=value["dtype"]).reshape(value["shape"])
        return mx.nd.array(elements, dtype=value["dtype"])

    name, a = case["clj"], array(case["a"])
    if name == "as-type":
        result = a.astype(case["dtype"])
    elif name == "clip":
        result = mx.nd.clip(a, *case["args"])
    elif name in BINARY:
        result = BINARY[name](a, case["scalar"] if "scalar" in case else array(case["b"]))
    else:
        result = OTHER.get(name, getattr(mx.nd, name, None))(a)
    found = result.asnumpy()
    value = {"shape": list(found.shape), "dtype": found.dtype.name, "data": found.ravel().tolist()}
    tolerance = HALF if case["a"]["dtype"] == "float16" else ELEMENTWISE
    what = difference(case["expect"], value, tolerance if name in INEXACT else 0.0)
    return what and f"{name} of {case['a']['dtype']}: {what}"


def test_operations_on_arrays(capsys):
    cases = RECORDED["ndarray_ops"]
    assert len(cases) >= 376, "operations are missing from the file"
    failures = [operation_failure(case) for case in cases]
    report(capsys, "operations", len(cases), [one for one in failures if one])


def facts(array):
    return [array.dtype.name, list(array.shape), str(array.context), array.asnumpy().tolist()]


def test_files_of_arrays(capsys, tmp_path):
    failures = []
    for case in RECORDED["ndarray_files"]:
        file = tmp_path / case["name"]
        file.write_bytes(base64.b64decode(case["base64"]))
        loaded = mx.nd.load(file)
        if isinstance(loaded, dict):
            found = {name: facts(array) for name, array in loaded.items()}
        else:
            found = [facts(array) for array in loaded]
        if found != case["expect"]:
            failures.append(f"{case['name']}: expected {case['expect']}, found {found}")
    assert len(RECORDED["ndarray_files"]) >= 8
    report(capsys, "files of arrays", len(RECORDED["ndarray_files"]), failures)


def test_every_part_of_the_file_is_covered(capsys):
    here = {"cases", "optimizers", "lr_schedule", "row_sparse_pull", "ndarray_ops", "ndarray_files"}
    left_out = set(RECORDED) - here - {"about"}
    assert left_out == {name for name in NOT_HERE if name in RECORDED}
    report(capsys, "in other forms", 0, [], [f"{name}: {NOT_HERE[name]}" for name in left_out])
