"""Records random programs and their results, one JSON object per line.

``record_programs.py NUMBER SEED`` plays NUMBER programs, starting with seed SEED. Each object has
``program``, and ``outcomes``: one for creating the store and one per step. ``programs.clj`` replays
them.
"""

import json
import math
import sys
import warnings

from player import outcomes
from random_programs import program

import mxkv as mx


def spelled(value):
    """Replaces numbers that JSON does not support by strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, list):
        return [spelled(one) for one in value]
    if isinstance(value, dict):
        return {name: spelled(one) for name, one in value.items()}
    return value


def main():
    number, seed = (int(argument) for argument in sys.argv[1:])
    # The programs pull row-sparse values into dense arrays on purpose, which gives warnings.
    warnings.simplefilter("ignore")
    for one in range(seed, seed + number):
        made = program(one)
        record = {"program": made, "outcomes": spelled(list(outcomes(mx, made)))}
        print(json.dumps(record, allow_nan=False))


if __name__ == "__main__":
    main()
