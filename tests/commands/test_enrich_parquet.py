"""`enrich` from and to Parquet: the records, what is refused before the model is loaded, and an interruption."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands.cli_runner import article, json_lines, run
from support.forked import Forked
from support.patience import PATIENCE_S, wait_until
from support.stub_worker import STUB_WORKER

from enricher.errors import NotEnriched, SettingsError
from enricher.worker.articles.record_values import json_of
from enricher.worker.commands import enrich


def archive(path: Path, rows: Sequence[dict[str, Any]], group_rows: int = 1_000) -> Path:
    """The rows as a Parquet file."""
    pq.write_table(pa.Table.from_pylist([*rows]), path, row_group_size=group_rows)
    return path


def records_of(path: Path) -> list[Any]:
    """The records of an output as the values of their JSON; nothing for a refused row."""
    rows = pq.read_table(path).to_pylist(maps_as_pydicts="strict")
    return [orjson.loads(json_of({**row, "refused": None})) for row in rows if row["refused"] is None]


@pytest.mark.usefixtures("shared_models")
def test_an_archive_gives_the_records_of_the_same_lines(tmp_path: Path) -> None:
    """With what the settings map and repeat, to the last digit; a bad row is a row with the reason."""
    rows: list[dict[str, Any]] = [article(str(number), body=f"Ana {number} lives in Lisbon.") for number in range(8)]
    rows = [row | {"desk": {"name": "world"}} for row in rows]
    rows[5]["body"] = None
    file, lines = archive(tmp_path / "a.parquet", rows, 3), tmp_path / "a.jsonl"
    lines.write_text(json_lines(*rows), "utf-8")
    env = {"ENRICHER_ARTICLES__METADATA": '{"section": "/desk/name"}'}
    output = tmp_path / "records.parquet"
    for source, names in ((file, ["--out", str(output)]), (lines, ["-o", "lines"]), (file, ["-o", "of-rows"])):
        assert 0 == run("enrich", str(source), *names, env=env).exit_code
    assert [orjson.loads(line) for line in Path("lines").read_bytes().splitlines()] == records_of(output) != []
    assert Path("lines").read_bytes() == Path("of-rows").read_bytes()
    assert "body is not a string" == pq.read_table(output).to_pylist()[5]["refused"]["reason"]
    assert isinstance(run("enrich", str(file), "-o", str(output), "--strict", env=env).exception, NotEnriched)


@pytest.fixture
def _no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object, **__: object) -> None:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(enrich, "load_tasks", load)


@pytest.mark.usefixtures("_no_model")
def test_what_cannot_be_done_is_refused_before_the_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns that are missing, an output that does not fit its input, and Parquet without the extra, each by name."""
    file, lines = archive(tmp_path / "a.parquet", [{"uuid": "a", "body": "x"}]), tmp_path / "a.jsonl"
    lines.write_text(json_lines(article("a")), "utf-8")
    mapped = {"ENRICHER_ARTICLES__FIELDS": '{"id": "/uuid"}'}

    def refusal(*arguments: str, env: dict[str, str] | None = None) -> str:
        error = run("enrich", *arguments, env=env).exception
        assert isinstance(error, SettingsError)
        return str(error)

    assert "no column for id at /id (articles.fields)" in refusal(str(file))
    (tmp_path / "folder.parquet").mkdir()
    assert "is a folder" in refusal(str(file), "-o", str(tmp_path / "folder.parquet"), env=mapped)
    assert "--dead-letters: " in refusal(str(file), "-o", "b.parquet", "--dead-letters", "c", env=mapped)
    assert "b.parquet: only articles in Parquet" in refusal(str(lines), "-o", "b.parquet")
    assert "must be different files" in refusal(str(file), "-o", str(file), env=mapped)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert refusal(str(file)) == f"{file} is Parquet, which needs pyarrow: pip install 'kafka-enricher[parquet]'"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no signal to send")
def test_an_interrupted_run_leaves_what_it_has_beside_the_output(tmp_path: Path) -> None:
    """The rows so far can be read; the same command begins again, and the file gets its name when it is whole."""
    rows = [{"id": str(each), "body": "It rained all day. " * (each % 9 + 1)} for each in range(20_000)]
    file = archive(tmp_path / "a.parquet", rows, 250)
    output, partial, log = tmp_path / "records.parquet", tmp_path / "records.parquet.partial", tmp_path / "log"

    def started() -> Forked:
        return Forked([STUB_WORKER, "enrich", str(file), "--out", str(output)], os.environ, log)

    with started() as process:
        wait_until(lambda: partial.exists() and partial.stat().st_size > 10_000, PATIENCE_S, "some rows", every_s=0.01)
        process.terminate()
        assert 128 + signal.SIGTERM == process.wait(PATIENCE_S), log.read_text("utf-8")
    some = pq.read_table(partial)["id"].to_pylist()
    assert [str(each) for each in range(len(some))] == some
    assert 0 < len(some) < len(rows)
    assert not output.exists()
    with started() as process:
        assert 0 == process.wait(PATIENCE_S), log.read_text("utf-8")
    assert [str(each) for each in range(20_000)] == pq.read_table(output)["id"].to_pylist()
    assert not partial.exists()
