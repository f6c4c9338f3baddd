"""Runs the tests of a file with unittest.

    python scripts/run_unittests.py FILE

Under scripts/tally.sh, it also writes a report, because unittest has no machine-readable one, and
the environment of these tests has no pytest.
"""

import json
import os
import sys
import unittest
from pathlib import Path


class Result(unittest.TextTestResult):
    """Counts the tests that passed, which unittest does not."""

    passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1

    def addExpectedFailure(self, test, error):
        super().addExpectedFailure(test, error)
        self.passed += 1

    def report(self):
        # A test with several failed subtests is one failed test.
        failed = {getattr(test, "test_case", test).id() for test, _ in self.failures + self.errors}
        return {
            "passed": self.passed,
            "failed": len(failed) + len(self.unexpectedSuccesses),
            "skipped": [reason for _, reason in self.skipped],
        }


def main(path):
    suite = unittest.defaultTestLoader.discover(str(path.parent), pattern=path.name)
    result = unittest.TextTestRunner(resultclass=Result).run(suite)
    if "KVSTORE_REPORTS" in os.environ:
        report = Path(os.environ["KVSTORE_REPORTS"]) / f"{path.stem}.json"
        report.write_text(json.dumps(result.report()), encoding="utf-8")
    # A file without tests is an error.
    return 0 if result.wasSuccessful() and result.testsRun else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
