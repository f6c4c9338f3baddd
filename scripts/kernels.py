"""Compiles the kernels of kvstore-cuda to PTX: `kernels.py --write`, or `--check` that what is there is what comes out.

The compiler is NVRTC of CUDA 12.0, always the same release: what an old driver is to run must not come from a newer
compiler, and the same sources then give the same bytes on every machine. `scripts/kernels.sh` installs it. After that
ptxas, the assembler that drivers have built in, compiles the PTX for several cards; no kernel may spill registers
into memory, or need more of them than let four blocks run side by side, of steps in 64 bits two.
"""

import argparse
import ctypes
import hashlib
import importlib.util
import re
import subprocess
import sys
import tempfile
from pathlib import Path

CRATE = Path(__file__).resolve().parent.parent / "kvstore-cuda"
SOURCES, OUTPUTS = CRATE / "kernels", CRATE / "ptx"
# Runs on every card since Volta: drivers compile it for theirs.
OPTIONS = ["--gpu-architecture=compute_70", "--std=c++17", "--fmad=false", "--device-as-default-execution-space"]
CARDS = ["sm_70", "sm_80", "sm_90"]


def max_registers(kernel):
    in_64_bits = kernel.endswith("_f64") and not kernel.startswith("kv_sum") or kernel.startswith("kv_Sgld")
    return 128 if in_64_bits else 64


def package_folder(name):
    """Returns where a package of NVIDIA's is installed."""
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
        """Returns what a program has of a kind: its log, or its PTX."""
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{kind}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{kind}", program, text)
        return text.value.decode()

    def compile(self, path, definitions):
        """Returns the PTX of a source; its headers stand beside it."""
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
    """Returns each PTX file with its source and the definitions for the compiler. A source that
    mentions KV_FORMULA has a file for each formula of its list in formulas.h.
    """
    lists = dict(re.findall(r"#define (KV_\w*FORMULAS)\(Use\) (.*)", (SOURCES / "formulas.h").read_text()))
    for source in sorted(SOURCES.glob("*.cu")):
        listed = re.search(r"^#ifdef KV_FORMULA\n.*\n#else\n(\w+)\(", source.read_text(), re.MULTILINE)
        if listed is None:
            yield f"{source.stem}.ptx", source, []
            continue
        for formula in re.findall(r"Use\((\w+)\)", lists[listed[1]]):
            yield f"{source.stem}_{formula}.ptx", source, [f"-DKV_FORMULA={formula}"]


def usage(path, card):
    """Returns what each kernel of a file needs on a card: name, registers, bytes that are spilt."""
    with tempfile.TemporaryDirectory() as folder:
        command = [package_folder("cuda_nvcc") / "bin" / "ptxas", "-v", f"-arch={card}", path]
        command += ["-o", Path(folder) / "cubin"]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    found = []
    for part in text.split("Compiling entry function '")[1:]:
        spilt = sum(int(number) for number in re.findall(r"(\d+) bytes spill", part))
        found.append((part.split("'")[0], int(re.search(r"Used (\d+) registers", part).group(1)), spilt))
    return found


def check_usage(path):
    """Prints what kernels need, and returns how many need too much."""
    too_much = 0
    for card in CARDS:
        kernels = usage(path, card)
        bad = [kernel for kernel in kernels if kernel[1] > max_registers(kernel[0]) or kernel[2]]
        too_much += len(bad)
        most = max(registers for _, registers, _ in kernels)
        print(f"{path.name} on {card}: {len(kernels)} kernels, at most {most} registers, {len(bad)} over the budget")
        for name, registers, spilt in bad:
            print(f"    {name}: {registers} registers of {max_registers(name)}, {spilt} bytes spilt")
    return too_much


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--write", action="store_true", help="write the PTX")
    group.add_argument("--check", action="store_true", help="fail when another PTX comes out")
    options = parser.parse_args()
    compiler, failures = Compiler(), 0
    OUTPUTS.mkdir(exist_ok=True)
    obsolete = {path.name for path in OUTPUTS.glob("*.ptx")} - {name for name, _, _ in outputs()}
    for name in sorted(obsolete):
        if options.write:
            (OUTPUTS / name).unlink()
        else:
            print(f"{name} has no source: run `make kernels`")
            failures += 1
    for name, source, definitions in outputs():
        ptx, output = compiler.compile(source, definitions), OUTPUTS / name
        if options.write:
            output.write_text(ptx)
        elif not output.exists() or output.read_text() != ptx:
            print(f"{name} is not what {source.name} gives: run `make kernels`")
            failures += 1
            continue
        print(f"{output.name}: {len(ptx)} bytes, SHA-256 {hashlib.sha256(ptx.encode()).hexdigest()[:16]}")
        failures += check_usage(output)
    sys.exit(failures > 0)


main()
