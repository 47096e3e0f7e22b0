"""The examples: the notebook runs from its first cell to its last; Ray Data gives the records that the worker gives.

Without Jupyter, whose fifty packages would be installed for one test: the cells are plain Python.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.patience import PATIENCE_S

from enricher import Enricher

EXAMPLES = Path(__file__).parents[2] / "deploy" / "python"
NOTEBOOK = EXAMPLES / "articles.ipynb"
ARTICLES = 2_000
RAY = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "RAY_raylet_start_wait_time_s": "240"}
"""Sends nothing, writes no token to the home folder, and has time to start on a busy machine."""


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


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed; scripts/test --all adds it")
def test_ray_data_gives_the_records_of_the_worker(tmp_path: Path) -> None:
    """From several files, in batches, by actors; each article once, and a bad one with its reason."""
    rows = [
        {"id": str(number), "title": "", "body": f"Ana Ribeiro met number {number} in Oslo."}
        for number in range(ARTICLES)
    ]
    rows[7]["body"] = ""
    for part in range(4):
        file = tmp_path / "articles" / f"{part}.parquet"
        file.parent.mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows[part::4]), file, row_group_size=200)
    subprocess.run(
        [sys.executable, EXAMPLES / "enrich_with_ray.py", tmp_path / "articles", tmp_path / "records"],
        env={**os.environ, **RAY},
        check=True,
        timeout=4 * PATIENCE_S,
    )
    found = {row["id"]: row for row in pq.read_table(tmp_path / "records").to_pylist()}
    assert ARTICLES == len(found) == pq.read_table(tmp_path / "records").num_rows
    assert "title and body have no visible character" == found.pop("7")["reason"]
    with Enricher.load() as enricher:
        expected = {each.id: each.json().decode() for each in enricher.enrich(rows) if each.reason is None}
    assert expected == {name: row["record"] for name, row in found.items()}
