"""The Markdown pages: links, anchors, the list of pages, and the size of the README.

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


def cells(text):
    """Returns the cells of a page's tables."""
    rows = [line.strip().strip("|") for line in prose(text).splitlines() if line.startswith("|")]
    return [cell.strip() for row in rows for cell in row.split("|")]


def long_parts(path, text):
    """Returns the lines and the cells that are too long for a short page."""
    if not SHORT.fullmatch(name(path)):
        return []
    lines = [line for line in text.splitlines() if not line.startswith("|")]
    long_lines = [line for line in lines if len(line) > 100]
    return long_lines + [cell for cell in cells(text) if len(cell.split()) > 8]


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

    def test_anchors_are_those_of_github(self):
        self.assertEqual(anchors(self.PAGE), {"one-two", "one-two-1"})
        heading = "## Checkpoints: `checkpoint`, `save-states`\n"
        self.assertEqual(anchors(heading), {"checkpoints-checkpoint-save-states"})


if __name__ == "__main__":
    unittest.main()
