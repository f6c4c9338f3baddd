"""The contents of the wheel that `make wheel` builds.

Runs with the Python that scripts/wheel.sh installs:
    target/portable-venv/bin/python tests/packaging/test_wheel.py
"""

import re
import sys
import unittest
import zipfile
from pathlib import Path

from library import MACHINES, Library

ROOT = Path(__file__).resolve().parents[2]
WHEELS = ROOT / "target" / "wheels"
MODULE = "mxkv/_native.abi3.so"
# A native module is loaded in each program that imports it. Without the network it had 9 MB.
MOST_MODULE_BYTES = 15_500_000
WHEEL = re.compile(r"mxkv-[\d.]+-cp310-abi3-manylinux_2_28_(\w+)\.whl")


def wheels():
    """Yields the platform, the names and the native module of each wheel for Linux."""
    for path in sorted(WHEELS.glob("mxkv-*linux*.whl")):
        platform = WHEEL.fullmatch(path.name)
        assert platform, f"{path.name} is not for every Linux system with glibc 2.28"
        with zipfile.ZipFile(path) as wheel:
            yield f"linux-{platform[1]}", wheel.namelist(), wheel.read(MODULE)


class WheelTest(unittest.TestCase):
    def test_there_is_a_wheel(self):
        self.assertTrue(
            list(WHEELS.glob("mxkv-*.whl")), "`make wheel` leaves a wheel in target/wheels"
        )

    def test_a_wheel_of_linux_is_for_every_linux_system(self):
        if sys.platform == "linux":
            self.assertTrue(list(wheels()), "`make wheel` leaves a wheel for Linux")

    def test_the_native_module_runs_on_the_systems_of_the_manual(self):
        for platform, _, content in wheels():
            with self.subTest(platform):
                library = Library.read(content)
                self.assertEqual(library.complaints(), [])
                self.assertEqual(library.machine, MACHINES[platform])
                self.assertEqual(library.exported, ["PyInit__native"])

    def test_the_native_module_is_small(self):
        for platform, _, content in wheels():
            with self.subTest(platform):
                self.assertLess(len(content), MOST_MODULE_BYTES)

    def test_no_library_of_another_project_is_inside(self):
        for platform, names, _ in wheels():
            with self.subTest(platform):
                self.assertEqual([name for name in names if ".so" in name], [MODULE])

    def test_no_wheel_has_keys_of_the_tests(self):
        for path in WHEELS.glob("mxkv-*.whl"):
            with self.subTest(path.name), zipfile.ZipFile(path) as wheel:
                found = [name for name in wheel.namelist() if name.endswith(".pem")]
                self.assertEqual(found, [])


if __name__ == "__main__":
    unittest.main()
