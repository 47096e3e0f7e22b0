"""Articles and records in Parquet files. Needs the extra `parquet`, so it is imported only when a file is Parquet.

The columns that articles need are chosen, and each row is turned into a JSON line, so that the rest works as for lines.
Output has the columns of our Avro schema, one row for each row of the input.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from enricher.errors import FatalError, InvalidArticle, SettingsError
from enricher.worker.articles.documents import json_bytes
from enricher.worker.articles.mapping import FIELDS, is_beside
from enricher.worker.articles.pointers import EACH, parse_pointer
from enricher.worker.contracts import record_schema
from enricher.worker.files.exchange import Answer
from enricher.worker.files.finite_sources import End, Line, LineSource
from enricher.worker.records import DeadLetter

_BATCH_ROWS = 64
_BUFFER_BYTES = 2**20
"""How much of a column is read at once. Without a buffer, pyarrow reads the whole column of a row group."""
_REQUIRED = ("id", "body")
_NOT_TEXT = b"\xff"
"""Stands for a row whose binary column is not UTF-8, so that the row is refused for that reason."""
_Question = Callable[[pa.DataType], bool]

Values = Mapping[str, Any]
"""A record as the values of our Avro schema."""

_ROWS_AT_ONCE = 1_000
"""The rows of one row group: so many records wait in memory until they are written."""
_REASONS = ("stage", "error_type", "reason")
_PRIMITIVES = {
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "float": pa.float32(),
    "boolean": pa.bool_(),
    "bytes": pa.binary(),
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """The values to read of each row: `articles.fields`, `articles.metadata` and `articles.scalar_ids` of the settings.

    `whole`: all columns (`output.article=whole`). `deleted`: the pointers of `articles.deleted`.
    """

    fields: Mapping[str, str]
    metadata: Mapping[str, str]
    scalar_ids: bool
    whole: bool
    deleted: Sequence[str] = ()


class ParquetSource(LineSource):
    """The rows of a Parquet file; offsets are the numbers of rows.

    Raises SettingsError if the file does not have the wanted columns, and FatalError if it cannot be read.
    """

    def __init__(self, path: Path, wanted: Wanted) -> None:
        super().__init__(path)
        with _open(path) as file:
            self._columns = _paths_in_file(choose_columns(file.schema_arrow, wanted), file.schema)

    def _lines(self, stream: BufferedReader) -> Iterator[Line | End]:
        return _read_rows(stream, self._path, self._columns)


def choose_columns(schema: pa.Schema, wanted: Wanted) -> list[str]:
    """The columns to read; fields of structs have names with dots, and items of a list the name `*`.

    Raises SettingsError with every mistake.
    """
    mistakes: list[str] = []
    columns = [*_article_columns(schema, wanted, mistakes), *_metadata_columns(schema, wanted, mistakes)]
    for where in wanted.deleted:
        if found := _at(schema, where):
            columns.append(found[0])
        else:
            mistakes.append(f"no column at {where} (articles.deleted)")
    if wanted.whole:
        columns = schema.names
        mistakes += [
            f"column {each.name} has the type {each.type}, which JSON does not have (output.article=whole)"
            for each in schema
            if not _is_json(each.type)
        ]
    if mistakes:
        names = ", ".join(schema.names[:50])
        raise SettingsError("\n".join([*mistakes, f"the columns of the file are {names}"]))
    return list(dict.fromkeys(columns))


def _paths_in_file(columns: Sequence[str], schema: Any) -> list[str]:  # noqa: ANN401  pyarrow publishes no types
    """The columns by their names in the file, where a list has one or two more levels, whose names the writer chose.

    Reading by these names leaves what lies beside the text in a block, such as pictures, on disk.
    """
    paths = [schema.column(index).path for index in range(len(schema))]
    found: list[str] = []
    for column in columns:
        if EACH in column.split("."):
            pattern = re.escape(column).replace(re.escape(f".{EACH}"), r"(?:\.[^.]+){1,2}?") + r"(?:\..+)?"
            found += [path for path in paths if re.fullmatch(pattern, path)]
        else:
            found.append(column)
    return found


def _article_columns(schema: pa.Schema, wanted: Wanted, mistakes: list[str]) -> Iterator[str]:
    """The columns of the article's fields. Adds to `mistakes`."""
    places = {name: where for name, where in wanted.fields.items() if not is_beside(where)}
    for name in FIELDS:
        where = places.get(name, f"/{name}")
        if found := _at(schema, where):
            column, kind = found
            yield column
            if not _accepts(name, kind, scalar_ids=wanted.scalar_ids, in_list=EACH in parse_pointer(where)):
                hint = ": articles.scalar_ids=true accepts numbers" if name == "id" and types.is_integer(kind) else ""
                mistakes.append(f"{name} at {where} has the type {kind}, which is not text{hint}")
        elif name in _REQUIRED or name in places:
            mistakes.append(f"no column for {name} at {where} (articles.fields)")


def _metadata_columns(schema: pa.Schema, wanted: Wanted, mistakes: list[str]) -> Iterator[str]:
    """The columns of `articles.metadata`. Adds to `mistakes`."""
    for name, where in wanted.metadata.items():
        if found := _at(schema, where):
            column, kind = found
            yield column
            if not _is_json(kind):
                mistakes.append(f"{name} at {where} has the type {kind}, which JSON does not have (articles.metadata)")
        else:
            mistakes.append(f"no column for {name} at {where} (articles.metadata)")


def _at(schema: pa.Schema, where: str) -> tuple[str, pa.DataType] | None:
    """The column at a JSON Pointer, with its type; None if there is none. One item of a list is read with its list."""
    name, *rest = parse_pointer(where)
    if schema.get_field_index(name) < 0:  # none, or two with that name
        return None
    kind, path, in_list = schema.field(name).type, [name], False
    for step in rest:
        if types.is_struct(kind) and (index := kind.get_field_index(step)) >= 0:
            kind = kind.field(index).type
            path += [] if in_list else [step]
        elif _is_list(kind) and step == EACH:
            kind = kind.value_type
            path.append(EACH)
        elif _is_list(kind) and step.isdecimal():
            kind, in_list = kind.value_type, True
        else:
            return None
    return ".".join(path), kind


def _accepts(name: str, kind: pa.DataType, *, scalar_ids: bool, in_list: bool) -> bool:
    """Whether a field of an article may have this type. `in_list`: it is in each item of a list."""
    if _is_text(kind):
        return True
    if name == "id":
        return scalar_ids and (types.is_integer(kind) or types.is_boolean(kind))
    if name == "body":
        return not in_list and _is_list(kind) and _is_text(kind.value_type)
    return name == "published_at" and (types.is_timestamp(kind) or types.is_date(kind))


def _is_text(kind: pa.DataType) -> bool:
    """Whether the type can be read as text: also text in a dictionary, bytes in UTF-8, and columns of nulls."""
    if types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return _any_of(kind, types.is_string, types.is_large_string, types.is_string_view) or _any_of(
        kind, types.is_binary, types.is_large_binary, types.is_null
    )


def _is_json(kind: pa.DataType) -> bool:
    """Whether all values of the type have a form in JSON: dates and times have that of ISO 8601."""
    if types.is_dictionary(kind):
        return _is_json(kind.value_type)
    if _is_list(kind):
        return _is_json(kind.value_type)
    if types.is_struct(kind):
        return all(_is_json(kind.field(index).type) for index in range(kind.num_fields))
    if _any_of(kind, types.is_binary, types.is_large_binary):
        return False
    return _is_text(kind) or _any_of(
        kind, types.is_boolean, types.is_integer, types.is_floating, types.is_timestamp, types.is_date, types.is_time
    )


def _any_of(kind: pa.DataType, *questions: _Question) -> bool:
    return any(question(kind) for question in questions)


def _is_list(kind: pa.DataType) -> bool:
    return _any_of(kind, types.is_list, types.is_large_list, types.is_fixed_size_list)


def _open(source: Path | BufferedReader) -> Any:  # noqa: ANN401  pyarrow publishes no types
    try:
        return pq.ParquetFile(source, buffer_size=_BUFFER_BYTES, pre_buffer=False)
    except (OSError, pa.ArrowException) as error:
        name = source if isinstance(source, Path) else source.name
        raise FatalError(f"cannot read {name} as Parquet: {str(error).rstrip()}") from error


def _read_rows(stream: BufferedReader, path: Path, columns: Sequence[str]) -> Iterator[Line | End]:
    """The rows as lines."""
    number = 0
    try:
        with _open(stream) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False):
                for value in _values(batch):
                    yield Line(str(path), number, value)
                    number += 1
    except (OSError, pa.ArrowException, ValueError, OverflowError) as error:
        # Not the message of a ValueError or OverflowError: it may contain the value.
        reason = error if isinstance(error, OSError | pa.ArrowException) else type(error).__name__
        raise FatalError(f"cannot read {path} from row {number} on: {reason}") from error
    yield End(number)


def _values(batch: pa.RecordBatch) -> Iterator[bytes]:
    """Each row of a batch as a JSON object. In a row with a time in a year that Python does not have, times are text."""
    batch = _with_times(batch, as_text=False)
    try:
        rows = batch.to_pylist()
    except (ValueError, OverflowError) as error:
        if batch.num_rows > 1:
            for index in range(batch.num_rows):
                yield from _values(batch.slice(index, 1))
        elif isinstance(error, UnicodeDecodeError):
            yield _NOT_TEXT
        else:
            yield from map(_value, _with_times(batch, as_text=True).to_pylist())
    else:
        yield from map(_value, rows)


def _value(row: Mapping[str, Any]) -> bytes:
    try:
        return json_bytes(row)
    except InvalidArticle:
        return _NOT_TEXT


def _with_times(batch: pa.RecordBatch, *, as_text: bool) -> pa.RecordBatch:
    """The batch with dates and times as text, or as Python can have them."""
    schema = pa.schema([each.with_type(_time_changed(each.type, as_text=as_text)) for each in batch.schema])
    return batch if schema == batch.schema else batch.cast(schema, safe=False)


def _time_changed(kind: pa.DataType, *, as_text: bool) -> pa.DataType:
    """Text, or microseconds: Python has no nanoseconds, for which pyarrow would need pandas."""
    if as_text and _any_of(kind, types.is_timestamp, types.is_date, types.is_time):
        return pa.string()
    if _any_of(kind, types.is_timestamp, types.is_time64) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz) if types.is_timestamp(kind) else pa.time64("us")
    if types.is_struct(kind):
        return pa.struct([each.with_type(_time_changed(each.type, as_text=as_text)) for each in kind])
    if types.is_large_list(kind):
        return pa.large_list(_time_changed(kind.value_type, as_text=as_text))
    if _is_list(kind):
        size = kind.list_size if types.is_fixed_size_list(kind) else -1
        return pa.list_(_time_changed(kind.value_type, as_text=as_text), size)
    return kind


def output_schema() -> pa.Schema:
    """The columns of the output: the fields of a record by our Avro schema, and `refused`. All may be null."""
    record = _arrow(orjson.loads(record_schema("AVRO")), {})
    reasons = pa.struct([(name, pa.string()) for name in _REASONS])
    return pa.schema([*record, pa.field("refused", reasons)])


def _arrow(avro: Any, named: dict[str, pa.DataType]) -> pa.DataType:  # noqa: ANN401  JSON
    """The Arrow type for an Avro type. `named`: the record types so far, which later fields may refer to."""
    if isinstance(avro, list):
        (avro,) = (each for each in avro if each != "null")
    if isinstance(avro, str):
        return _PRIMITIVES.get(avro) or named[avro]
    match avro["type"]:
        case "array":
            return pa.list_(_arrow(avro["items"], named))
        case "map":
            return pa.map_(pa.string(), _arrow(avro["values"], named))
        case "record":
            named[avro["name"]] = pa.struct([(each["name"], _arrow(each["type"], named)) for each in avro["fields"]])
            return named[avro["name"]]
        case simple:
            return _arrow(simple, named)


class ParquetOutput:
    """Writes one row for each row of the input, in its order: the record, or `refused` with the reason.

    `stream` is a file, which the caller closes. `close` completes it: without, it cannot be read. Raises FatalError if it
    cannot be written.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._name = stream.name
        self._schema = output_schema()
        self._rows: list[dict[str, Any]] = []
        with self._errors():
            self._writer = pq.ParquetWriter(stream, self._schema, compression="zstd")

    def write(self, answers: Sequence[Answer[Values]]) -> None:
        """Add the answers for the next rows. Blocks for the disk."""
        for answer in answers:
            written = answer.written
            if isinstance(written, DeadLetter):
                reasons = (written.stage, written.error_type, written.message)
                self._rows.append({"refused": dict(zip(_REASONS, reasons, strict=True))})
            else:
                self._rows.append(_row(written))
            if len(self._rows) == _ROWS_AT_ONCE:
                self._write_rows()

    def close(self) -> None:
        """Write the last rows and the footer, without which no reader can open the file."""
        if self._rows:
            self._write_rows()
        with self._errors():
            self._writer.close()

    def _write_rows(self) -> None:
        with self._errors():
            self._writer.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
        self._rows = []

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise FatalError(f"cannot write {self._name}: {error}") from error


def _row(values: Values) -> dict[str, Any]:
    """The values as pyarrow takes them: maps as lists of pairs."""
    row = {**values}
    if "metadata" in row:
        row["metadata"] = [*row["metadata"].items()]
    return row
