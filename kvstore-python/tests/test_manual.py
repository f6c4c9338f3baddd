"""Runs the Python code of the manual. The output must equal the comments after `print`."""

import contextlib
import io
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = ["README.md", *sorted(
    str(page.relative_to(ROOT))
    for folder in ["getting-started", "guides"]
    for page in (ROOT / "docs" / folder).glob("*.md")
)]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.S | re.M)


def programs():
    """Returns each block of Python code, with the name of its page."""
    texts = {page: (ROOT / page).read_text(encoding="utf-8") for page in PAGES}
    return [
        pytest.param(page, code, id=f"{page}-{number}")
        for page, text in texts.items()
        for number, code in enumerate(BLOCK.findall(text), 1)
    ]


@pytest.mark.parametrize(("page", "code"), programs())
def test_the_output_of_a_program_equals_its_comments(page, code):
    if "import torch" in code:
        pytest.importorskip("torch", reason="PyTorch is not installed")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, page, "exec"), {})
    expected = re.findall(r"^ *print\(.*  # (.*)$", code, re.M)
    assert expected
    assert printed.getvalue().splitlines() == expected


def test_pages_with_programs():
    pages = {program.values[0] for program in programs()}
    assert {"README.md", "docs/getting-started/python.md", "docs/guides/pytorch.md"} <= pages
