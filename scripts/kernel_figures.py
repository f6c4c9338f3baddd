"""The figures of compiled kernels, their limits, and the page that lists them. `kernels.py` uses
it. `tests/packaging/test_kernels.py` tests it.
"""

import re
import textwrap
from collections import namedtuple

# The most blocks and threads of a multiprocessor. From the CUDA C++ Programming Guide, "Technical
# Specifications per Compute Capability".
Card = namedtuple("Card", "blocks threads")
CARDS = {
    "sm_70": Card(32, 2048),
    "sm_80": Card(32, 2048),
    "sm_90": Card(32, 2048),
    "sm_100": Card(32, 2048),
    "sm_120": Card(24, 1536),
}
# The threads of a block of our kernels. The registers of a multiprocessor, the same for all cards,
# and the unit in which a thread gets them.
BLOCK, REGISTERS, REGISTER_UNIT = 256, 65536, 8
# The limits are for multiprocessors with so many threads. Others get a share.
THREADS = 2048
# The assembler takes up to 0.2 s for a kernel if it runs alone, and 1 s on a busy machine. The
# limit finds code that grows without bound. Drivers without code for their GPU compile a kernel at
# its first call.
MOST_SECONDS = 10

# Kernels with the same limits: at least `blocks` run side by side on a multiprocessor, with at
# least `kib` KiB in flight, and `kib_outside` KiB outside of innermost loops. With `has_local`,
# they may use local memory. The page lists kernels with less than `goal` KiB.
Family = namedtuple(
    "Family",
    "name pattern blocks kib kib_outside goal has_local note",
    defaults=(0, None, False, ""),
)
FAMILIES = [
    Family("Sums", r"kv_sum_(f32|f64|8|32|64)", 4, 48, 48, 48),
    Family("Sums of 16 bits", r"kv_sum_(f16|bf16)", 4, 32, 32, 32),
    Family(
        "Sums of two, 16 bits", r"kv_pair_sum_\w+", 8, 64, 64, 32,
        note="with 32 KiB, an H200 reached 0.85 of the rate of a copy, with 64 KiB 1.00",
    ),
    Family(
        "Steps with noise, f32", r"kv_Sgld_f32", 3, 48, 24, 48,
        note="noise is computed in 64 bits, which takes registers; not measured on a card",
    ),
    Family("Steps with noise, 16 bits", r"kv_Sgld_b?f16", 3, 24, 16, 32, note="as for f32"),
    Family("Steps with noise, f64", r"kv_Sgld_f64", 2, 32, 16, note="as for f32"),
    Family(
        "Steps, f32", r"kv_[A-Z]\w*_f32", 4, 48, 40, 48,
        note="SGD with one gradient loads only 32 bytes for each thread, and an H200 reached 0.99"
        " of the rate of a copy with it",
    ),
    Family(
        "Steps, f64", r"kv_[A-Z]\w*_f64", 2, 32, 32,
        note="square roots and quotients of 64 bits take registers",
    ),
    Family(
        "Steps, 16 bits", r"kv_[A-Z]\w*_b?f16", 4, 32, 24, 32,
        note="SGD with one gradient loads only 24 bytes for each thread; not measured on a card",
    ),
    Family(
        "Norms", r"kv_measure_\w+_f(32|64)", 2, 32, 24,
        note="the first pass of LARS and LAMB; an H200 reached 0.60 and 0.69 in both passes",
    ),
    Family("Norms, 16 bits", r"kv_measure_\w+_b?f16", 2, 24, 16, note="as for f32"),
    Family(
        "Sums in pairs", r"kv_add_in_pairs", 3, 0, has_local=True,
        note="adds the norms of all blocks, in an array that it indexes with variables",
    ),
    Family("Broadcasts", r"kv_broadcast_\d+", 8, 32, 32, note="one value, written many times"),
    Family("Fills", r"kv_fill_\d+", 8, 0, note="load nothing"),
    Family(
        "Casts, functions of elements", r"kv_(cast|clip|unary|binary|any_zero)_\w+", 4, 6,
        note="a thread loads four elements at a time, each of at least one byte",
    ),
    Family("Codes: quantize", r"kv_quantize_\w+", 4, 32, 32),
    Family(
        "Codes: dequantize", r"kv_dequantize_\w+", 5, 5,
        note="16 values have 2 or 4 bytes of codes, so most bytes are stored",
    ),
    Family(
        "Sums of rows", r"kv_sum_rows_(f32|f64|32|64)", 4, 30, 16,
        note="a thread has two loads in flight, because most rows have one or two sources",
    ),
    Family("Sums of rows, 8 and 16 bits", r"kv_sum_rows_\w+", 5, 10, note="as for f32"),
    Family("Scatters of rows", r"kv_scatter_rows", 8, 32, 32),
    Family("Plans of rows", r"kv_(merge|count|list|locate)_rows|kv_(add|scan)_counts", 6, 16),
    Family("Steps of rows, f32", r"kv_rows_\w+_f32", 4, 32, 16),
    Family("Steps of rows, f64", r"kv_rows_\w+_f64", 2, 24, 16),
    Family("Steps of rows, 16 bits", r"kv_rows_\w+", 4, 16, 16),
    Family("Row-wise steps", r"kv_rowwise_\w+", 3, 16, 12),
    Family(
        "States of rows", r"kv_row_states_\w+", 4, 8, has_local=True,
        note="add squares in pairs, in an array that they index with variables",
    ),
    Family("Argmax", r"kv_argmax_\w+", 4, 64),
    Family("Random numbers", r"kv_(uniform|normal)_\w+", 6, 0, note="load nothing"),
    Family("Reductions: blocks", r"kv_reduce_blocks_\w+", 4, 52),
    Family(
        "Reductions", r"kv_reduce_\w+", 4, 0, note="one thread folds the results of the blocks"
    ),
    Family(
        "Transposes", r"kv_transpose_\d", 4, 20,
        note="a thread loads 16 elements of at least one byte",
    ),
    Family(
        "Strided copies", r"kv_(gather|scatter)_\d", 6, 1.5,
        note="a thread copies one element of at least one byte",
    ),
]


def family_of(kernel):
    """Returns the family of a kernel: the first one with its name."""
    for family in FAMILIES:
        if re.fullmatch(family.pattern, kernel):
            return family
    raise ValueError(f"{kernel}: FAMILIES in scripts/kernel_figures.py has no limits for it")


class Entry:
    """The figures of a kernel on a card. `usage` is from the assembler, `figures` from the code,
    or `None` if the card's code was not read.
    """

    def __init__(self, card, usage, figures):
        self.card, self.usage, self.figures = card, usage, figures
        self.blocks = resident_blocks(card, usage.registers)
        resident = self.blocks * BLOCK
        # The part of the limits that holds for this card.
        self.share = CARDS[card].threads / THREADS
        self.occupancy = round(100 * resident / CARDS[card].threads)
        # KiB in flight on a multiprocessor: outside of innermost loops, and the most.
        self.kib_outside = resident * figures.outside / 1024 if figures else None
        self.kib = resident * max(figures.outside, figures.inside) / 1024 if figures else None

    def faults(self, kernel):
        """Yields a message for each figure of the kernel that exceeds the limits of its family."""
        family, usage = family_of(kernel), self.usage
        found = f"{kernel} for {self.card}: found"
        if usage.spilt:
            yield f"{found} {usage.spilt} bytes of spilt registers, expected 0"
        if not family.has_local:
            if usage.local:
                yield f"{found} {usage.local} bytes of local memory, expected 0"
            if self.figures and self.figures.local_accesses:
                number = self.figures.local_accesses
                yield f"{found} {number} loads and stores of local memory, expected 0"
        blocks = int(family.blocks * self.share)
        if self.blocks < blocks:
            yield (
                f"{found} {self.blocks} blocks side by side on a multiprocessor, with"
                f" {usage.registers} registers for a thread, expected at least {blocks}"
            )
        limits = [
            ("in flight", self.kib, family.kib),
            ("in flight outside of loops", self.kib_outside, family.kib_outside),
        ]
        for place, kib, least in limits if self.figures else []:
            if kib < least * self.share:
                yield f"{found} {kib:g} KiB {place}, expected at least {least * self.share:g}"
        if usage.seconds > MOST_SECONDS:
            yield f"{found} {usage.seconds:.1f} s to compile, expected at most {MOST_SECONDS}"


def resident_blocks(card, registers):
    """Returns the number of blocks that a multiprocessor runs at a time. Registers and threads
    limit it, because no kernel has shared memory.
    """
    of_thread = -(-registers // REGISTER_UNIT) * REGISTER_UNIT
    most = CARDS[card]
    return min(REGISTERS // (of_thread * BLOCK), most.threads // BLOCK, most.blocks)


def joined(numbers):
    """Returns the numbers of all cards, or one number if all are equal."""
    texts = [f"{number:g}" for number in numbers]
    return texts[0] if len(set(texts)) == 1 else " ".join(texts)


def wrapped(text, indent=""):
    """Returns a paragraph with lines of up to 100 columns."""
    return textwrap.fill(text, 100, subsequent_indent=indent, break_on_hyphens=False) + "\n"


HEAD = """# Figures of the kernels

<!-- Generated from the code of the kernels by `make kernels`. Do not edit. -->

`make check` compares this page with the code (SASS) in `kvstore-cuda/compiled`, and checks the
limits. No kernel spills registers. A cell with four numbers is for {cards}.

- **Blocks** of {block} threads that run side by side on a multiprocessor. Registers limit them.
- **Occupancy**: their threads in percent of the most.
- **KiB in flight** on a multiprocessor: the bytes that a thread loads before it waits for the first
  of them, times the threads. **Outside**: without innermost loops, so with one gradient or up to
  three values. `bytes_ahead` in `scripts/sass.py` has the definition.

The goal is 48 KiB for sums and steps of f32, and 32 KiB for those of 16 bits. An H200 moves 32
bytes per nanosecond and multiprocessor, and a load takes some 700 ns, so it needs 22 KiB. On sm_120
the goal is three quarters, because a multiprocessor has 1536 threads instead of 2048.

{below}
## Limits

The least figures of each family, with its limits in parentheses. On sm_120 the limits are three
quarters, too. An H200 reached 0.94 to 1.01 of the rate of a copy with sums and steps of f32
([measurements](cuda.md#measured-on-an-h100-and-an-h200)).

| family | kernels | blocks | KiB in flight | outside |
|---|---|---|---|---|
"""


def page(kernels, cards, has_seconds=False):
    """Returns the page. `kernels` has for each kernel its entries for the cards. Compile times
    differ from run to run, so the checked page has none.
    """
    families = {family.name: [] for family in FAMILIES}
    below = []
    for kernel, entries in kernels.items():
        family = family_of(kernel)
        families[family.name].append(entries)
        if any(entry.kib < (family.goal or 0) * entry.share for entry in entries):
            below.append(f"`{kernel}` ({joined(entry.kib for entry in entries)})")
    below = wrapped(f"Below the goal: {', '.join(below) or 'no kernel'}.")
    lines = [HEAD.format(block=BLOCK, cards=", ".join(cards), below=below)]
    for family in FAMILIES:
        members = families[family.name]
        if not members:
            continue
        figures = []
        for figure in ["blocks", "kib", "kib_outside"]:
            least = [
                min(getattr(entries[n], figure) for entries in members)
                for n in range(len(cards))
            ]
            limit = getattr(family, figure)
            figures.append(f"{joined(least)} ({limit})" if limit else joined(least))
        lines.append(f"| {' | '.join([family.name, str(len(members)), *figures])} |\n")
    lines.append("\n")
    lines += [
        wrapped(f"- {family.name}: {family.note}.", "  ") for family in FAMILIES if family.note
    ]
    local = [
        f"`{kernel}` ({joined(entry.usage.local for entry in entries)})"
        for kernel, entries in kernels.items()
        if any(entry.usage.local for entry in entries)
    ]
    local = ", ".join(local) or "no kernel"
    lines += ["\n", wrapped(f"With local memory (bytes of a thread): {local}.")]
    columns = ["kernel", "registers", "blocks", "occupancy", "KiB in flight", "outside"]
    columns += ["ms to compile"] if has_seconds else []
    lines.append(f"\n## Kernels\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n")
    for kernel, entries in kernels.items():
        row = [
            f"`{kernel}`",
            joined(entry.usage.registers for entry in entries),
            joined(entry.blocks for entry in entries),
            joined(entry.occupancy for entry in entries),
            joined(entry.kib for entry in entries),
            joined(entry.kib_outside for entry in entries),
        ]
        if has_seconds:
            row.append(joined(round(1000 * entry.usage.seconds) for entry in entries))
        lines.append(f"| {' | '.join(row)} |\n")
    return "".join(lines)
