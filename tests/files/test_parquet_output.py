"""The output in Parquet: one row for each of the input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest
from support.task_records import record_of_tasks

from enricher.errors import FatalError
from enricher.worker.articles.record_values import encode_record, json_of, record_values, serialise_findings
from enricher.worker.files.exchange import Answer
from enricher.worker.files.parquet import ParquetOutput, output_schema
from enricher.worker.records import DeadLetter

REFUSED = DeadLetter("decode", "InvalidArticle", "body is missing")


def record(number: int) -> dict[str, Any]:
    """The values of a small record."""
    return {
        "schema_version": 1,
        "id": str(number),
        "entities": [{"field": "body", "start": 0, "end": 1, "text": "x", "label": "PER", "score": 0.5}],
        "model": {"name": "m", "digest": "0", "precision": "fp32"},
        "coverage": {"tokens": 1, "windows": 1, "truncated": False},
        "metadata": {"section": '"world"'},
    }


def written(path: Path, *calls: list[Answer[Any]]) -> Path:
    """The file after these calls of `write`."""
    with path.open("wb") as stream:
        output = ParquetOutput(stream)
        for answers in calls:
            output.write(answers)
        output.close()
    return path


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a file. `read_table` would import all of pyarrow's datasets."""
    with pq.ParquetFile(path) as file:
        rows: list[dict[str, Any]] = file.read().to_pylist(maps_as_pydicts="strict")
    return rows


def test_records_of_every_kind_of_task_are_as_in_json(tmp_path: Path) -> None:
    """Vectors, halves, texts of JSON and nulls come back byte for byte."""
    found = serialise_findings(record_of_tasks())
    (row,) = read(written(tmp_path / "a", [Answer(0, record_values(found))]))
    assert row.pop("refused") is None
    expected = encode_record(found)
    assert orjson.loads(expected) == orjson.loads(json_of(row))


def test_each_row_has_a_row_and_a_refused_one_its_reason(tmp_path: Path) -> None:
    """In the order of the input."""
    answers = [Answer(0, record(0)), Answer(1, REFUSED)]
    path = written(tmp_path / "a.parquet", answers, [Answer(2, record(2))])
    first, refused, last = read(path)
    assert ("0", None, "2", None) == (first["id"], first["refused"], last["id"], last["refused"])
    reasons = {"stage": "decode", "error_type": "InvalidArticle", "reason": "body is missing"}
    assert {"refused": reasons} == {name: value for name, value in refused.items() if value is not None}
    assert pq.read_schema(path).equals(output_schema())


def test_rows_are_written_in_pieces(tmp_path: Path) -> None:
    """They need not fit into memory."""
    calls = [[Answer(number, record(number)) for number in range(first, first + 500)] for first in range(0, 2_500, 500)]
    path = written(tmp_path / "a.parquet", *calls)
    with pq.ParquetFile(path) as file:
        assert [1_000, 1_000, 500] == [file.metadata.row_group(each).num_rows for each in range(file.num_row_groups)]


def test_an_input_without_rows_has_an_output_without_rows(tmp_path: Path) -> None:
    """A file with the columns."""
    assert 0 == pq.read_metadata(written(tmp_path / "a.parquet")).num_rows


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full here")
def test_an_output_that_cannot_be_written_is_an_error() -> None:
    """With its name and the system's reason."""
    with (
        Path("/dev/full").open("wb", buffering=0) as stream,
        pytest.raises(FatalError, match=r"cannot write /dev/full: .*No space"),
    ):
        ParquetOutput(stream).close()
