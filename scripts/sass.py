"""Reads the code of kernels (SASS), as nvdisasm lists it, and finds the bytes that a thread loads
before it waits. `kernels.py` uses it. `tests/packaging/test_kernels.py` tests it with recorded
listings.
"""

import re
import struct
import subprocess
import tempfile
from collections import namedtuple
from functools import lru_cache
from pathlib import Path

# What the code of a kernel shows: the number of accesses to local memory, and the bytes that
# `Code.bytes_ahead` returns outside and inside of innermost loops.
Figures = namedtuple("Figures", "local_accesses outside inside")
# `reads` and `writes` are sets of registers, as bits. `loaded` is the number of bytes of a load
# from global memory, else 0. `target` is the address of a jump, else `None`.
Instruction = namedtuple("Instruction", "name reads writes is_conditional loaded target")

# The bytes of an instruction.
INSTRUCTION = 16
LINE = re.compile(r"/\*([0-9a-f]{4,})\*/ +(.*?) *;")
# General registers and predicates. Uniform registers are the same in all threads of a warp.
REGISTER = re.compile(r"(?<!\w)([RP])(\d+)(?!\w)")
PREDICATE = re.compile(r"U?P[0-9T]")
FIRST_BIT = {"R": 0, "P": 256}
# Represents the index of the thread. No instruction writes it.
THREAD = 1 << 300
WRITES_NOTHING = set(
    "ST STG STL BRA BRX BRXU CALL RET EXIT BSSY BSYNC BREAK NOP BAR BPT MEMBAR CCTL RED DEPBAR"
    " WARPSYNC YIELD".split()
)
# The number of predicates that they write.
COMPARISONS = {"ISETP": 2, "FSETP": 2, "DSETP": 2, "HSETP2": 2, "PLOP3": 2, "FCHK": 1}
# Instructions with a result of two registers.
LONG = {"DADD", "DMUL", "DFMA", "CS2R"}
# The next instruction is not executed after them, unless they are conditional.
JUMPS = {"BRA", "BRX", "BRXU", "RET", "EXIT"}
# The bytes of a load with this option. Without one, it loads 4 bytes.
LOADED = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}
# A load of so many bytes has several elements, or one of the largest.
VECTOR = 8


def sections(module):
    """Yields the name and the code of each kernel of a module, which is an ELF file."""
    (table,) = struct.unpack_from("<Q", module, 0x28)
    size, count, index_of_names = struct.unpack_from("<HHH", module, 0x3A)
    headers = [struct.unpack_from("<II4Q", module, table + size * n) for n in range(count)]
    names = headers[index_of_names][4]
    for name, _, _, _, offset, length in headers:
        section = module[names + name : module.index(b"\0", names + name)].decode()
        if section.startswith(".text."):
            yield section.removeprefix(".text."), module[offset : offset + length]


def disassemble(nvdisasm, card, modules):
    """Returns the figures of each kernel. One process reads the code of all modules, because each
    process takes 0.3 s to start.
    """
    kernels = [kernel for module in modules for kernel in sections(module)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "code"
        path.write_bytes(b"".join(code for _, code in kernels))
        command = [nvdisasm, "--no-dataflow", "--binary", card.replace("sm_", "SM"), path]
        listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return split(listing, [(name, len(code)) for name, code in kernels])


def split(listing, lengths):
    """Returns the figures of each kernel in a listing. `lengths` has their names, and the lengths
    of their code in bytes.
    """
    found, end = {}, 0
    lines = iter(LINE.findall(listing))
    line = next(lines, None)
    for kernel, length in lengths:
        end += length
        code = {}
        while line is not None and int(line[0], 16) < end:
            code[int(line[0], 16)] = parse(line[1])
            line = next(lines, None)
        if len(code) * INSTRUCTION != length:
            listed = len(code) * INSTRUCTION
            raise ValueError(f"{kernel}: found a listing of {listed} bytes, expected {length}")
        found[kernel] = Code(code).figures()
    return found


def registers(text, count=1):
    """Returns the set of registers that a text names, each as the first one of `count` registers. A
    value of several registers has the name of the first one. Results need all of them. For
    operands, the first one is enough, because an instruction that uses a part names it.
    """
    found = 0
    for kind, number in REGISTER.findall(text):
        found |= ((1 << (count if kind == "R" else 1)) - 1) << (FIRST_BIT[kind] + int(number))
    return found


def length_of_result(name, options, loaded):
    """Returns the number of registers of an instruction's result."""
    if loaded:
        return max(loaded // 4, 1)
    if "128" in options:
        return 4
    is_long = {
        "F2F": options[:1] == ["F64"],
        "F2I": "U64" in options or "S64" in options,
        "I2F": "F64" in options,
        "FRND": "F64" in options,
        "IMNMX": "U64" in options or "S64" in options,
    }.get(name, name in LONG or "64" in options or "WIDE" in options)
    return 2 if is_long else 1


@lru_cache(maxsize=None)
def parse(text):
    """Returns an instruction: `@!P0 LDG.E.64 R2, desc[UR4][R2.64]`."""
    guard, opcode, operands = re.fullmatch(r"(?:@!?(\w+) +)?(\S+) *(.*)", text).groups()
    name, *options = opcode.split(".")
    operands = operands.split(", ")
    loaded = 0
    if name in ("LD", "LDG"):
        loaded = next((LOADED[option] for option in options if option in LOADED), 4)
    # The results are the first operand, and predicates before and after it.
    results = COMPARISONS.get(name, 0)
    if not results and name not in WRITES_NOTHING:
        are_predicates = [PREDICATE.fullmatch(operand) is not None for operand in operands]
        results = [*are_predicates, False].index(False) + 1
        results += [*are_predicates[results:], False].index(False)
    reads = registers(" ".join(operands[results:]))
    if guard and not loaded:
        # The address of a load does not depend on its condition.
        reads |= registers(guard)
    if "SR_TID" in text or "SR_LANEID" in text:
        reads |= THREAD
    target = re.fullmatch("0x([0-9a-f]+)", operands[-1]) if name in ("BRA", "CALL") else None
    return Instruction(
        name,
        reads,
        registers(" ".join(operands[:results]), length_of_result(name, options, loaded)),
        guard is not None or (name == "BRA" and len(operands) > 1),
        loaded,
        int(target[1], 16) if target else None,
    )


class Block:
    """Instructions that only the first one can be jumped to, and only the last one can jump."""

    def __init__(self, begin, end):
        self.begin, self.end = begin, end
        # The numbers of the blocks that may be executed after and before this one.
        self.after, self.before = [], []

    def positions(self):
        return range(self.begin, self.end)


class Code:
    """The instructions of a kernel, in blocks."""

    def __init__(self, code):
        """`code` has the instructions by their addresses."""
        self.listed = list(code.values())
        self.position = {address: n for n, address in enumerate(code)}
        # The assembler also writes a jump as a call of code that does not return.
        for n, one in enumerate(self.listed):
            if one.name == "CALL" and not self.called(one):
                self.listed[n] = one._replace(name="BRA")
        self.blocks = self.divided()
        self.loops = self.innermost_loops()

    def figures(self):
        local = sum(one.name in ("LDL", "STL") for one in self.listed)
        return Figures(local, *self.bytes_ahead())

    def called(self, call):
        """Returns the instructions of a called function, or nothing if it does not return."""
        function = []
        for one in self.listed[self.position.get(call.target, len(self.listed)) :]:
            function.append(one)
            if one.name == "RET":
                return function
            if one.name == "EXIT":
                break
        return []

    def divided(self):
        """Returns the blocks."""
        listed, position = self.listed, self.position
        ends = [n + 1 for n, one in enumerate(listed) if one.name in JUMPS or one.name == "CALL"]
        targets = [position[one.target] for one in listed if one.target in position]
        begins = sorted({0, *targets, *ends} - {len(listed)})
        blocks = [Block(*limits) for limits in zip(begins, [*begins[1:], len(listed)])]
        number = {block.begin: n for n, block in enumerate(blocks)}
        for block in blocks:
            last = listed[block.end - 1]
            if last.target in position:
                block.after.append(number[position[last.target]])
            if (last.name not in JUMPS or last.is_conditional) and block.end in number:
                block.after.append(number[block.end])
        # Where jumps with a table lead: to the blocks that no other block leads to.
        found = {0, *(n for block in blocks for n in block.after)}
        for block in blocks:
            if listed[block.end - 1].name in ("BRX", "BRXU"):
                block.after.extend(set(range(len(blocks))) - found)
        for n, block in enumerate(blocks):
            for after in block.after:
                blocks[after].before.append(n)
        return blocks

    def innermost_loops(self):
        """Returns for each block the number of the first block of its loop, or `None`. Only loops
        without another loop in them count.
        """
        # For each block, the blocks through which every path to it leads, as bits.
        everything = (1 << len(self.blocks)) - 1
        through = [1] + [everything] * (len(self.blocks) - 1)
        has_changed = True
        while has_changed:
            has_changed = False
            for n, block in enumerate(self.blocks[1:], 1):
                common = everything
                for before in block.before:
                    common &= through[before]
                common |= 1 << n
                has_changed |= common != through[n]
                through[n] = common
        loops = {}
        for n, block in enumerate(self.blocks):
            for first in block.after:
                if not through[n] >> first & 1:
                    continue
                members, waiting = loops.setdefault(first, {first}), [n]
                while waiting:
                    member = waiting.pop()
                    if member not in members:
                        members.add(member)
                        waiting.extend(self.blocks[member].before)
        innermost = [None] * len(self.blocks)
        for first, members in loops.items():
            if all(other == first or other not in members for other in loops):
                for member in members:
                    innermost[member] = first
        return innermost

    def loads_by_thread(self):
        """Returns the positions of the loads whose address depends on the index of the thread."""
        found, waiting = set(), [0]
        # The registers that depend on it at the begin of each block that can be executed.
        depending = {0: THREAD}
        while waiting:
            n = waiting.pop()
            block, depend = self.blocks[n], depending[n]
            for position in block.positions():
                one = self.listed[position]
                if one.reads & depend:
                    depend |= one.writes
                    if one.loaded:
                        found.add(position)
                elif not one.is_conditional:
                    depend &= ~one.writes
                if one.name == "CALL":
                    for called in self.called(one):
                        depend |= called.writes
            for after in block.after:
                entering = depending.get(after, 0) | depend
                if depending.get(after) != entering:
                    depending[after] = entering
                    waiting.append(after)
        return found

    def bytes_ahead(self):
        """Returns the largest numbers of bytes that a thread has in flight, outside of innermost
        loops and inside of them.

        The bytes are those of a group of loads that a thread issues one after another, before the
        first instruction that uses the result of one of them, or of another load that it issued
        after one of them. The loads of a group are all outside of innermost loops or all in the
        same one. No call and no unconditional jump is between them.

        - Only loads count whose address depends on the index of the thread. Others read the same
          bytes in all threads of a block, such as the fields of a job.
        - Conditional loads count only if all loads of the greatest width are conditional. So the
          number of a step is for one gradient, and the number of a sum is for three values.
        - In a kernel with loads of 8 bytes or more, a group needs one of them, because paths for
          unaligned memory load single elements.
        """
        loads = self.loads_by_thread()
        widest = max((self.listed[position].loaded for position in loads), default=0)
        inside = {
            position
            for block, loop in zip(self.blocks, self.loops)
            for position in block.positions()
            if loop is not None
        }
        least = min(widest, VECTOR)
        return self.most_ahead(loads - inside, least), self.most_ahead(loads & inside, least)

    def most_ahead(self, counted, least):
        """Returns the largest number of bytes of a group of loads at the positions `counted`, with
        one of at least `least` bytes.
        """
        widest = max((self.listed[position].loaded for position in counted), default=0)
        certain = {position for position in counted if not self.listed[position].is_conditional}
        if any(self.listed[position].loaded == widest for position in certain):
            counted = certain
        most, flying = 0, []
        for n, block in enumerate(self.blocks):
            is_continued = (
                n - 1 in block.before
                and block.begin > 0
                and self.listed[block.begin - 1].name != "CALL"
                and self.loops[n] != n
            )
            flying = flying if is_continued else []
            for position in block.positions():
                one = self.listed[position]
                used = one.reads | one.writes
                # When a result has arrived, those of earlier loads have arrived or soon will.
                arrived = [place for place, (result, _) in enumerate(flying) if result & used]
                flying = flying[arrived[-1] + 1 :] if arrived else flying
                if one.loaded:
                    flying.append((one.writes, one.loaded if position in counted else 0))
                    if any(loaded >= least for _, loaded in flying):
                        most = max(most, sum(loaded for _, loaded in flying))
        return most
