"""The notebook runs from its first cell to its last, and is kept without outputs.

Without Jupyter, whose fifty packages would be installed for one test: the cells are plain Python.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "deploy" / "python" / "articles.ipynb"


def code_cells() -> list[dict[str, Any]]:
    """The cells with code, in their order."""
    content = json.loads(NOTEBOOK.read_text("utf-8"))
    assert (4, "python") == (content["nbformat"], content["metadata"]["language_info"]["name"])
    return [cell for cell in content["cells"] if cell["cell_type"] == "code"]


def test_the_notebook_is_kept_without_outputs() -> None:
    """They would change with each run, and its cells use nothing but Python."""
    for cell in code_cells():
        assert ([], None) == (cell["outputs"], cell["execution_count"])
        ast.parse("".join(cell["source"]))


@pytest.mark.slow
@pytest.mark.usefixtures("shared_models")
def test_the_notebook_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """All cells in one namespace, as a kernel runs them; the last value of a cell is what it would show."""
    names: dict[str, Any] = {}
    shown = []
    for cell in code_cells():
        *statements, last = ast.parse("".join(cell["source"])).body
        exec(compile(ast.Module(statements, []), NOTEBOOK.name, "exec"), names)
        if isinstance(last, ast.Expr):
            shown.append(eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), names))
        else:
            exec(compile(ast.Module([last], []), NOTEBOOK.name, "exec"), names)
    printed = capsys.readouterr().out
    assert "('Angela Merkel', 'PER', " in printed
    assert "article 2 was refused: body is missing" in printed
    record, most, _ = shown
    assert b'"text":"Siemens"' in record
    assert {"LOC", "PER"} >= {label for (label, _), _ in most}
