"""Runs the code of three pages that describe MXNet's store. Each block must print what the page
shows.

The pages import ``mxnet``, some are for Python 2, and one has lost its indentation. The test prints
every replacement. ``NOTICE`` names the sources of the pages.
"""

import ast
import contextlib
import io
import pathlib
import re

import pytest

import mxkv as mx

FOLDER = pathlib.Path(__file__).parent / "documents"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.S | re.M)


#: The replacements in the current page.
replaced = []


@pytest.fixture(autouse=True)
def report(request, capsys):
    replaced.clear()
    yield
    mx.npx.reset_np()
    with capsys.disabled():
        print(f"\n{request.node.name} replaced:", *replaced, sep="\n    ")


def replace(line, why, pattern, by):
    new = re.sub(pattern, by, line)
    if new != line:
        replaced.append(f"{why}: {line.strip()} -> {new.strip()}")
    return new


def today(line):
    """Converts a line of a page to this package and Python 3."""
    line = replace(line, "import", r"^from d2l import mxnet as d2l$", "")
    line = replace(line, "import", r"^from mxnet import", "from mxkv import")
    line = replace(line, "no shell and no help", r"^(!pip .*|help\(.*\))$", "")
    line = replace(line, "Python 3", r"^(\s*)print (.*)$", r"\1print(\2)")
    if mx.num_gpus() < 4:
        line = replace(line, "no four GPUs", r"mx\.gpu\b", "mx.cpu")
    return line


def indented(lines):
    """Restores the indentation of function bodies where the page has lost it. A body ends at the
    next call of the store.
    """
    is_body = False
    for line in lines:
        is_body = is_body and not line.startswith("kv.")
        if is_body and not line.startswith(" "):
            replaced.append(f"indentation: {line}")
            line = f"    {line}"
        yield line
        is_body = is_body or line.startswith("def ")


def steps(text):
    """Yields pairs of code and the output that the page shows for it."""
    code, shown = [], []
    for line in text.splitlines():
        if line.startswith(">>>"):
            if shown:
                yield code, shown
                code, shown = [], []
            code.append(line[4:])
        else:
            shown.append(line)
    yield code, shown


def run(code, names):
    """Runs code as at the Python prompt, and returns its output."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "page", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "page", "eval"), names)
            if value is not None:
                print(repr(value))
    return printed.getvalue()


def normal(text):
    return re.sub(r"\[ +", "[", re.sub(r"\s+", " ", text)).strip()


def check(code, shown, names):
    code = "\n".join(indented([today(line) for line in code]))
    assert normal(run(code, names)) == normal("\n".join(shown)), code


@pytest.mark.parametrize(
    ("page", "expected"), [("mxnet_kvstore_api.md", 7), ("mxnet_kvstore_api_zh.md", 7)]
)
def test_page_with_prompts(page, expected):
    names = {"mx": mx}
    replaced.append("import: the pages have none -> import mxkv as mx")
    blocks = BLOCK.findall((FOLDER / page).read_text(encoding="utf-8"))
    for _, text in blocks:
        for code, shown in steps(text):
            check(code, shown, names)
    assert len(blocks) == expected


def test_page_with_cells():
    names = {}
    blocks = BLOCK.findall((FOLDER / "d2l_key_value_store.md").read_text(encoding="utf-8"))
    num_cells = 0
    for position, (kind, text) in enumerate(blocks):
        if kind == "python":
            following = blocks[position + 1] if position + 1 < len(blocks) else ("", "")
            shown = following[1] if following[0] == "text" else ""
            check(text.splitlines(), shown.splitlines(), names)
            num_cells += 1
    assert num_cells == 12
