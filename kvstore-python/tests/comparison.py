"""Compares the results of a program in MXNet and in this package."""

import math

import numpy
from mxnet_differences import AT_THE_END

#: Tolerance for sums in another order, in units of rounding of the program's largest number.
SUM_ROUNDINGS = 16
#: Tolerance for weights, in units of rounding of the weight or of 1, whichever is larger: a small
#: weight may be the difference of larger numbers.
STEP_ROUNDINGS = 32
#: Tolerance for the optimizers in `IN_FLOAT32`, relative to the same. MXNet subtracts their
#: hyper-parameters from 1 in float32. With 0.999, that alone is an error of 1e-5 of a step.
ADAM = 1e-4
IN_FLOAT32 = {"adam", "ftml"}


def differences(program, mxnet, here):
    """Yields every difference between the outcomes, as (step number, text). Step -1 creates the
    store.
    """
    steps = [{"op": "create", "difference": program.get("difference")}, *program["steps"]]
    scale = largest(program)
    for position, step in enumerate(steps):
        if position >= len(mxnet) or position >= len(here):
            if len(mxnet) != len(here):
                yield position - 1, f"MXNet answered {len(mxnet)} times, here it was {len(here)}"
            return
        found = difference(program, step, mxnet[position], here[position], scale)
        if found is not None:
            yield position - 1, found


def difference(program, step, mxnet, here, scale):
    """Returns a description of the difference between two outcomes of a step, or `None` if they
    agree or the difference is known.
    """
    kinds = kind(mxnet), kind(here)
    known = AT_THE_END.get(step.get("difference"))
    if known is not None:
        expected = (kinds[0] if known.mxnet == "either" else known.mxnet, known.here)
        return None if kinds == expected else f"expected {expected}, found {mxnet} and {here}"
    if "ends" in kinds[1] or ("works" in kinds and kinds != ("works", "works")):
        return f"MXNet {kinds[0]}: {mxnet}; here it {kinds[1]}: {here}"
    if "works" not in kinds:
        return None
    return of_results(program, step, mxnet["given"], here["given"], scale)


def kind(outcome):
    if "error" not in outcome:
        return "works"
    return "ends" if outcome["error"] == "the process ended" else "fails"


def of_results(program, step, mxnet, here, scale):
    if step["op"] == "updater_log":
        if program["int_keys"]:
            # MXNet orders integer keys by number, this package by the order of initialisation.
            mxnet, here = sorted(mxnet), sorted(here)
        return None if mxnet == here else f"MXNet {mxnet}, here {here}"
    if not isinstance(mxnet, list):
        return None if mxnet == here else f"MXNet {mxnet}, here {here}"
    if len(mxnet) != len(here):
        return f"MXNet gave {len(mxnet)} values, here it was {len(here)}"
    for position, (a, b) in enumerate(zip(mxnet, here)):
        if step["op"] == "pull" and "rows" in a and "rows" in b:
            # A pull into a row-sparse array omits rows of zeros in this package.
            a, b = without_zeros(a), without_zeros(b)
        found = of_values(program["rounding"], a, b, scale)
        if found is not None:
            return f"value {position}: {found}"
    return None


def without_zeros(value):
    width = len(value["data"]) // max(1, len(value["rows"]))
    parts = [value["data"][i * width : (i + 1) * width] for i in range(len(value["rows"]))]
    there = [(row, part) for row, part in zip(value["rows"], parts) if any(part)]
    data = [number for _, part in there for number in part]
    return {**value, "rows": [row for row, _ in there], "data": data}


def of_values(rounding, a, b, scale):
    if (a["shape"], a["dtype"]) != (b["shape"], b["dtype"]):
        return f"MXNet {a}, here {b}"
    if "rows" in a and a["rows"] != b["rows"]:
        return f"MXNet {a}, here {b}"
    for one, other in zip(a["data"], b["data"]):
        if not is_close(rounding, a["dtype"], one, other, scale):
            return f"MXNet {one!r}, here {other!r}: {a} and {b}"
    return None if len(a["data"]) == len(b["data"]) else f"MXNet {a}, here {b}"


def is_close(rounding, dtype, a, b, scale):
    """Returns whether two numbers agree within the accuracy of the program's arithmetic."""
    if a == b or (math.isnan(a) and math.isnan(b)):
        return True
    if rounding == "none" or not dtype.startswith("float"):
        return False
    unit = float(numpy.finfo(dtype).eps)
    if rounding == "sums":
        return abs(a - b) <= SUM_ROUNDINGS * unit * max(scale, abs(a))
    # MXNet's kernels convert hyper-parameters to float32 for weights of every dtype, and compute
    # some powers in float32.
    tolerance = STEP_ROUNDINGS * max(unit, float(numpy.finfo("float32").eps))
    if rounding in IN_FLOAT32:
        tolerance = max(tolerance, ADAM)
    return abs(a - b) <= tolerance * max(abs(a), 1)


def largest(program):
    """Returns the largest magnitude among the numbers that the program pushes or initialises."""
    numbers = [0.0]
    for step in program["steps"]:
        collect(step.get("values"), numbers)
    return max(numbers)


def collect(values, numbers):
    if isinstance(values, list):
        for one in values:
            collect(one, numbers)
    elif isinstance(values, dict):
        numbers += [abs(float(number)) for number in values["data"]]


def smallest(program, step, what, differences_of):
    """Returns the program without earlier steps that the difference does not need."""
    program = {**program, "steps": program["steps"][: step + 1]}
    for position in reversed(range(step)):
        left = program["steps"][:position] + program["steps"][position + 1 :]
        shorter = {**program, "steps": left}
        found = [text for number, text in differences_of(shorter) if number == len(left) - 1]
        if found and found[0].split()[:2] == what.split()[:2]:
            program = shorter
    return program
