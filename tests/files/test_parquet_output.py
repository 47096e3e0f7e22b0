"""The output in Parquet: one row for each of the input, in parts that are complete or not there."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest
from support.task_records import record_of_tasks

from enricher.errors import FatalError, SettingsError
from enricher.worker.articles.enriched import encode_record, serialise_findings
from enricher.worker.articles.formats.record_values import json_of, record_values
from enricher.worker.files import parquet_output
from enricher.worker.files.exchange import Answer
from enricher.worker.files.parquet_output import ParquetOutput, output_schema
from enricher.worker.records import DeadLetter

ENDS = (2, 5, 6)
"""Row groups of two, three and one row."""
IDENTITY = {"input": "a", "model": [["m", "0", "fp32"]]}
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


def answers(*numbers: int) -> Sequence[Answer[Any]]:
    """The answers for these rows; that for the last one is a refusal."""
    return [Answer(number, REFUSED if number == ENDS[-1] - 1 else record(number)) for number in numbers]


def output(path: Path, **identity: object) -> ParquetOutput:
    """The output of a run."""
    return ParquetOutput(path, group_ends=ENDS, identity=IDENTITY | identity)


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, without what is null."""
    return [{name: value for name, value in row.items() if value is not None} for row in read(path)]


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a file. `read_table` would import all of pyarrow's datasets."""
    with pq.ParquetFile(path) as file:
        rows: list[dict[str, Any]] = file.read().to_pylist(maps_as_pydicts="strict")
    return rows


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The rows of one run."""
    path = tmp_path_factory.mktemp("once") / "a.parquet"
    whole = output(path)
    whole.write(answers(*range(6)))
    whole.finish()
    return rows_of(path)


def test_records_of_every_kind_of_task_are_as_in_json(tmp_path: Path) -> None:
    """Vectors, halves, texts of JSON and nulls come back byte for byte."""
    found = serialise_findings(record_of_tasks())
    written = ParquetOutput(tmp_path / "a", group_ends=[1], identity={})
    written.write([Answer(0, record_values(found))])
    written.finish()
    (row,) = read(tmp_path / "a")
    assert row.pop("refused") is None
    expected = encode_record(found)
    assert orjson.loads(expected) == orjson.loads(json_of(row))


def test_each_row_has_a_row_and_a_refused_one_its_reason(tmp_path: Path) -> None:
    """In the order of the input, and nothing else is left."""
    path = tmp_path / "records.parquet"
    written = output(path)
    written.write(answers(0, 1, 2))
    written.write(answers(3, 4, 5))
    assert not path.exists()
    written.finish()
    rows = rows_of(path)
    assert [record(number)["id"] for number in range(5)] == [row["id"] for row in rows[:5]]
    assert [{"refused": {"stage": "decode", "error_type": "InvalidArticle", "reason": "body is missing"}}] == rows[5:]
    assert [path] == [*tmp_path.iterdir()]
    assert pq.read_schema(path).equals(output_schema())


@pytest.mark.parametrize(("before", "expected"), [((), 0), ((0,), 0), ((0, 1), 2), ((0, 1, 2, 3), 2), (range(6), 6)])
def test_a_later_run_continues_with_the_first_row_group_that_is_not_complete(
    tmp_path: Path, once: list[dict[str, Any]], before: Sequence[int], expected: int
) -> None:
    """What was written of it is written again, and the result is that of one run."""
    path = tmp_path / "a.parquet"
    killed = output(path)
    killed.write(answers(*before))
    del killed  # without a word, as after kill -9
    later = output(path)
    assert expected == later.first_row
    later.write(answers(*range(expected, 6)))
    later.finish()
    assert once == rows_of(path)
    assert [path] == [*tmp_path.iterdir()]


def test_two_runs_at_once_do_not_write_into_one_file(
    tmp_path: Path, once: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that was started again while its first pod still runs: each part is that of one of them."""
    monkeypatch.setattr(parquet_output, "_ROWS_AT_ONCE", 1)
    path = tmp_path / "a.parquet"
    both = output(path), output(path)
    for number in range(6):
        for each in both:
            each.write(answers(number))
    both[0].finish()
    assert once == rows_of(path)


def test_parts_of_another_run_are_not_continued(tmp_path: Path) -> None:
    """Another input or model would make other rows; the message says what differs and what to do."""
    path = tmp_path / "a.parquet"
    output(path).write(answers(0, 1))
    with pytest.raises(
        SettingsError, match=r"a\.parquet\.partial has the rows of an earlier run with another model: .*delete"
    ):
        output(path, model=[["m", "1", "fp32"]])
    assert 2 == output(path).first_row


def test_a_run_that_is_killed_before_its_first_part_can_be_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of the parts is not there without the file that says whose it is."""

    def killed(*_arguments: object) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "a.parquet"
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", killed)
        with pytest.raises(KeyboardInterrupt):
            output(path)
    again = output(path)
    again.write(answers(*range(6)))
    again.finish()
    assert [path] == [*tmp_path.iterdir()]


@pytest.mark.parametrize("nth", range(1, 5))
def test_a_run_that_is_killed_while_it_finishes_can_be_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    """Whatever it has renamed or removed by then: the next run has the same output."""
    path, calls = tmp_path / "a.parquet", itertools.count(1)

    def until_killed(as_shipped: Callable[..., Any]) -> Callable[..., Any]:
        def dying(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401  of any call
            if next(calls) == nth:
                raise KeyboardInterrupt
            return as_shipped(*arguments, **options)

        return dying

    killed = output(path)
    killed.write(answers(*range(6)))
    with monkeypatch.context() as patched:
        for module, name in ((Path, "replace"), (os, "unlink"), (os, "rmdir")):
            patched.setattr(module, name, until_killed(getattr(module, name)))
        with pytest.raises(KeyboardInterrupt):
            killed.finish()
    again = output(path)
    again.write(answers(*range(again.first_row, 6)))
    again.finish()
    assert [str(number) for number in range(5)] == [row["id"] for row in rows_of(path) if "id" in row]
    assert [path] == [*tmp_path.iterdir()]


def test_a_folder_that_is_in_the_way_is_not_touched(tmp_path: Path) -> None:
    """It may be anybody's."""
    (tmp_path / "a.parquet.partial").mkdir()
    (tmp_path / "a.parquet.partial" / "mine").touch()
    with pytest.raises(SettingsError, match="in the way"):
        output(tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet.partial" / "mine").exists()


def test_a_large_row_group_is_written_in_pieces(tmp_path: Path) -> None:
    """Its rows need not fit into memory."""
    path = tmp_path / "a.parquet"
    written = ParquetOutput(path, group_ends=[2_500], identity={})
    for first in range(0, 2_500, 500):
        written.write([Answer(number, record(number)) for number in range(first, first + 500)])
    written.finish()
    with pq.ParquetFile(path) as file:
        assert [1_000, 1_000, 500] == [file.metadata.row_group(each).num_rows for each in range(file.num_row_groups)]


def test_an_input_without_rows_has_an_output_without_rows(tmp_path: Path) -> None:
    """A file with the columns."""
    ParquetOutput(tmp_path / "a.parquet", group_ends=[], identity={}).finish()
    assert 0 == pq.read_metadata(tmp_path / "a.parquet").num_rows


def test_an_output_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """With its name and the system's reason."""
    with pytest.raises(FatalError, match=r"cannot write .*nowhere.*No such file"):
        output(tmp_path / "nowhere" / "a.parquet")
