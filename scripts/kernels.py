"""Compiles the kernels of kvstore-cuda. `kernels.py --write` writes the files, `--check` compares
them.

`kernels.lzma2` has two streams: the PTX of all kernels, and their code for several generations of
GPUs, which drivers load without compiling. `kernels.rs` lists the kernels and lengths.

The compiler is always NVRTC of CUDA 12.0: an old driver rejects PTX of a newer compiler, and the
same sources give the same bytes on every machine. `scripts/kernels.sh` installs it. Then ptxas, the
assembler that drivers contain, compiles the PTX, and nvdisasm lists the code. `kernel_figures.py`
has limits for registers, local memory, bytes in flight and compile times. The figures of all
kernels are in docs/kernels.md; with compile times, in target/kernels.md.
"""

import argparse
import ctypes
import importlib.util
import lzma
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import sass
from kernel_figures import BLOCK, CARDS, Entry, page

ROOT = Path(__file__).resolve().parent.parent
CRATE = ROOT / "kvstore-cuda"
SOURCES, OUTPUTS = CRATE / "kernels", CRATE / "compiled"
CODE, LIST = OUTPUTS / "kernels.lzma2", OUTPUTS / "kernels.rs"
PAGE, PAGE_WITH_TIMES = ROOT / "docs" / "kernels.md", ROOT / "target" / "kernels.md"
# For every GPU since Volta. Drivers compile the PTX for their GPU.
OPTIONS = [
    "--gpu-architecture=compute_70",
    "--std=c++17",
    "--fmad=false",
    "--device-as-default-execution-space",
]
# The GPUs with their own code. All later GPUs of a generation can run it.
SHIPPED = ["sm_80", "sm_90", "sm_100", "sm_120"]
# What the assembler reports about a kernel: registers of a thread, bytes of spilt registers and of
# local memory, and the time to compile it.
Usage = namedtuple("Usage", "registers spilt local seconds")
# Streams of LZMA2. The fields of instructions in the code begin at multiples of eight bytes.
FILTERS = [
    {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 0, "lp": 3, "pb": 4}
    | {"dict_size": 4 << 20}
]

def package_folder(name):
    """Returns the folder of an installed package of NVIDIA."""
    return Path(importlib.util.find_spec(f"nvidia.{name}").submodule_search_locations[0])


class Compiler:
    """NVRTC, through its C interface."""

    def __init__(self):
        self.library = ctypes.CDLL(str(package_folder("cuda_nvrtc") / "lib" / "libnvrtc.so.12"))

    def call(self, function, *arguments):
        code = getattr(self.library, function)(*arguments)
        if code != 0:
            raise RuntimeError(f"{function} fails with code {code}")

    def text(self, program, kind):
        """Returns a text of a program: its log or its PTX."""
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{kind}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{kind}", program, text)
        return text.value.decode()

    def compile(self, path, definitions):
        """Returns the PTX of a source. Its headers are in the same folder. `definitions` are `-D`
        options."""
        headers = sorted(SOURCES.glob("*.h"))
        strings = lambda texts: (ctypes.c_char_p * len(texts))(*[text.encode() for text in texts])
        program = ctypes.c_void_p()
        self.call(
            "nvrtcCreateProgram",
            ctypes.byref(program),
            path.read_text().encode(),
            path.name.encode(),
            len(headers),
            strings([header.read_text() for header in headers]),
            strings([header.name for header in headers]),
        )
        try:
            options = OPTIONS + definitions
            self.call("nvrtcCompileProgram", program, len(options), strings(options))
        except RuntimeError:
            sys.exit(f"{path.name}:\n{self.text(program, 'Log')}")
        return self.text(program, "PTX")


def outputs():
    """Returns the name of each module with its source and the definitions for the compiler. A
    source with a list of formulas has a module for each of them."""
    header = (SOURCES / "formulas.h").read_text()
    lists = dict(re.findall(r"#define (KV_\w*FORMULAS)\(Use\) (Use.*)", header))
    found = []
    for source in sorted(SOURCES.glob("*.cu")):
        used = re.search(r"^(KV_\w*FORMULAS)\(", source.read_text(), re.MULTILINE)
        if used is None:
            found.append((source.stem, source, []))
            continue
        for formula in re.findall(r"Use\((\w+)\)", lists[used[1]]):
            found.append((f"{source.stem}_{formula}", source, [f"-DKV_FORMULA={formula}"]))
    return found


class Module:
    """A source, or one of its formulas, with its PTX and its code for each GPU."""

    def __init__(self, name, ptx):
        # The compiler adds constants that no kernel uses.
        self.name, self.ptx = name, re.sub(r"^\.global .*nv6target.*\n", "", ptx, flags=re.M)
        self.kernels = re.findall(r"\.entry (\w+)", self.ptx)
        threads = re.findall(r"\.maxntid (\d+), 1, 1", self.ptx)
        if threads != [str(BLOCK)] * len(self.kernels):
            sys.exit(f"{name}: found blocks of {threads} threads, expected {BLOCK} for each kernel")
        self.code, self.usage = {}, {}
        with tempfile.TemporaryDirectory() as folder:
            path, output = Path(folder) / "ptx", Path(folder) / "code"
            path.write_text(self.ptx)
            for card in CARDS:
                command = [package_folder("cuda_nvcc") / "bin" / "ptxas", "-v", f"-arch={card}"]
                command += [path, "-o", output]
                ran = subprocess.run(command, check=True, capture_output=True, text=True)
                self.code[card], self.usage[card] = output.read_bytes(), usage(ran.stderr)

    def sizes(self):
        """Returns the lengths of the PTX and of the code for each GPU."""
        return [len(self.ptx), *(len(self.code[card]) for card in SHIPPED)]


def streams(modules):
    """Returns the PTX of all modules, and their code: all for the first GPU, then all for the
    second one, and so on, so that a reader can stop after its GPU.
    """
    ptx = "".join(module.ptx for module in modules).encode()
    return ptx, b"".join(module.code[card] for card in SHIPPED for module in modules)


def listing(modules, ptx_bytes):
    """Returns the list of the modules, which Rust includes."""
    lines = ["// Generated by `make kernels`. Do not edit.\n", "Archive {\n"]
    lines += [f"    ptx_bytes: {ptx_bytes:_},\n"]
    capabilities = ", ".join(card.removeprefix("sm_") for card in SHIPPED)
    lines += [f"    capabilities: [{capabilities}],\n", "    modules: &[\n"]
    for module in modules:
        kernels = ", ".join(f'"{kernel}"' for kernel in module.kernels)
        sizes = ", ".join(f"{size:_}" for size in module.sizes())
        lines += [f"        Module {{ kernels: &[{kernels}], sizes: [{sizes}] }},\n"]
    return "".join([*lines, "    ],\n", "}\n"])


def unpacked(code):
    """Returns the two streams of an archive and the length of the first one."""
    found = []
    for _ in range(2):
        reader = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=FILTERS)
        found.append((reader.decompress(code), len(code) - len(reader.unused_data)))
        code = reader.unused_data
    (first, length), (second, _) = found
    return first, second, length


def is_current(modules):
    """Returns whether the files have these modules. Compares what is compressed, because another
    version of the compressor may write other bytes.
    """
    try:
        ptx, code, ptx_bytes = unpacked(CODE.read_bytes())
        return (ptx, code) == streams(modules) and LIST.read_text() == listing(modules, ptx_bytes)
    except (OSError, EOFError, lzma.LZMAError):
        return False


def write(modules):
    """Writes the files."""
    ptx, code = (
        lzma.compress(stream, lzma.FORMAT_RAW, filters=FILTERS)
        for stream in streams(modules)
    )
    OUTPUTS.mkdir(exist_ok=True)
    CODE.write_bytes(ptx + code)
    LIST.write_text(listing(modules, len(ptx)))


def usage(text):
    """Returns the usage of each kernel from the messages of ptxas."""
    found = {}
    for part in text.split("Compiling entry function '")[1:]:
        spilt = sum(int(number) for number in re.findall(r"(\d+) bytes spill", part))
        registers, local, milliseconds = (
            re.search(text, part)[1]
            for text in [r"Used (\d+) registers", r"(\d+) bytes stack", r"time = ([\d.]+) ms"]
        )
        found[part.split("'")[0]] = Usage(
            int(registers), spilt, int(local), float(milliseconds) / 1000
        )
    return found


def entries(modules):
    """Returns for each kernel of the modules its entries for all cards."""
    nvdisasm = package_folder("cu13") / "bin" / "nvdisasm"

    def read(card):
        return sass.disassemble(nvdisasm, card, [module.code[card] for module in modules])

    with ThreadPoolExecutor() as pool:
        figures = dict(zip(SHIPPED, pool.map(read, SHIPPED)))
    return {
        kernel: [
            Entry(
                card,
                module.usage[card][kernel],
                figures[card][kernel] if card in SHIPPED else None,
            )
            for card in CARDS
        ]
        for module in modules
        for kernel in module.kernels
    }


def check_figures(modules, kernels):
    """Prints a line for each module, and what exceeds the limits. Returns the number of faults."""
    number_of_faults = 0
    for module in modules:
        of_module = [(kernel, entry) for kernel in module.kernels for entry in kernels[kernel]]
        registers = [entry.usage.registers for _, entry in of_module]
        kib = [entry.kib for _, entry in of_module if entry.figures]
        kernel, slowest = max(of_module, key=lambda one: one[1].usage.seconds)
        print(
            f"{module.name}: {len(module.kernels)} kernels, {min(registers)} to {max(registers)}"
            f" registers, {min(kib):g} to {max(kib):g} KiB in flight, at most"
            f" {1000 * slowest.usage.seconds:.0f} ms to compile ({kernel} for {slowest.card})"
        )
        faults = [fault for kernel, entry in of_module for fault in entry.faults(kernel)]
        print(*(f"    {fault}" for fault in faults), sep="\n", end="\n" if faults else "")
        number_of_faults += len(faults)
    return number_of_faults


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--write", action="store_true", help="write the files")
    group.add_argument("--check", action="store_true", help="fail if the files are not current")
    options = parser.parse_args()
    compiler = Compiler()
    compiled = lambda output: Module(output[0], compiler.compile(*output[1:]))
    with ThreadPoolExecutor() as pool:
        modules = list(pool.map(compiled, outputs()))
    before, begin = os.times(), time.perf_counter()
    kernels = entries(modules)
    seconds = time.perf_counter() - begin
    # Of this process and the processes that it has started.
    processor_seconds = sum(os.times()[:4]) - sum(before[:4])
    failures = check_figures(modules, kernels)
    # Without the GPUs that have no code.
    shipped = {
        kernel: [entry for entry in found if entry.figures] for kernel, found in kernels.items()
    }
    text = page(shipped, SHIPPED)
    PAGE_WITH_TIMES.write_text(page(shipped, SHIPPED, has_seconds=True))
    if options.write:
        write(modules)
        PAGE.write_text(text)
    elif not is_current(modules):
        print(f"{CODE.name} or {LIST.name} is not what the sources give: run `make kernels`")
        failures += 1
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        print(f"docs/{PAGE.name} is not what the code gives: run `make kernels`")
        failures += 1
    print(
        f"read the code of {len(SHIPPED)} GPUs in {seconds:.1f} s, with {processor_seconds:.1f} s"
        " of processor time"
    )
    ptx, code = streams(modules)
    print(
        f"{sum(len(module.kernels) for module in modules)} kernels: {len(ptx)} bytes of PTX,"
        f" {len(code)} bytes of code, {CODE.stat().st_size} bytes compressed"
    )
    sys.exit(failures > 0)


main()
