"""Tests the contents of the jars that `make jar` builds.

Runs with the Python that scripts/portable.sh installs:
    target/portable-venv/bin/python tests/packaging/test_jar.py
"""

import re
import unittest
import zipfile
from pathlib import Path

from library import MACHINES, UNWINDER, UNWINDS, Library

ROOT = Path(__file__).resolve().parents[2]
POM = (ROOT / "clojure/pom.xml").read_text()
NAME = "kvstore-" + re.search("<version>(.*?)</version>", POM)[1]
JARS = ROOT / "clojure" / "target"


def entries(classifier=""):
    """Returns the names in the jar with this classifier."""
    with zipfile.ZipFile(JARS / f"{NAME}{classifier}.jar") as jar:
        return jar.namelist()


class LibraryTest(unittest.TestCase):
    def libraries(self):
        with zipfile.ZipFile(JARS / f"{NAME}.jar") as jar:
            for name in jar.namelist():
                if name.startswith("natives/") and name.endswith(".so"):
                    yield name.split("/")[1], Library.read(jar.read(name))

    def test_it_runs_on_the_systems_of_the_manual(self):
        platforms = []
        for platform, library in self.libraries():
            platforms.append(platform)
            with self.subTest(platform):
                self.assertEqual(library.complaints(), [])
                self.assertEqual(library.machine, MACHINES[platform])
                foreign = [
                    name for name in library.exported if not name.startswith("Java_dev_kvstore_")
                ]
                self.assertEqual(foreign, [])
        self.assertTrue(platforms, "the jar holds a library")

    def test_it_exports_every_native_method(self):
        sources = (ROOT / "clojure/src/main/java/dev/kvstore").glob("*.java")
        declared = sum(len(re.findall(r"^\s*static native ", s.read_text(), re.M)) for s in sources)
        for platform, library in self.libraries():
            with self.subTest(platform):
                self.assertEqual(len(library.exported), declared)

    def test_a_library_for_newer_systems_is_rejected(self):
        library = Library(
            machine="EM_X86_64",
            needed=["libc.so.6", "libssl.so.3", UNWINDER],
            versions=["GLIBC_2.2.5", "GLIBC_2.28", "GLIBC_2.29", "GCC_3.0", "OPENSSL_3.0.0"],
            undefined=UNWINDS,
            defined=[],
            exported=[],
            has_llvm_unwinder=False,
        )
        self.assertEqual(
            library.complaints(), ["needs libssl.so.3", "needs GLIBC_2.29", "needs OPENSSL_3.0.0"]
        )

    def test_a_library_with_its_own_unwinder_is_rejected(self):
        library = Library(
            machine="EM_X86_64",
            needed=["libc.so.6"],
            versions=["GLIBC_2.28"],
            undefined=UNWINDS[:-1],
            defined=["_Unwind_Resume"],
            exported=[],
            has_llvm_unwinder=True,
        )
        self.assertEqual(
            library.complaints(),
            [
                "does not need libgcc_s.so.1",
                "does not take _Unwind_Resume from the system",
                "defines _Unwind_Resume",
                "contains the unwinder of LLVM",
            ],
        )


class ContentTest(unittest.TestCase):
    def test_the_jar_has_the_files_that_programs_and_tools_need(self):
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

    def test_the_jar_has_no_examples(self):
        self.assertEqual([name for name in entries() if "examples" in name], [])

    def test_no_jar_has_keys_of_the_tests(self):
        for classifier in ["", "-sources", "-javadoc"]:
            with self.subTest(classifier):
                found = [name for name in entries(classifier) if name.endswith(".pem")]
                self.assertEqual(found, [])

    def test_each_namespace_is_compiled_and_its_class_is_younger(self):
        with zipfile.ZipFile(JARS / f"{NAME}.jar") as jar:
            times = {entry.filename: entry.date_time for entry in jar.infolist()}
        sources = [name for name in times if name.endswith(".clj")]
        self.assertIn("org/apache/clojure_mxnet/kvstore.clj", sources)
        for source in sources:
            with self.subTest(source):
                self.assertGreater(
                    times[source.removesuffix(".clj") + "__init.class"], times[source]
                )

    def test_sources_and_javadoc_are_beside_it(self):
        sources = entries("-sources")
        self.assertIn("dev/kvstore/KVStore.java", sources)
        self.assertIn("org/apache/clojure_mxnet/kvstore.clj", sources)
        self.assertIn("dev/kvstore/KVStore.html", entries("-javadoc"))


if __name__ == "__main__":
    unittest.main()
