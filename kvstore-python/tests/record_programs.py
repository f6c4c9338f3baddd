"""Writes random programs with the results of this package, one program a line.

``record_programs.py NUMBER SEED`` plays NUMBER programs, the first one of seed SEED, and prints a JSON object for each:
``program``, and ``outcomes``, what became of making the store and of each step. The JVM's tests replay them
(``clojure/src/test/clojure/dev/kvstore/programs.clj``).
"""

import json
import math
import sys
import warnings

from player import outcomes
from random_programs import program

import mxkv as mx


def spelled(value):
    """Returns the value with numbers that JSON cannot hold as strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, list):
        return [spelled(one) for one in value]
    if isinstance(value, dict):
        return {name: spelled(one) for name, one in value.items()}
    return value


def main():
    number, seed = (int(argument) for argument in sys.argv[1:])
    # Programs pull rows into dense arrays on purpose.
    warnings.simplefilter("ignore")
    for one in range(seed, seed + number):
        made = program(one)
        record = {"program": made, "outcomes": spelled(list(outcomes(mx, made)))}
        print(json.dumps(record, allow_nan=False))


if __name__ == "__main__":
    main()
