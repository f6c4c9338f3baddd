"""The text of the repository: phrases that are hard to read, and lines over 100 columns.

Runs with any Python, and needs git:
    python3 tests/packaging/test_text.py          # the tests
    python3 tests/packaging/test_text.py --list   # every fault, with file and line
"""

import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 100
TEXT = re.compile(
    r".*\.(rs|java|clj|py|pyi|sh|sbatch|cu|cuh|h|c|cpp|toml|md|ya?ml|xml)|Makefile"
    r"|(.*/)?Containerfile|clojure/bin/.*|.*/run(-dist|-local)?"
)
# Output of tools, pages of other projects, a tutorial that expects a value on the same line, and
# this list itself.
EXCEPT = re.compile(
    r"kvstore-cuda/compiled/.*|.*/[Gg]enerated/.*|kvstore-python/tests/documents/.*"
    r"|clojure/src/demo/resources/tutorial/.*|tests/packaging/test_text\.py"
)
# A generated file says so in its first lines.
GENERATED = re.compile(r"\b[Gg]enerated (by|from)\b")

# Phrases that readers stumble over, with what to write instead.
PHRASES = {
    r"\b(is|are|was|were) lent\b|\blends?\b|\blender\b": "borrowed, external memory, owner",
    r"\bwhat is there\b|\bwhat (a|an|the) \w+ is made of\b": "its contents, its fields",
    r"\b[Ww]hoever\b|\b[Ss]omebody\b|\b[Nn]obody\b": "the caller, another thread, no other thread",
    r"\b(stands|lies) (in|at|there)\b": "is in, is at, is stored in",
    r"\bmay lie\b": "untrusted bytes",
    r"\b(numbers|lists) of rows\b|\brow numbers?\b": "row indices, number of rows",
    r"\bfor reading only\b": "read-only",
    r"\btakes? the place of\b|\btook the place of\b": "replaces",
    r"\bwhat is no number\b": "NaN",
    r"\bto be had\b|\basked for\b": "available, requested",
    r"\bis no (file|library|memory|kernel|store|key|value|type|header)\b": "is not a ..",
    r"\bin the midst\b": "after .. has begun",
    r"\bthat of (the|a|an|another|its|this) \w+ (one )?(is|are|was)\b": "name the thing",
    r"\b(has|have|had) nothing to\b": "say what it does not need",
    r"\bis let go\b|\blets? go of\b": "is released",
    r"\bbegins? anew\b": "restarts, starts again",
    r"\bgo(es)? on\b": "continues",
    r"\bbehind (it|them|each other)\b": "after",
    r"\bstand(s)? for\b": "represents, means",
}
# Where a phrase is right: the file, and a part of the line.
ALLOWED = []


def files():
    """Yields the path and the text of each file that people write."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if not path.is_file() or not TEXT.fullmatch(name) or EXCEPT.fullmatch(name):
            continue
        text = path.read_text(encoding="utf-8")
        if not GENERATED.search(text[:400]):
            yield name, text


def long_lines(name, text):
    """Yields the number and the text of each line that is too wide. URLs and tables may be."""
    for number, line in enumerate(text.splitlines(), 1):
        is_exempt = "://" in line or line.lstrip().startswith("|")
        if len(line) > WIDTH and not is_exempt:
            yield number, line


def doubtful(name, text):
    """Yields the number, the phrase and the advice for each phrase of the list."""
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, advice in PHRASES.items():
            match = re.search(pattern, line)
            if match and (name, match.group()) not in ALLOWED:
                yield number, match.group(), advice


class Text(unittest.TestCase):
    maxDiff = None

    def test_lines_are_short(self):
        found = [f"{name}:{number}" for name, text in files() for number, _ in long_lines(name, text)]
        self.assertEqual(found, [])

    def test_phrases_are_plain(self):
        found = [f"{name}:{number}: {phrase}: {advice}"
                 for name, text in files() for number, phrase, advice in doubtful(name, text)]
        self.assertEqual(found, [])


class TheChecks(unittest.TestCase):
    """The checks find planted faults."""

    def test_long_lines_are_found(self):
        text = f"{'a' * 101}\n{'b' * 100}\n| {'c' * 120} |\nhttps://{'d' * 120}\n"
        self.assertEqual([number for number, _ in long_lines("a.rs", text)], [1])

    def test_phrases_are_found(self):
        text = "// A list of row numbers.\n// Training goes on.\n// The owner returns it.\n"
        self.assertEqual([number for number, _, _ in doubtful("a.rs", text)], [1, 2])


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        for name, text in files():
            for number, line in long_lines(name, text):
                print(f"{name}:{number}: {len(line)} columns")
            for number, phrase, advice in doubtful(name, text):
                print(f"{name}:{number}: {phrase}: {advice}")
    else:
        unittest.main()
