"""The shape of the code: what the core may import, what must be explained, and how long things may be.

import-linter (`scripts/check`) checks which package may import which.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

import pytest
from support.order import LONGEST_FIRST, SLOW

PACKAGE = Path(__file__).parent.parent / "enricher"
FILES = sorted(PACKAGE.rglob("*.py"))
MAX_FILE_LINES, MAX_FUNCTION_LINES = 400, 60

Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    """A file's name inside the package."""
    return str(path.relative_to(PACKAGE))


def tree_of(path: Path) -> ast.Module:
    """A file as a syntax tree."""
    return ast.parse(path.read_text("utf-8"))


def functions_of(path: Path) -> Iterator[Function]:
    """All functions of a file, methods and inner ones included."""
    return (node for node in ast.walk(tree_of(path)) if isinstance(node, Function))


def length_of(function: Function) -> int:
    """Lines from `def` to the end."""
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


def imports_of(path: Path) -> Iterator[str]:
    """The modules that a file imports."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""


def unexplained(node: ast.Module | ast.ClassDef, inside: str) -> Iterator[str]:
    """Public classes, functions and methods without a docstring, by name. What is inside a function is its own affair."""
    for child in node.body:
        if isinstance(child, ast.ClassDef | Function) and not child.name.startswith("_"):
            if not ast.get_docstring(child):
                yield f"{inside}.{child.name}"
            if isinstance(child, ast.ClassDef):
                yield from unexplained(child, f"{inside}.{child.name}")


def test_there_is_something_to_look_at() -> None:
    """Guards the tests below against a folder that moved."""
    assert {"worker/loop.py", "core/offsets.py", "kafka/source.py"} <= {name_of(path) for path in FILES}


@pytest.mark.parametrize("path", sorted((PACKAGE / "core").glob("*.py")), ids=name_of)
def test_the_core_imports_nothing_but_the_standard_library_numpy_and_our_words(path: Path) -> None:
    """No clock, no client, no model: what decides can be tested by itself."""
    ours = ("enricher.core", "enricher.records", "enricher.errors")
    foreign = [
        name
        for name in imports_of(path)
        if not name.startswith(ours) and name.split(".")[0] not in {*sys.stdlib_module_names, "numpy"}
    ]
    assert foreign == []


@pytest.mark.parametrize("path", sorted((PACKAGE / "core").glob("*.py")), ids=name_of)
def test_the_core_has_no_clock_no_threads_no_input_and_no_logging(path: Path) -> None:
    """Of the standard library too, only what computes."""
    doing = {"asyncio", "datetime", "io", "logging", "os", "pathlib", "queue", "random", "socket", "threading", "time"}
    assert doing.isdisjoint(name.split(".")[0] for name in imports_of(path))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_everything_public_is_explained(path: Path) -> None:
    """Modules, classes, functions and methods have a docstring."""
    tree = tree_of(path)
    assert ast.get_docstring(tree), "the module says what its job is"
    assert list(unexplained(tree, path.stem)) == []


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_function_is_too_long(path: Path) -> None:
    """A function fits on a screen."""
    too_long = {function.name: length_of(function) for function in functions_of(path)}
    assert {name: lines for name, lines in too_long.items() if lines > MAX_FUNCTION_LINES} == {}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_file_is_too_long(path: Path) -> None:
    """A file with more is two ideas."""
    assert len(path.read_text("utf-8").splitlines()) <= MAX_FILE_LINES


def test_functions_are_short() -> None:
    """Half of them have ten lines at most, nine in ten less than thirty."""
    lengths = [length_of(function) for path in FILES for function in functions_of(path)]
    assert median(lengths) <= 10
    assert quantiles(lengths, n=10)[-1] < 30


def test_no_two_test_files_have_one_name() -> None:
    """Test folders are no packages, so pytest would take the second for the first."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


def test_the_lists_of_slow_tests_name_files_that_exist() -> None:
    """A file that moved would be quick, or last, without a word."""
    tests = Path(__file__).parent
    assert [name for name in (*LONGEST_FIRST, *SLOW) if not (tests / name).is_file()] == []
