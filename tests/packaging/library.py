"""Reads released ELF files: shared libraries and programs for Linux."""

import io
import re
from dataclasses import dataclass

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

# Libraries that every glibc system has.
MAY_NEED = re.compile(r"lib(c|m|dl|pthread|gcc_s)\.so\.\d+|ld-linux[-\w]*\.so\.\d+")
NEWEST_GLIBC = (2, 28)
MACHINES = {"linux-x86_64": "EM_X86_64", "linux-aarch64": "EM_AARCH64"}

UNWINDER = "libgcc_s.so.1"
# Functions that Rust's panics call. They are undefined unless the unwinder is linked statically.
UNWINDS = [
    "_Unwind_Backtrace",
    "_Unwind_DeleteException",
    "_Unwind_RaiseException",
    "_Unwind_Resume",
]
# The prefix of the LLVM unwinder's messages. `strip` removes its symbols, but not its strings.
LLVM_UNWINDER = b"libunwind: "


@dataclass
class Library:
    """A shared library or a program: its machine, its requirements and its exports."""

    machine: str
    needed: list
    versions: list
    undefined: list
    defined: list
    exported: list
    has_llvm_unwinder: bool

    @classmethod
    def read(cls, content):
        """Reads a file's bytes."""
        elf = ELFFile(io.BytesIO(content))
        sections = list(elf.iter_sections())
        dynamic = next(s for s in sections if isinstance(s, DynamicSection))
        required = [s for s in sections if isinstance(s, GNUVerNeedSection)]
        symbols = list(elf.get_section_by_name(".dynsym").iter_symbols())
        exported = [s.name for s in symbols if s["st_shndx"] != "SHN_UNDEF"]
        local = elf.get_section_by_name(".symtab")
        local = (
            [s.name for s in local.iter_symbols() if s["st_shndx"] != "SHN_UNDEF"] if local else []
        )
        return cls(
            machine=elf["e_machine"],
            needed=[tag.needed for tag in dynamic.iter_tags("DT_NEEDED")],
            versions=[v.name for s in required for _, vs in s.iter_versions() for v in vs],
            undefined=[s.name for s in symbols if s["st_shndx"] == "SHN_UNDEF" and s.name],
            defined=exported + local,
            exported=exported,
            has_llvm_unwinder=LLVM_UNWINDER in content,
        )

    def complaints(self):
        """Returns the reasons why a system of `docs/guides/deployment.md` could not run it."""
        found = [f"needs {name}" for name in self.needed if not MAY_NEED.fullmatch(name)]
        for version in self.versions:
            glibc = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)?", version)
            if glibc and (int(glibc[1]), int(glibc[2])) > NEWEST_GLIBC:
                found.append(f"needs {version}")
            elif not glibc and not version.startswith("GCC_"):
                found.append(f"needs {version}")
        return found + self.unwinder_complaints()

    def unwinder_complaints(self):
        """Returns the reasons why it has its own unwinder, which crashes in `pthread_exit`."""
        found = [f"does not need {UNWINDER}"] if UNWINDER not in self.needed else []
        found += [
            f"does not take {name} from the system"
            for name in UNWINDS
            if name not in self.undefined
        ]
        found += [
            f"defines {name}" for name in self.defined if name.startswith(("_Unwind_", "__unw_"))
        ]
        return found + (["contains the unwinder of LLVM"] if self.has_llvm_unwinder else [])
