"""Times PyTorch, CuPy and MXNet's sequence of operations on the cases of the bench. `run.sh` runs
it.

Reads the lines that `kvstore-gpu-bench --json` has written, and runs each case on values of the
same length, with the same number of warm-ups, groups and sets of buffers. PyTorch's operations
replace MXNet's copies and sums, because MXNet itself does not run on current GPUs.
"""

import argparse
import json
import statistics
import sys
import time

WARM_UP = 5
# The number of groups, the calls per group, and the seconds that a case may take.
FULL = (30, 12, 0.8)
SMALL = (3, 2, 0.1)
# The calls per group if only the host's time is measured.
QUEUED = 100
# The required speedup over the fastest of these peers.
BARS = {
    "adam_f32_8_values": (2.0, ("torch stack+sum, fused", "torch add chain, fused")),
    "small_keys_adamw": (1.5, ("torch fused", "torch foreach")),
}


class Sequence:
    """The pseudo-random numbers of the bench."""

    def __init__(self, seed):
        self.state = seed

    def below(self, end):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return (self.state >> 33) % end


def small_lengths(count):
    """Returns the lengths of the bench's small keys."""
    sequence, lengths = Sequence(1), []
    for _ in range(count):
        least = 64 << sequence.below(11)
        lengths.append(least + sequence.below(least))
    return lengths


class Timer:
    """Times calls. Queues all calls of a group, then waits once."""

    def __init__(self, synchronize, plan):
        self.synchronize = synchronize
        self.groups, self.per_group, self.at_most = plan

    def group(self, call, first, count, is_queued):
        start = time.perf_counter()
        for turn in range(first, first + count):
            call(turn)
        queued = time.perf_counter() - start
        self.synchronize()
        return (queued if is_queued else time.perf_counter() - start) / count

    def seconds(self, call, is_queued=False):
        """Returns the median over the groups of the seconds per call."""
        start = time.perf_counter()
        for turn in range(WARM_UP):
            once = self.group(call, turn, 1, False)
            if time.perf_counter() - start > self.at_most / 2:
                break
        per_group = QUEUED if is_queued else self.per_group
        affordable = int(self.at_most / max(once, 1e-9))
        per_group = max(1, min(per_group, affordable // self.groups))
        groups = max(3, min(self.groups, affordable // per_group))
        return statistics.median(
            self.group(call, WARM_UP + per_group * number, per_group, is_queued)
            for number in range(groups)
        )


class Peers:
    """The cases on PyTorch, and on CuPy if it is installed."""

    def __init__(self, torch, cupy, device, machine):
        self.torch, self.cupy, self.device = torch, cupy, device
        self.sets, self.rows, self.keys = machine["sets"], machine["rows"], machine["keys"]
        self.copy_bytes = machine["copy_bytes"]
        self.dtypes = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}

    def random(self, shape, dtype="f32"):
        """Returns an array of random numbers."""
        return self.torch.rand(shape, device=self.device).mul_(2).sub_(1).to(self.dtypes[dtype])

    def in_turn(self, make):
        """Returns a call that alternates between the calls that `make` returns."""
        calls = [make() for _ in range(self.sets)]
        return lambda turn: calls[turn % len(calls)]()

    def of(self, case):
        """Yields the name of each peer of a case, and a function that returns its call."""
        name, length, num_values = case["case"], case["len"], case["values"]
        parts = name.split("_")
        if name.startswith("sum_"):
            yield from self.sums(parts[1], length, num_values)
        elif name == "adam_f32_8_values":
            yield from self.sums_and_steps(length, num_values)
        elif name in ("copy", "copy_again"):
            yield "torch copy_", lambda: self.copy(self.copy_bytes // 4)
        elif name == "fill_f32":
            yield "torch fill_", lambda: self.in_turn(lambda: self.fill(length))
        elif name == "pull_into_8_parts":
            yield (
                "torch 8 copy_",
                lambda: self.in_turn(lambda: self.copies(length, num_values, False)),
            )
            yield (
                "torch _foreach_copy_",
                lambda: self.in_turn(lambda: self.copies(length, num_values, True)),
            )
        elif name.startswith("rows_"):
            yield from self.of_rows(name, num_values)
        elif name == "small_keys_adamw":
            lengths = small_lengths(self.keys)
            for kind in ("fused", "foreach"):
                yield f"torch {kind}", lambda kind=kind: self.steps("adamw", lengths, "f32", kind)
        elif name == "small_keys_sum_2":
            yield "torch _foreach_add", self.small_sums
        elif name == "one_key_sum_2":
            yield "torch add", lambda: self.chain("f32", length, 2)
        elif name == "one_key_sgd":
            yield "torch add, fused", lambda: self.added_step(length)
        elif len(parts) == 2 and parts[0] in self.optimizers() and parts[1] in self.dtypes:
            yield from self.optimizer(parts[0], parts[1], length)

    # Sums.

    def sums(self, dtype, length, num_values):
        for name, make in (
            ("torch stack+sum", self.stacked),
            ("torch add chain", self.chain),
            ("torch _foreach_add_", self.foreach),
            ("MXNet's sequence", self.staged),
        ):
            yield name, lambda make=make: self.in_turn(lambda: make(dtype, length, num_values))
        if self.cupy and dtype != "bf16":
            yield (
                "CuPy one kernel",
                lambda: self.in_turn(lambda: self.one_kernel(dtype, length, num_values)),
            )

    def values(self, dtype, length, num_values):
        return [self.random(length, dtype) for _ in range(num_values)]

    def stacked(self, dtype, length, num_values):
        torch, values = self.torch, self.values(dtype, length, num_values)
        return lambda *_: torch.sum(torch.stack(values), 0)

    def chain(self, dtype, length, num_values):
        values, out = self.values(dtype, length, num_values), self.random(length, dtype)

        def call(*_):
            self.torch.add(values[0], values[1], out=out)
            for value in values[2:]:
                out.add_(value)
            return out

        return call

    def foreach(self, dtype, length, num_values):
        values, out = self.values(dtype, length, num_values), self.random(length, dtype)

        def call(*_):
            out.copy_(values[0])
            for value in values[1:]:
                self.torch._foreach_add_([out], [value])
            return out

        return call

    def staged(self, dtype, length, num_values):
        """The sequence of MXNet's `device` store: copies each value to the device of the sum, even
        if it is already there, and adds. MXNet adds up to four values at once; this sequence adds
        one after the other."""
        values = self.values(dtype, length, num_values)
        staging, out = [value.clone() for value in values], self.random(length, dtype)

        def call(*_):
            for place, value in zip(staging, values):
                place.copy_(value)
            self.torch.add(staging[0], staging[1], out=out)
            for place in staging[2:]:
                out.add_(place)
            return out

        return call

    def one_kernel(self, dtype, length, num_values):
        """One kernel for a fixed number of values, as a user who knows the number would write
        it."""
        names = [f"v{number}" for number in range(num_values)]
        inputs, added = (
            ", ".join(f"T {name}" for name in names),
            " + ".join(f"(float){name}" for name in names),
        )
        kernel = self.cupy.ElementwiseKernel(
            inputs, "T out", f"out = (T)({added})", f"sum_{num_values}"
        )
        values = [self.cupy.asarray(value) for value in self.values(dtype, length, num_values)]
        out = self.cupy.empty_like(values[0])
        stream = self.cupy.cuda.ExternalStream(self.torch.cuda.current_stream().cuda_stream)

        def call(*_):
            with stream:
                kernel(*values, out)

        return call

    # Steps.

    def optimizers(self):
        """Returns PyTorch's classes and options by our names."""
        optim = self.torch.optim
        return {
            "sgd": (optim.SGD, {}),
            "momentum": (optim.SGD, {"momentum": 0.9}),
            "nag": (optim.SGD, {"momentum": 0.9, "nesterov": True}),
            "adam": (optim.Adam, {}),
            "adamw": (optim.AdamW, {}),
            "adagrad": (optim.Adagrad, {}),
            "rmsprop": (optim.RMSprop, {}),
            "adadelta": (optim.Adadelta, {}),
            "adamax": (optim.Adamax, {}),
            "nadam": (optim.NAdam, {}),
        }

    def made(self, name, lengths, dtype, kind):
        """Returns an optimizer with parameters of these lengths, and the parameters."""
        parameters = [self.torch.nn.Parameter(self.random(length, dtype)) for length in lengths]
        for parameter in parameters:
            parameter.grad = self.random(parameter.shape, dtype)
        made, options = self.optimizers()[name]
        return made(parameters, lr=1e-3, **options, **{kind: True}), parameters

    def steps(self, name, lengths, dtype, kind):
        optimizer, _ = self.made(name, lengths, dtype, kind)
        return lambda *_: optimizer.step()

    def optimizer(self, name, dtype, length):
        # The state of a half-precision weight is in half precision, too: fewer bytes than ours, and
        # fewer digits.
        note = "" if dtype == "f32" else ", state of halves"
        for kind in ("fused", "foreach"):
            yield (
                f"torch {kind}{note}",
                lambda kind=kind: self.in_turn(lambda: self.steps(name, [length], dtype, kind)),
            )
        if dtype != "f32":
            yield (
                "torch fused, master copy",
                lambda: self.in_turn(lambda: self.mastered(name, length, dtype)),
            )

    def mastered(self, name, length, dtype):
        """A step of half-precision weights with a master copy and states in `f32`, like ours."""
        optimizer, (master,) = self.made(name, [length], "f32", "fused")
        weight, gradient = self.random(length, dtype), self.random(length, dtype)

        def call(*_):
            master.grad.copy_(gradient)
            optimizer.step()
            weight.copy_(master.detach())

        return call

    def sums_and_steps(self, length, num_values):
        for name, make in (
            ("torch stack+sum, fused", self.stacked),
            ("torch add chain, fused", self.chain),
            ("MXNet's sequence, fused", self.staged),
        ):
            yield (
                name,
                lambda make=make: self.in_turn(lambda: self.summed_step(make, length, num_values)),
            )

    def summed_step(self, make, length, num_values):
        total = make("f32", length, num_values)
        optimizer, (parameter,) = self.made("adam", [length], "f32", "fused")

        def call():
            parameter.grad = total()
            optimizer.step()

        return call

    def added_step(self, length):
        total = self.chain("f32", length, 2)
        optimizer, (parameter,) = self.made("sgd", [length], "f32", "fused")

        def call(*_):
            parameter.grad = total()
            optimizer.step()

        return call

    # Copies and fills.

    def copy(self, length):
        source, targets = self.random(length), self.random((2, length))
        return lambda turn: targets[turn % 2].copy_(source)

    def fill(self, length):
        target = self.random(length)
        return lambda: target.fill_(0.5)

    def copies(self, length, num_values, is_foreach):
        source, targets = self.random(length), list(self.random((num_values, length)))
        if is_foreach:
            sources = [source] * num_values
            return lambda: self.torch._foreach_copy_(targets, sources)
        return lambda: [target.copy_(source) for target in targets]

    def small_sums(self):
        lengths = small_lengths(self.keys)
        ones, others = ([self.random(length) for length in lengths] for _ in range(2))
        return lambda *_: self.torch._foreach_add(ones, others)

    # Rows.

    def of_rows(self, name, num_values):
        torch, width = self.torch, 128
        batches = [self.ids(seed) for seed in range(4)]
        count = len(batches[0])
        table = lambda: self.random((self.rows, width))

        def total():
            values, ids = (
                [self.random((count, width)) for _ in range(num_values)],
                torch.cat(batches)[None],
            )
            shape = (self.rows, width)
            return lambda: torch.sparse_coo_tensor(
                ids, torch.cat(values), shape, check_invariants=False
            ).coalesce()

        def step():
            weight, values = table(), [self.random((count, width)) for _ in range(num_values)]
            return lambda: [
                weight.index_add_(0, ids, value, alpha=-0.01) for ids, value in zip(batches, values)
            ]

        def gather():
            weight = table()
            return lambda turn: torch.index_select(weight, 0, batches[turn % 4])

        def scatter():
            rows, shape = self.random((count, width)), (self.rows, width)
            return lambda turn: torch.zeros(shape, device=self.device).index_copy_(
                0, batches[turn % 4], rows
            )

        if name == "rows_sum_4":
            yield "torch sparse coalesce", lambda: self.in_turn(total)
        elif name == "rows_sgd_4":
            yield "torch index_add_", lambda: self.in_turn(step)
        elif name == "rows_gather":
            yield "torch index_select", gather
        elif name == "rows_scatter":
            yield "torch index_copy_", scatter

    def ids(self, seed):
        """Returns the row indices of the bench's value with this seed."""
        sequence = Sequence(seed)
        return self.torch.tensor(
            [first + sequence.below(8) for first in range(0, self.rows, 8)], device=self.device
        )


def read(path):
    """Returns the bench's machine and its cases."""
    with open(path) as file:
        lines = [json.loads(line) for line in file if line.strip()]
    return lines[0], [
        line for line in lines[1:] if line.get("len") or line.get("case", "").startswith("copy")
    ]


def row(case, peer, seconds):
    """Returns the result of a peer."""
    ours = case.get("ms")
    ratio = ours and seconds * 1e3 / ours
    rate = case["bytes"] / seconds / 1e9 if case.get("bytes") else None
    return {
        "case": case["case"], "peer": peer, "peer_ms": seconds * 1e3, "ours_ms": ours,
        "ratio": ratio,
        "bar": None, "ok": None, "peer_gb_per_s_of_our_bytes": rate,
    }  # fmt: skip


def judge(rows, is_judged):
    """Sets the bar of a case on the row of its fastest peer. Returns that row.

    Returns `None` if the case has no bar. Returns `None`, too, if a peer of the bar was not
    measured, because it may be the fastest."""
    bar, peers = BARS.get(rows[0]["case"], (None, ())) if rows else (None, ())
    measured = [found for found in rows if found["peer"] in peers and "error" not in found]
    if not peers or len(measured) < len(peers):
        return None
    fastest = min(measured, key=lambda found: found["peer_ms"])
    fastest["bar"] = bar
    fastest["ok"] = fastest["ratio"] >= bar if fastest["ratio"] and is_judged else None
    return fastest


def line(cells):
    return "{:<20} {:<30} {:>10} {:>10} {:>7} {:>5} {}".format(*cells).rstrip()


def shown(found):
    def text(value, digits):
        return "" if value is None else f"{value:.{digits}f}"

    verdict = {None: "", True: "ok", False: "missed"}[found["ok"]]
    ours, ratio = text(found["ours_ms"], 4), text(found["ratio"], 2)
    return line(
        [
            found["case"],
            found["peer"],
            ours,
            text(found["peer_ms"], 4),
            ratio,
            text(found["bar"], 1),
            verdict,
        ]
    )


def not_run(path, reason):
    print(f"peers: not run: {reason}")
    with open(path, "w") as file:
        json.dump({"not_run": reason}, file)
    return 127


def modules():
    """Returns PyTorch and CuPy, or `None` for each that is not installed."""
    found = []
    for name in ("torch", "cupy"):
        try:
            found.append(__import__(name))
        except Exception as error:  # a library that does not fit its driver fails in many ways
            print(f"no {name}: {type(error).__name__}: {error}")
            found.append(None)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bench", required=True, help="the lines of kvstore-gpu-bench")
    parser.add_argument("--json", required=True, help="where results go")
    parser.add_argument("--seconds", type=float, default=600, help="no case begins later")
    parser.add_argument(
        "--small",
        action="store_true",
        help="on the host where there is no CUDA; times mean nothing",
    )
    options = parser.parse_args()
    until = time.monotonic() + options.seconds
    try:
        machine, cases = read(options.bench)
    except (OSError, ValueError, IndexError) as error:
        return not_run(options.json, f"no lines of the bench: {error}")
    torch, cupy = modules()
    if torch is None:
        return not_run(options.json, "no PyTorch")
    has_cuda = torch.cuda.is_available()
    if not has_cuda and not options.small:
        return not_run(options.json, "PyTorch has no CUDA")
    device = "cuda" if has_cuda else "cpu"
    is_judged = has_cuda and not (machine["small"] or machine["emulated"])
    name = torch.cuda.get_device_name() if has_cuda else "the host"
    print(
        f"PyTorch {torch.__version__} on {name}"
        + ("" if is_judged else "; these numbers mean nothing")
    )
    peers = Peers(torch, cupy if has_cuda else None, device, machine)
    timer = Timer(
        torch.cuda.synchronize if has_cuda else lambda: None, FULL if is_judged else SMALL
    )
    rows = []
    print(line(["case", "peer", "ours ms", "peer ms", "ratio", "bar", ""]))
    for case in cases:
        first = len(rows)
        for peer, make in peers.of(case):
            if time.monotonic() > until:
                print(f"{case['case']:<20} {peer:<30} left out: the time is up")
                rows.append(
                    {"case": case["case"], "peer": peer, "error": "left out: the time is up"}
                )
                continue
            try:
                seconds = timer.seconds(make(), case["case"].startswith("one_key"))
                rows.append(row(case, peer, seconds))
                print(shown(rows[-1]), flush=True)
            except Exception as error:  # what one release has not, another has
                text = (str(error) or type(error).__name__).splitlines()[0]
                rows.append({"case": case["case"], "peer": peer, "error": text})
                print(f"{case['case']:<20} {peer:<30} not run: {text}", flush=True)
            if has_cuda:
                torch.cuda.empty_cache()
        fastest = judge(rows[first:], is_judged)
        if fastest:
            print(shown({**fastest, "peer": f"fastest: {fastest['peer']}"}), flush=True)
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
