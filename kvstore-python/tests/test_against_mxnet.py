"""Runs the same random programs in MXNet 1.9.1 and in this package, and compares values and errors.

``KVSTORE_MXNET_PYTHON`` is the path of a Python with MXNet. ``scripts/mxnet-venv.sh`` creates one
and prints its path. ``KVSTORE_MXNET_PROGRAMS`` is the number of programs, and
``KVSTORE_MXNET_SEED`` the seed of the first program.
"""

import collections
import json
import os
import sys

import pytest
from comparison import differences, kind, smallest
from mxnet_differences import AT_THE_END, NOT_MADE
from player import Player, outcomes
from random_programs import SHARES, program
from workers import Worker

import mxkv as mx

NUM_PROGRAMS = int(os.environ.get("KVSTORE_MXNET_PROGRAMS", "300"))
SEED = int(os.environ.get("KVSTORE_MXNET_SEED", "0"))
#: The number of programs between two lines of progress.
PROGRAMS_PER_LINE = 1000
#: The number of differences that are reported in full. Further differences are only counted.
MOST_SHOWN = 5


class Comparison:
    """Runs programs on both sides, and collects their differences."""

    def __init__(self, mxnet, here):
        self.mxnet = mxnet
        self.here = here
        self.counts = collections.Counter()
        self.known = collections.Counter()
        self.found = []

    def differences_of(self, program):
        return list(differences(program, self.mxnet.play(program), self.here.play(program)))

    def compare(self, program):
        mxnet, here = self.mxnet.play(program), self.here.play(program)
        self.counts["programs"] += 1
        self.counts["calls"] += min(len(mxnet), len(here))
        self.counts["failed alike"] += sum(
            kind(a) != "works" and kind(b) != "works" for a, b in zip(mxnet, here)
        )
        steps = [program, *program["steps"]]
        self.known.update(step["difference"] for step in steps if "difference" in step)
        found = list(differences(program, mxnet, here))
        if found:
            self.found.append(self.told(program, *found[0]))

    def told(self, program, step, what):
        text = f"program {program['seed']}, step {step}: {what}"
        if len(self.found) >= MOST_SHOWN:
            return text
        shortest = smallest(program, step, what, self.differences_of)
        return f"{text}\n  shortest program: {json.dumps(shortest, ensure_ascii=False)}"


def test_random_programs(capsys):
    python = os.environ.get("KVSTORE_MXNET_PYTHON")
    if not python:
        pytest.skip("KVSTORE_MXNET_PYTHON is not set: scripts/mxnet-venv.sh installs MXNet")
    with Worker(python, "mxnet") as mxnet, Worker(sys.executable, "mxkv") as here:
        comparison = Comparison(mxnet, here)
        for done, number in enumerate(range(SEED, SEED + NUM_PROGRAMS)):
            comparison.compare(program(number))
            if done % PROGRAMS_PER_LINE == PROGRAMS_PER_LINE - 1:
                with capsys.disabled():
                    print(
                        f"\n{done + 1} of {NUM_PROGRAMS} programs, "
                        f"{len(comparison.found)} differences",
                        end="",
                    )
        counts, known = comparison.counts, comparison.known
        said = "\n".join([*comparison.found, "output of MXNet:", mxnet.said()])
        with capsys.disabled():
            print(
                f"\nagainst MXNet: {counts['programs']} programs from {SEED} on, "
                f"{counts['calls']} calls, "
                f"{counts['failed alike']} failed alike, {sum(known.values())} known differences, "
                f"{len(comparison.found)} others; "
                f"crashes of the processes: {mxnet.num_ended} and {here.num_ended}"
            )
            print(
                "    known:", ", ".join(f"{name} {count}" for name, count in sorted(known.items()))
            )
    assert not comparison.found, said
    # If every program failed on both sides, the comparison would prove nothing.
    assert 0 < counts["failed alike"] < counts["calls"] / 4


# The comparison itself: it must detect faults in this package.


def without_the_last(player, step):
    values = Player.values(player, step)
    return values[:-1] * 2 if isinstance(values, list) and len(values) == 2 else values


def forgiving_init(player, step):
    player.store.init(player.keys(step), player.values(step), on_existing="keep")


def other_option(name, factor):
    def set_optimizer(player, step):
        options = dict(step["kwargs"])
        if name in options and options[name]:
            options[name] = options[name] * factor
        Player.set_optimizer(player, {**step, "kwargs": options})

    return set_optimizer


def strict_push(player, step):
    if len(player.log) > 2:
        raise mx.KVStoreError("too many")
    Player.push(player, step)


FAULTS = {
    "a value that is lost": ("values", without_the_last),
    "a key that may be initialised twice": ("init", forgiving_init),
    "a learning rate off by a thousandth": ("set_optimizer", other_option("learning_rate", 1.001)),
    "a weight decay off by a tenth": ("set_optimizer", other_option("wd", 1.1)),
    "a momentum off by a hundredth": ("set_optimizer", other_option("momentum", 0.99)),
    "a call that fails": ("push", strict_push),
    "a log that forgets": ("updater_log", lambda player, step: []),
    "rows that are missing": ("row_ids", lambda player, numbers: numbers[:1]),
}


@pytest.mark.filterwarnings("ignore:pull leaves outputs of rows")
@pytest.mark.parametrize("fault", FAULTS)
def test_the_comparison_detects_faults(fault):
    faulty = type("Faulty", (Player,), dict([FAULTS[fault]]))
    noticed = ran = 0
    for number in range(150):
        made = program(number)
        made.pop("difference", None)
        made["steps"] = [step for step in made["steps"] if "difference" not in step]
        right = [json.loads(json.dumps(one)) for one in outcomes(mx, made)]
        assert not list(differences(made, right, right))
        wrong = list(outcomes(mx, made, faulty))
        noticed += any(differences(made, right, wrong))
        ran += 1
    print(f"{fault}: noticed in {noticed} of {ran} programs")
    assert noticed


def test_a_seed_determines_a_program():
    for number in range(20):
        assert program(number) == program(number)
        assert program(number) != program(number + sum(SHARES.values()))


def test_known_differences_have_a_reason():
    for name, difference in AT_THE_END.items():
        assert difference.mxnet in {"works", "fails", "either"}, name
        assert difference.here in {"works", "fails"}, name
        assert difference.why.endswith("."), name
    assert all(text.endswith(".") for text in NOT_MADE.values())
