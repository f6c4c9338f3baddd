"""The examples of every docstring."""

import doctest
import importlib
import pkgutil

import mxkv
import pytest

MODULES = sorted(f"mxkv.{module.name}" for module in pkgutil.iter_modules(mxkv.__path__)) + ["mxkv"]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(name)
    results = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    print(f"{results.attempted} examples in {name}")
    assert results.failed == 0


def test_there_are_examples_in_the_native_module():
    finder = doctest.DocTestFinder(exclude_empty=True)
    tests = finder.find(mxkv._native, module=mxkv._native)
    assert sum(len(test.examples) for test in tests) > 10
