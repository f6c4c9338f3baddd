"""What `make jar` made, read from the outside.

Runs with the Python that scripts/portable.sh installs:
    target/portable-venv/bin/python tests/packaging/test_jar.py
"""

import io
import re
import unittest
import zipfile
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

ROOT = Path(__file__).resolve().parents[2]
POM = (ROOT / "clojure/pom.xml").read_text()
NAME = "kvstore-" + re.search("<version>(.*?)</version>", POM)[1]
JARS = ROOT / "clojure" / "target"

# What every glibc system has, under the names of any processor.
MAY_NEED = re.compile(r"lib(c|m|dl|pthread|gcc_s)\.so\.\d+|ld-linux[-\w]*\.so\.\d+")
NEWEST_GLIBC = (2, 28)
MACHINES = {"linux-x86_64": "EM_X86_64", "linux-aarch64": "EM_AARCH64"}


def entries(classifier=""):
    """Returns the names in one of the jars."""
    with zipfile.ZipFile(JARS / f"{NAME}{classifier}.jar") as jar:
        return jar.namelist()


@dataclass
class Library:
    """A shared library: its machine, what it asks of a system, and what it offers."""

    machine: str
    needed: list
    versions: list
    exported: list

    @classmethod
    def read(cls, content):
        elf = ELFFile(io.BytesIO(content))
        sections = list(elf.iter_sections())
        dynamic = next(s for s in sections if isinstance(s, DynamicSection))
        required = [s for s in sections if isinstance(s, GNUVerNeedSection)]
        symbols = elf.get_section_by_name(".dynsym").iter_symbols()
        return cls(
            machine=elf["e_machine"],
            needed=[tag.needed for tag in dynamic.iter_tags("DT_NEEDED")],
            versions=[v.name for s in required for _, vs in s.iter_versions() for v in vs],
            exported=[s.name for s in symbols if s["st_shndx"] != "SHN_UNDEF"],
        )

    def complaints(self):
        """Returns why it would not run on every system that the README promises."""
        found = [f"needs {name}" for name in self.needed if not MAY_NEED.fullmatch(name)]
        for version in self.versions:
            glibc = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)?", version)
            if glibc and (int(glibc[1]), int(glibc[2])) > NEWEST_GLIBC:
                found.append(f"needs {version}")
            elif not glibc and not version.startswith("GCC_"):
                found.append(f"needs {version}")
        found += [f"exports {name}" for name in self.exported if not name.startswith("Java_dev_kvstore_")]
        return found


class LibraryTest(unittest.TestCase):
    def libraries(self):
        with zipfile.ZipFile(JARS / f"{NAME}.jar") as jar:
            for name in jar.namelist():
                if name.startswith("natives/") and name.endswith(".so"):
                    yield name.split("/")[1], Library.read(jar.read(name))

    def test_it_runs_on_the_systems_of_the_readme(self):
        platforms = []
        for platform, library in self.libraries():
            platforms.append(platform)
            with self.subTest(platform):
                self.assertEqual(library.complaints(), [])
                self.assertEqual(library.machine, MACHINES[platform])
        self.assertTrue(platforms, "the jar holds a library")

    def test_it_offers_every_native_method(self):
        sources = (ROOT / "clojure/src/main/java/dev/kvstore").glob("*.java")
        declared = sum(len(re.findall(r"^\s*static native ", s.read_text(), re.M)) for s in sources)
        for platform, library in self.libraries():
            with self.subTest(platform):
                self.assertEqual(len(library.exported), declared)

    def test_a_library_for_newer_systems_is_refused(self):
        library = Library(
            machine="EM_X86_64",
            needed=["libc.so.6", "libssl.so.3"],
            versions=["GLIBC_2.2.5", "GLIBC_2.28", "GLIBC_2.29", "GCC_3.0", "OPENSSL_3.0.0"],
            exported=["Java_dev_kvstore_NativeRuntime_version", "malloc"],
        )
        self.assertEqual(
            library.complaints(),
            ["needs libssl.so.3", "needs GLIBC_2.29", "needs OPENSSL_3.0.0", "exports malloc"],
        )


class ContentTest(unittest.TestCase):
    def test_the_jar_has_what_programs_and_their_tools_look_for(self):
        names = entries()
        for name in [
            "dev/kvstore/KVStore.class",
            "org/apache/clojure_mxnet/kvstore.clj",
            "clj-kondo.exports/dev.kvstore/kvstore/config.edn",
            "META-INF/LICENSE",
            "META-INF/NOTICE",
            "META-INF/maven/dev.kvstore/kvstore/pom.xml",
        ]:
            self.assertIn(name, names)

    def test_each_namespace_is_compiled_and_its_class_is_younger(self):
        with zipfile.ZipFile(JARS / f"{NAME}.jar") as jar:
            times = {entry.filename: entry.date_time for entry in jar.infolist()}
        sources = [name for name in times if name.endswith(".clj")]
        self.assertIn("org/apache/clojure_mxnet/kvstore.clj", sources)
        for source in sources:
            with self.subTest(source):
                self.assertGreater(times[source.removesuffix(".clj") + "__init.class"], times[source])

    def test_sources_and_javadoc_stand_beside_it(self):
        sources = entries("-sources")
        self.assertIn("dev/kvstore/KVStore.java", sources)
        self.assertIn("org/apache/clojure_mxnet/kvstore.clj", sources)
        self.assertIn("dev/kvstore/KVStore.html", entries("-javadoc"))


if __name__ == "__main__":
    unittest.main()
