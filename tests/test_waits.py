"""Every wait that the watchdog guards is in the table of its module, with its bound."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from enricher.worker.runtime import watchdog
from enricher.worker.settings import Settings

ROOT = Path(__file__).parent.parent
ROW = re.compile(r"^    (\S.*?) {2,}(\S.*)$", re.MULTILINE)
SETTING = re.compile(r"[a-z]+\.[a-z_]+")


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


def bounds(table: str) -> dict[str, str]:
    """The bound of each guard in the table."""
    return {label: bound for labels, bound in ROW.findall(table) for label in labels.split(", ")}


def test_the_table_has_every_guard_and_no_other() -> None:
    """A new guard needs a row; the row of one that is gone goes."""
    codes = (path.read_text("utf-8") for path in sorted((ROOT / "enricher").rglob("*.py")))
    guards = {label for code in codes if "guard" in code for label in labels_in(code)}
    assert guards == set(bounds(watchdog.__doc__ or ""))


def test_the_table_names_settings_that_exist() -> None:
    """A bound follows from settings, which may be renamed."""
    groups = {name: getattr(field.annotation, "model_fields", ()) for name, field in Settings.model_fields.items()}
    named = SETTING.findall(" ".join(bounds(watchdog.__doc__ or "").values()))
    assert len(named) > 10
    assert [] == [name for name in named if name.partition(".")[2] not in groups[name.partition(".")[0]]]


def test_a_guard_without_a_row_would_be_found() -> None:
    """A negative control of the comparison."""
    assert ["asking a volcano"] == list(labels_in('with self._guard("asking a volcano", 3.0): pass'))
    assert {"asking a volcano": "3 s", "asking the sea": "3 s"} == bounds("    asking a volcano, asking the sea    3 s")
    with pytest.raises(AssertionError, match="literal"):
        list(labels_in("with watchdog.guard(name, 3.0): pass"))
