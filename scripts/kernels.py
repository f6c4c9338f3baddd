"""Compiles the kernels of kvstore-cuda. `kernels.py --write` writes the files, `--check` compares
them.

`kernels.lzma2` has two streams: the PTX of all kernels, and their code for several generations of
GPUs, which drivers load without compiling. `kernels.rs` lists the kernels and lengths.

The compiler is always NVRTC of CUDA 12.0: an old driver rejects PTX of a newer compiler, and the
same sources give the same bytes on every machine. `scripts/kernels.sh` installs it. Then ptxas, the
assembler that drivers contain, compiles the PTX. No kernel may spill registers, or use local
memory, except those listed below. Sums and steps must keep enough bytes in flight: the bytes that a
thread loads before it waits, times the threads whose registers fit on a multiprocessor.
"""

import argparse
import ctypes
import importlib.util
import lzma
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CRATE = Path(__file__).resolve().parent.parent / "kvstore-cuda"
SOURCES, OUTPUTS = CRATE / "kernels", CRATE / "compiled"
CODE, LIST = OUTPUTS / "kernels.lzma2", OUTPUTS / "kernels.rs"
# For every GPU since Volta. Drivers compile the PTX for their GPU.
OPTIONS = [
    "--gpu-architecture=compute_70",
    "--std=c++17",
    "--fmad=false",
    "--device-as-default-execution-space",
]
# The GPUs with their own code. All later GPUs of a generation can run it.
SHIPPED = ["sm_80", "sm_90", "sm_100", "sm_120"]
CARDS = ["sm_70", *SHIPPED]
# Streams of LZMA2. The fields of instructions in the code begin at multiples of eight bytes.
FILTERS = [
    {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 0, "lp": 3, "pb": 4}
    | {"dict_size": 4 << 20}
]
# These kernels add numbers in pairs, in an array that they index with variables.
WITH_LOCAL_MEMORY = ("kv_row_states_", "kv_add_in_pairs")
# Threads of a block; registers and threads of a multiprocessor; the unit in which warps get
# registers, per thread.
THREADS, REGISTERS, MOST_THREADS, REGISTER_UNIT = 256, 65536, 2048, 8
# Bytes in flight on a multiprocessor. An H200 moves 32 bytes per nanosecond and multiprocessor, a
# load takes some 700 ns, and no thread waits for stores.
LEAST_IN_FLIGHT = 24 * 1024


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
    """Returns the resources of each kernel from the messages of ptxas: name, registers, spilt
    bytes, bytes of local memory.
    """
    found = []
    for part in text.split("Compiling entry function '")[1:]:
        spilt = sum(int(number) for number in re.findall(r"(\d+) bytes spill", part))
        registers, local = (
            re.search(text, part)[1] for text in [r"Used (\d+) registers", r"(\d+) bytes stack"]
        )
        found.append((part.split("'")[0], int(registers), spilt, int(local)))
    return found


def bytes_ahead(ptx):
    """Returns the largest number of bytes that a thread of each kernel loads in vectors before it
    waits or branches."""
    most, kernel, run, is_ours = {}, None, 0, False
    for line in ptx.splitlines():
        if entry := re.search(r"\.entry (\w+)", line):
            kernel = entry[1]
            most[kernel] = 0
        # Vector loads by the compiler read fields of jobs. Loads of ranges are in our inline
        # assembly.
        if is_ours and (load := re.search(r"ld\.global\.v(\d)\.u32", line)):
            run += 4 * int(load[1])
            most[kernel] = max(most[kernel], run)
        elif re.search(r"^\$|\bbra\b|st\.global|\b(add|sub|mul)\.rn", line):
            run = 0
        is_ours = "begin inline asm" in line
    return most


def in_flight(registers, ahead):
    """Returns the bytes in flight on a multiprocessor."""
    of_thread = -(-registers // REGISTER_UNIT) * REGISTER_UNIT
    return min(REGISTERS // (of_thread * THREADS), MOST_THREADS // THREADS) * THREADS * ahead


def check_usage(module):
    """Prints the resources of kernels. Returns the number of kernels that exceed the limits."""
    too_much, ahead, name = 0, bytes_ahead(module.ptx), module.name
    is_stream = name.startswith(("sum", "update_")) and not name.startswith("update_row")
    for card, kernels in module.usage.items():
        bad = []
        for kernel, registers, spilt, local in kernels:
            flying = in_flight(registers, ahead[kernel])
            if (
                spilt
                or (local and not kernel.startswith(WITH_LOCAL_MEMORY))
                or (is_stream and flying < LEAST_IN_FLIGHT)
            ):
                bad.append(
                    f"    {kernel}: {spilt} bytes spilt, {local} local, {flying} in flight"
                    f" with {registers} registers"
                )
        too_much += len(bad)
        most = max(registers for _, registers, _, _ in kernels)
        least = min(in_flight(registers, ahead[kernel]) for kernel, registers, _, _ in kernels)
        flying = f", at least {least} bytes in flight" if is_stream else ""
        print(
            f"{name} on {card}: {len(kernels)} kernels, at most {most} registers{flying},"
            f" {len(bad)} rejected"
        )
        print(*bad, sep="\n", end="\n" if bad else "")
    return too_much


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
    failures = sum(check_usage(module) for module in modules)
    if options.write:
        write(modules)
    elif not is_current(modules):
        print(f"{CODE.name} or {LIST.name} is not what the sources give: run `make kernels`")
        failures += 1
    ptx, code = streams(modules)
    print(
        f"{sum(len(module.kernels) for module in modules)} kernels: {len(ptx)} bytes of PTX,"
        f" {len(code)} bytes of code, {CODE.stat().st_size} bytes compressed"
    )
    sys.exit(failures > 0)


main()
