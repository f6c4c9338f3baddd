"""The Markdown pages: links, anchors, the list of pages, their size, and tables about the code.

Runs with any Python, and needs git:
    python3 tests/packaging/test_pages.py
"""

import re
import subprocess
import unittest
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^ *(```+)[^`]*?$.*?^ *\1 *$", re.S | re.M)
CODE = re.compile(r"(`+)(?!`)(?:(?!\n\n).)+?(?<!`)\1(?!`)", re.S)
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)")
REFERENCE = re.compile(r"^ *\[[^\]]+\]: *(\S+)", re.M)
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.M)
# A page that a comment or a message names.
NAMED_PAGE = re.compile(r"\bdocs/[\w/-]+\.md\b")
# Pages of other projects, unchanged.
FOREIGN = "kvstore-python/tests/documents/"
# Pages with short lines and tables.
SHORT = re.compile(r"README\.md|docs/(getting-started|guides)/.*\.md")
# Pages whose lines are short.
SHORT_LINES = re.compile(r"docs/reference/.*\.md")
# A variable of the library. Those of its tests have names of their own.
VARIABLE = re.compile(r"\bKVSTORE_[A-Z_]+\b")
# Code that runs in users' programs.
LIBRARY = re.compile(
    r"(kvstore[\w-]*|clojure)/(src|python)/(?!test/|simulation/).*\.(rs|java|clj|py)"
)


def tracked(pattern="*"):
    """Returns the files that git tracks or would add, by their path in the repository."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", pattern]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    paths = [ROOT / line for line in listed.stdout.splitlines()]
    return [path for path in paths if path.is_file() and not name(path).startswith(FOREIGN)]


def name(path):
    return path.relative_to(ROOT).as_posix()


def prose(text):
    """Returns the text of a page without blocks of code."""
    return FENCE.sub("", text)


def links(text):
    """Returns the targets of a page's links."""
    text = CODE.sub("", prose(text))
    return LINK.findall(text) + REFERENCE.findall(text)


def anchors(text):
    """Returns the anchors of a page's headings, as GitHub makes them."""
    found = set()
    for heading in HEADING.findall(prose(text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        number = 0
        while (unique := f"{anchor}-{number}" if number else anchor) in found:
            number += 1
        found.add(unique)
    return found


def broken_links(path, text):
    """Returns the relative links of a page that lead to no file or to no heading."""
    broken = []
    for link in links(text):
        if re.match(r"[a-z][a-z+.-]*:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / unquote(file)).resolve() if file else path
        if not target.exists():
            broken.append(f"{link}: no such file")
        elif anchor and target.suffix == ".md":
            headings = anchors(text if target == path else target.read_text(encoding="utf-8"))
            if anchor not in headings:
                broken.append(f"{link}: no such heading")
    return broken


def rows(text):
    """Returns the rows of a page's tables, each as the list of its cells."""
    lines = [line.strip().strip("|") for line in prose(text).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")] for line in lines]


def cells(text):
    """Returns the cells of a page's tables."""
    return [cell for row in rows(text) for cell in row]


def long_parts(path, text):
    """Returns the lines and the cells that are too long for a short page."""
    is_short = SHORT.fullmatch(name(path))
    if not is_short and not SHORT_LINES.fullmatch(name(path)):
        return []
    lines = [line for line in text.splitlines() if not line.startswith("|")]
    long_lines = [line for line in lines if len(line) > 100]
    return long_lines + [cell for cell in cells(text) if is_short and len(cell.split()) > 8]


def error_codes(rust):
    """Returns the codes that the source of the enum `ErrorCode` declares."""
    declared = re.search(r"pub enum ErrorCode \{(.*?)\}", rust, re.S).group(1)
    return re.findall(r"(\w+) = \d+,", declared)


def python_classes(python):
    """Returns the exception of each code, from the source of the Python module."""
    return dict(re.findall(r'^    "(\w+)": (\w+),$', python, re.M))


def documented_codes(page):
    """Returns the codes in the first column of a page's tables, with the first Python class."""
    code = re.compile(r"`([A-Z]\w+)`")
    found = [(code.fullmatch(row[0]), code.match(row[-1])) for row in rows(page)]
    return [(first[1], last and last[1]) for first, last in found if first]


def undocumented_variables(path, text, page):
    """Returns the variables that a file of the library names and the page does not."""
    if not LIBRARY.fullmatch(name(path)):
        return []
    return sorted(set(VARIABLE.findall(text)) - set(VARIABLE.findall(page)))


class Pages(unittest.TestCase):
    def assert_no_faults(self, find):
        """Asserts that `find`, called with the path and the text of a page, returns no faults for
        any page."""
        pages = {path: path.read_text(encoding="utf-8") for path in tracked("*.md")}
        faults = {name(path): find(path, text) for path, text in pages.items()}
        self.assertEqual({page: found for page, found in faults.items() if found}, {})

    def test_relative_links_lead_to_a_file_and_a_heading(self):
        self.assert_no_faults(broken_links)

    def test_pages_that_other_files_name_exist(self):
        missing = {}
        for path in tracked():
            try:
                text = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
            for page in NAMED_PAGE.findall(text):
                if not (ROOT / page).exists():
                    missing.setdefault(page, []).append(name(path))
        self.assertEqual(missing, {})

    def test_the_summary_lists_each_page_of_the_manual_once(self):
        summary = ROOT / "docs" / "SUMMARY.md"
        listed = [f"docs/{link}" for link in links(summary.read_text(encoding="utf-8"))]
        pages = [name(path) for path in tracked("docs/*.md") if path != summary]
        self.assertEqual(sorted(listed), sorted(pages))

    def test_the_page_of_errors_lists_every_code_and_its_python_class(self):
        rust = (ROOT / "kvstore-core/src/types/error.rs").read_text(encoding="utf-8")
        python = (ROOT / "kvstore-python/python/mxkv/errors.py").read_text(encoding="utf-8")
        page = (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8")
        classes = python_classes(python)
        expected = [(code, classes[code]) for code in error_codes(rust)]
        self.assertEqual(documented_codes(page), expected)

    def test_the_page_of_variables_lists_every_variable_of_the_library(self):
        page = (ROOT / "docs/reference/environment.md").read_text(encoding="utf-8")
        sources = [path for path in tracked() if LIBRARY.fullmatch(name(path))]
        found = {}
        for path in sources:
            text = path.read_text(encoding="utf-8")
            found[name(path)] = undocumented_variables(path, text, page)
        self.assertIn("kvstore/src/dist.rs", found)
        self.assertEqual({file: names for file, names in found.items() if names}, {})

    def test_the_readme_is_short(self):
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        self.assertLessEqual(len(text.splitlines()), 120)
        self.assertLessEqual(len(text.split()), 750)

    def test_lines_and_cells_are_short(self):
        self.assert_no_faults(long_parts)


class TheChecks(unittest.TestCase):
    """The checks find planted faults."""

    PAGE = """# One `two`
[a](#one-two) [b](#three)
```sh
# Three
[c](gone.md)
```
`[d](gone.md)` # Four
## One two
"""

    def test_broken_links_are_found(self):
        path = ROOT / "README.md"
        self.assertEqual(broken_links(path, self.PAGE), ["#three: no such heading"])
        planted = {
            "[a](gone.md)": ["gone.md: no such file"],
            "[text\nof two lines](gone.md)": ["gone.md: no such file"],
            "[a](README.md#gone)": ["README.md#gone: no such heading"],
            "[a](README.md)": [],
            "[a](https://example.org/gone.md#b)": [],
        }
        for text, faults in planted.items():
            self.assertEqual(broken_links(path, text), faults)

    def test_long_lines_and_cells_are_found(self):
        line, cell = "word " * 21, "a b c d e f g h i"
        found = long_parts(ROOT / "README.md", f"{line}\n| a | {cell} |\n")
        self.assertEqual(found, [line, cell])

    def test_long_lines_are_found_in_the_reference(self):
        line, row = "word " * 21, "| a | a b c d e f g h i |"
        path = ROOT / "docs/reference/errors.md"
        self.assertEqual(long_parts(path, f"{line}\n{row}\n"), [line])

    def test_codes_are_read_from_sources_and_from_the_page(self):
        rust = "pub enum ErrorCode {\n    KeyNotFound = 0,\n    Io = 9,\n}\nenum B { C = 1, }"
        self.assertEqual(error_codes(rust), ["KeyNotFound", "Io"])
        python = 'CLASSES = {\n    "Io": StoreIOError,\n}\n'
        self.assertEqual(python_classes(python), {"Io": "StoreIOError"})
        page = "| code | a |\n|---|---|\n| `Io` | `StoreIOError`, `OSError` |\n| `Gone` | b |\n"
        self.assertEqual(documented_codes(page), [("Io", "StoreIOError"), ("Gone", None)])

    def test_undocumented_variables_are_found(self):
        text, page = "KVSTORE_GPUS, KVSTORE_NEW and KVSTORE_NEW", "`KVSTORE_GPUS`"
        files = {
            "kvstore-cuda/src/lib.rs": ["KVSTORE_NEW"],
            "clojure/src/main/java/A.java": ["KVSTORE_NEW"],
            "kvstore-python/python/mxkv/a.py": ["KVSTORE_NEW"],
            "clojure/src/test/java/A.java": [],
            "kvstore-dist/tests/a.rs": [],
            "tests/src/lib.rs": [],
            "scripts/a.py": [],
        }
        for file, names in files.items():
            self.assertEqual(undocumented_variables(ROOT / file, text, page), names, file)

    def test_anchors_are_those_of_github(self):
        self.assertEqual(anchors(self.PAGE), {"one-two", "one-two-1"})
        heading = "## Checkpoints: `checkpoint`, `save-states`\n"
        self.assertEqual(anchors(heading), {"checkpoints-checkpoint-save-states"})


if __name__ == "__main__":
    unittest.main()
