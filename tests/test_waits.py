"""The page about waits: what it names exists, and every bound of the watchdog has a row."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from deploy.monitoring.generator.exported import instruments_by_series
from enricher.worker.settings import Settings
from enricher.worker.telemetry.prometheus import prometheus_name

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "deploy" / "waits.md"
COLUMNS = 5
CODE = re.compile(r"`([^`]+)`")
GUARD = re.compile(r"guard `([^`]+)`", re.IGNORECASE)
TEST = re.compile(r"(tests/[\w/]+/test_\w+\.py)::(test_\w+)")
SETTING = re.compile(r"[a-z]+\.[a-z_]+")
METRIC = re.compile(r"(?:enricher|messaging|process|hw)_[a-z_]+")


def rows(page: str) -> list[list[str]]:
    """The cells of each wait: of the tables that have a column for tests."""
    lines = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line] for line in lines if len(line) == COLUMNS and "---" not in line[0]]


@cache
def guarded() -> set[str]:
    """The label of every guard that the package opens. Each is a literal, so that this test can read it."""
    codes = (path.read_text("utf-8") for path in sorted((ROOT / "enricher").rglob("*.py")))
    return {label for code in codes if "guard" in code for label in labels_in(code)}


def labels_in(code: str) -> Iterator[str]:
    """The first argument of each call of something called `guard`; a call without arguments passes a label on."""
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in {"guard", "_guard"}:
            label = node.args[0]
            assert isinstance(label, ast.Constant), f"line {node.lineno}: the label of a guard is a literal"
            yield str(label.value)


def unknown(page: str) -> Iterator[str]:
    """What a page names that does not exist: tests, settings, metrics and guards."""
    settings = {f"{group}.{name}" for group, field in Settings.model_fields.items() for name in fields_of(field)}
    instruments, labels = instruments_by_series(), guarded()
    series = {*instruments, *map(prometheus_name, instruments.values())}
    for path, test in TEST.findall(page):
        if test not in collected_from(ROOT / path):
            yield f"{path}::{test}"
    for code in CODE.findall(page):
        if (SETTING.fullmatch(code) and code not in settings) or (METRIC.fullmatch(code) and code not in series):
            yield code
    yield from (label for label in GUARD.findall(page) if label not in labels)


def fields_of(field: object) -> set[str]:
    """The names of the settings of a group."""
    return set(getattr(getattr(field, "annotation", None), "model_fields", ()))


def collected_from(path: Path) -> set[str]:
    """The tests that pytest collects from a file."""
    if not path.is_file():
        return set()
    return {node.name for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.slow
def test_what_the_page_names_exists() -> None:
    """Its tests, settings, metrics and guards."""
    assert [] == list(unknown(PAGE.read_text("utf-8")))


def test_every_guard_of_the_watchdog_is_on_the_page() -> None:
    """A new wait that is guarded needs a row."""
    assert set() == guarded() - set(GUARD.findall(PAGE.read_text("utf-8")))


def test_every_wait_has_a_bound_something_that_shows_it_an_end_and_a_test() -> None:
    """No cell is empty, and the last one names a test."""
    waits = rows(PAGE.read_text("utf-8"))[1:]
    assert waits
    headings = [row for row in waits if row[-1] == "test"]
    assert [] == [row[0] for row in waits if row not in headings and (not all(row) or not TEST.search(row[-1]))]


@pytest.mark.parametrize(
    "name",
    [
        "tests/loop/test_pool.py::test_that_nobody_wrote",
        "tests/loop/test_nowhere.py::test_a_hung_run_does_not_block_close",
        "worker.no_such_timeout_s",
        "enricher_no_such_seconds",
    ],
)
def test_a_name_that_does_not_exist_is_found(name: str) -> None:
    """A negative control."""
    assert [name] == list(unknown(f"| a | b | c | d | `{name}` |"))


def test_a_guard_without_a_row_is_found_and_a_row_without_a_guard_too() -> None:
    """A negative control of the other two comparisons."""
    assert ["asking a volcano"] == list(labels_in('with self._guard("asking a volcano", 3.0): pass'))
    assert ["asking a volcano"] == list(unknown("guard `asking a volcano`"))
    with pytest.raises(AssertionError, match="literal"):
        list(labels_in("with watchdog.guard(name, 3.0): pass"))
