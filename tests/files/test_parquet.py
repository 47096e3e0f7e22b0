"""Parquet: types, nulls, nesting and mappings as JSON would have them, refusals before any work, and a row for each row."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.patience import PATIENCE_S
from support.records import record_of_tasks

from enricher.errors import FatalError, SettingsError
from enricher.worker.articles.record_values import encode_record, json_of, record_values, serialise_findings
from enricher.worker.files.exchange import Answer
from enricher.worker.files.parquet import ParquetOutput, ParquetSource, Wanted, choose_columns, output_schema
from enricher.worker.records import DeadLetter


class Anybody:
    """A listener that does nothing."""

    def assigned(self, partitions: object) -> None:
        """Nothing to do."""

    revoked = lost = assigned


def wanted(
    fields: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] | None = None,
    *,
    scalar_ids: bool = False,
    whole: bool = False,
    deleted: Sequence[str] = (),
) -> Wanted:
    """What is read, by default the fields of an article."""
    return Wanted(fields or {}, metadata or {}, scalar_ids=scalar_ids, whole=whole, deleted=deleted)


def values_of(path: Path, asked: Wanted) -> list[tuple[int, Any]]:
    """The offset and the document of each record that a worker would get."""
    source, found = ParquetSource(path, asked), []
    source.open(Anybody())
    while not source.caught_up():
        for record in source.poll(7, PATIENCE_S):
            value = record.value or b""
            found.append((record.offset, orjson.loads(value) if value != b"\xff" else value))
        source.note_committed(source.positions([source.partition]))
    return found


def written(path: Path, table: pa.Table, **options: Any) -> Path:  # noqa: ANN401  as in pyarrow
    """The table as a file."""
    pq.write_table(table, path, **options)
    return path


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int32(), pa.large_string()),
        pa.binary(),
    ],
    ids=str,
)
def test_text_of_every_type_is_read(tmp_path: Path, kind: pa.DataType) -> None:
    """Also text in dictionaries, as pandas writes categories, and bytes, as older writers have it; null is null."""
    texts = pa.array(["Zürich", None, ""]).cast(kind)
    path = written(tmp_path / "a", pa.table({"id": pa.array(["a", "b", "c"]), "body": texts}))
    assert ["Zürich", None, ""] == [document["body"] for _, document in values_of(path, wanted())]


def test_a_row_that_is_not_text_is_refused_alone(tmp_path: Path) -> None:
    """Its bad value becomes one that the reader of articles refuses: in a binary column, and in one of text as well."""
    binary = pa.array([b"\xfc", b"x"], pa.binary())
    for body in (binary, binary.view(pa.string())):
        table = pa.table({"id": ["a", "b"], "body": body})
        assert [(0, b"\xff"), (1, {"id": "b", "body": "x"})] == values_of(written(tmp_path / "a", table), wanted())


def test_fields_are_found_by_pointers_and_only_their_columns_read(tmp_path: Path) -> None:
    """In structs and lists; a null struct is as in JSON, and the neighbours of a field in its struct stay on disk."""
    rows = [
        {
            "uuid": 7,
            "content": {"text": ["one", "two"], "price": Decimal("1.5")},
            "desk": [{"name": "world"}],
            "big": b"\xff",
        },
        {"uuid": 8, "content": None, "desk": [], "big": None},
    ]
    path = written(tmp_path / "a", pa.Table.from_pylist(rows))
    asked = wanted({"id": "/uuid", "body": "/content/text"}, {"section": "/desk/0/name"}, scalar_ids=True)
    with pq.ParquetFile(path) as file:
        assert ["uuid", "content.text", "desk"] == choose_columns(file.schema_arrow, asked)
    expected = [
        {"uuid": 7, "content": {"text": ["one", "two"]}, "desk": [{"name": "world"}]},
        {"uuid": 8, "content": None, "desk": []},
    ]
    assert expected == [document for _, document in values_of(path, asked)]


@pytest.mark.parametrize(
    "items", [pa.list_, pa.large_list, lambda kind: pa.list_(kind, 3)], ids=["list", "large", "fixed"]
)
@pytest.mark.parametrize("options", [{}, {"use_compliant_nested_type": False}], ids=["element", "item"])
def test_of_a_list_of_blocks_only_the_text_is_read(
    tmp_path: Path, items: Callable[[pa.DataType], pa.DataType], options: Mapping[str, Any]
) -> None:
    """Whatever the writer called the items: what JSON does not have may lie beside the text, and stays on disk."""
    text = pa.struct([("de", pa.string()), ("text", pa.string())])
    block = pa.struct([("kind", pa.string()), ("text", text), ("width", pa.decimal128(9, 2)), ("picture", pa.binary())])
    blocks = [
        {"text": {"text": "one", "de": "eins"}},
        None,
        {"text": None, "width": Decimal("1.5"), "picture": b"\xff"},
    ]
    columns = {"id": ["a", "b"], "blocks": pa.array([blocks, None], items(block))}
    path = written(tmp_path / "a", pa.table(columns), **options)
    asked = wanted({"body": "/blocks/*/text/text"})
    with pq.ParquetFile(path) as file:
        assert ["id", "blocks.*.text.text"] == choose_columns(file.schema_arrow, asked)
    (_, first), (_, second) = values_of(path, asked)
    assert [{"text": {"text": "one"}}, None, {"text": None}] == first["blocks"]
    assert {"id": "b", "blocks": None} == second


def test_a_time_in_a_year_that_python_does_not_have_is_text(tmp_path: Path) -> None:
    """It is refused as text, or kept as metadata; the rows beside it are as ever."""
    times = pa.array([0, 10**18, 0]).cast(pa.timestamp("us", "UTC"))
    seen = pa.StructArray.from_arrays([pa.array([0, 0, 2**61]).cast(pa.timestamp("us"))], names=["at"])
    table = pa.table({"id": list("abc"), "body": ["x"] * 3, "published_at": times, "seen": seen})
    path = written(tmp_path / "a.parquet", table)
    rows = [row for _, row in values_of(path, wanted(metadata={"at": "/seen/at"}))]
    assert [row["published_at"] for row in rows[::2]] == ["1970-01-01T00:00:00+00:00", "1970-01-01 00:00:00.000000Z"]
    assert rows[1]["published_at"].endswith("01:46:40.000000Z")
    assert [row["seen"]["at"] for row in rows[:2]] == ["1970-01-01T00:00:00", "1970-01-01 00:00:00.000000"]
    assert rows[2]["seen"]["at"] == "<value out of range: 2305843009213693952>"


@pytest.mark.parametrize(
    "items", [pa.list_, pa.large_list, lambda kind: pa.list_(kind, 1)], ids=["list", "large", "fixed"]
)
@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_dates_and_times_are_iso_8601(tmp_path: Path, unit: str, items: Callable[[pa.DataType], pa.DataType]) -> None:
    """In lists and structs, with and without a zone; nanoseconds, which Python's times have not, are cut."""
    moment = dt.datetime(2026, 3, 1, 12, 30, 15)  # noqa: DTZ001  without a zone
    times = (
        pa.array([1_772_368_215_000_000_001])
        .cast(pa.timestamp("ns", "UTC"))
        .cast(pa.timestamp(unit, "UTC"), safe=False)
    )
    columns = {
        "id": ["a"],
        "body": ["x"],
        "published_at": times,
        "seen": pa.array([{"at": moment}], pa.struct([("at", pa.timestamp(unit))])),
        "days": pa.array([[moment.date()]], items(pa.date32())),
        "times": pa.array([[1_000_000_001]], items(pa.time64("ns"))),
    }
    path = written(tmp_path / "a", pa.table(columns))
    ((_, document),) = values_of(path, wanted(metadata={"seen": "/seen/at", "days": "/days", "times": "/times"}))
    assert "2026-03-01T12:30:15+00:00" == document["published_at"]
    assert {"at": "2026-03-01T12:30:15"} == document["seen"]
    assert (["2026-03-01"], ["00:00:01"]) == (document["days"], document["times"])


SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("body", pa.list_(pa.int32())),
        ("price", pa.decimal128(9, 2)),
        ("tags", pa.map_(pa.string(), pa.string())),
        ("image", pa.binary()),
        ("dots.in", pa.struct([("a", pa.string())])),
        ("blocks", pa.list_(pa.struct([("words", pa.list_(pa.string())), ("number", pa.int8())]))),
    ]
)


@pytest.mark.parametrize(
    ("asked", "mistakes"),
    [
        (
            wanted(),
            ["id at /id has the type int64, which is not text: articles.scalar_ids", "body at /body has the type list"],
        ),
        (
            wanted({"id": "/uuid", "body": "/dots.in/a", "title": "/headline"}),
            ["no column for id at /uuid", "no column for title at /headline"],
        ),
        (
            wanted({"body": "/dots.in/a"}, {"p": "/price", "t": "/tags", "i": "/image", "n": "/id/x"}, scalar_ids=True),
            [
                "p at /price has the type decimal",
                "t at /tags has",
                "i at /image has the type binary",
                "no column for n at",
            ],
        ),
        (
            wanted({"body": "/blocks/*/words"}, scalar_ids=True),
            ["body at /blocks/*/words has the type list<"],
        ),
        (wanted({"body": "/blocks/*/text"}, scalar_ids=True), ["no column for body at /blocks/*/text"]),
        (wanted({"body": "/dots.in/a"}, scalar_ids=True, deleted=["/op"]), ["no column at /op (articles.deleted)"]),
        (wanted({"body": "/dots.in/*"}, scalar_ids=True), ["no column for body at /dots.in/*"]),
        (
            wanted({"body": "/dots.in/a"}, scalar_ids=True, whole=True),
            [
                "column price has",
                "column tags has",
                "column image has the type binary, which JSON does not have (output",
            ],
        ),
    ],
)
def test_columns_that_cannot_be_read_are_named_before_any_work(asked: Wanted, mistakes: list[str]) -> None:
    """All of them at once, with the columns that there are."""
    with pytest.raises(SettingsError) as refused:
        choose_columns(SCHEMA, asked)
    *lines, last = str(refused.value).splitlines()
    assert len(mistakes) == len(lines)
    assert all(line.startswith(mistake) for line, mistake in zip(lines, mistakes, strict=True)), lines
    assert "the columns of the file are id, body, price, tags, image, dots.in, blocks" == last


def test_the_columns_of_delete_events_are_read(tmp_path: Path) -> None:
    """Else no row would be one."""
    path = written(tmp_path / "a", pa.table({"id": ["a"], "body": ["x"], "meta": [{"op": "d", "at": 1}]}))
    ((_, document),) = values_of(path, wanted(deleted=["/meta/op"]))
    assert {"id": "a", "body": "x", "meta": {"op": "d"}} == document


def test_a_column_with_dots_in_its_name_is_read(tmp_path: Path) -> None:
    """Dots also separate the names of nested columns."""
    path = written(tmp_path / "a", pa.table({"id": ["a"], "text.en": ["x"], "text": [{"en": "y", "de": "z"}]}))
    ((_, document),) = values_of(path, wanted({"body": "/text.en"}))
    assert "x" == document["text.en"]


def test_offsets_are_the_numbers_of_rows(tmp_path: Path) -> None:
    """Also behind row groups without rows."""
    path = tmp_path / "a"
    table = pa.table({"id": [str(number) for number in range(150)], "body": ["x"] * 150})
    with pq.ParquetWriter(path, table.schema) as file:
        for first, rows in ((0, 100), (100, 0), (100, 50)):
            file.write_table(table.slice(first, rows))
    assert [(number, str(number)) for number in range(150)] == [
        (offset, document["id"]) for offset, document in values_of(path, wanted())
    ]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    """Whether its description or its data is damaged; the run ends there instead of waiting for rows."""
    texts = [str(each) * 50 for each in range(500)]
    path = written(tmp_path / "a", pa.table({"id": texts, "body": texts}), use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[4:2_000] = b"\x07" * 1_996
    path.write_bytes(content)
    with pytest.raises(FatalError, match=f"cannot read {path}"):
        values_of(path, wanted())
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(FatalError, match=f"cannot read {path} as Parquet"):
        values_of(path, wanted())


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


def output_of(path: Path, *calls: list[Answer[Any]]) -> Path:
    """The file after these calls of `write`."""
    with path.open("wb") as stream:
        output = ParquetOutput(stream)
        for answers in calls:
            output.write(answers)
        output.close()
    return path


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a file. `read_table` would import all of pyarrow's datasets."""
    with pq.ParquetFile(path) as file:
        rows: list[dict[str, Any]] = file.read().to_pylist(maps_as_pydicts="strict")
    return rows


def test_records_of_every_kind_of_task_are_as_in_json(tmp_path: Path) -> None:
    """Vectors, halves, texts of JSON and nulls come back byte for byte."""
    found = serialise_findings(record_of_tasks())
    (row,) = rows_of(output_of(tmp_path / "a", [Answer(0, record_values(found))]))
    assert row.pop("refused") is None
    expected = encode_record(found)
    assert orjson.loads(expected) == orjson.loads(json_of(row))


def test_each_row_has_a_row_and_a_refused_one_its_reason(tmp_path: Path) -> None:
    """In the order of the input."""
    answers = [Answer(0, record(0)), Answer(1, REFUSED)]
    path = output_of(tmp_path / "a.parquet", answers, [Answer(2, record(2))])
    first, refused, last = rows_of(path)
    assert ("0", None, "2", None) == (first["id"], first["refused"], last["id"], last["refused"])
    reasons = {"stage": "decode", "error_type": "InvalidArticle", "reason": "body is missing"}
    assert {"refused": reasons} == {name: value for name, value in refused.items() if value is not None}
    assert pq.read_schema(path).equals(output_schema())


def test_rows_are_written_in_pieces(tmp_path: Path) -> None:
    """They need not fit into memory."""
    calls = [[Answer(number, record(number)) for number in range(first, first + 500)] for first in range(0, 2_500, 500)]
    path = output_of(tmp_path / "a.parquet", *calls)
    with pq.ParquetFile(path) as file:
        assert [1_000, 1_000, 500] == [file.metadata.row_group(each).num_rows for each in range(file.num_row_groups)]


def test_an_input_without_rows_has_an_output_without_rows(tmp_path: Path) -> None:
    """A file with the columns."""
    assert 0 == pq.read_metadata(output_of(tmp_path / "a.parquet")).num_rows


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full here")
def test_an_output_that_cannot_be_written_is_an_error() -> None:
    """With its name and the system's reason."""
    with (
        Path("/dev/full").open("wb", buffering=0) as stream,
        pytest.raises(FatalError, match=r"cannot write /dev/full: .*No space"),
    ):
        ParquetOutput(stream).close()
