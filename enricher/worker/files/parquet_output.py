"""Enriched records as a Parquet file. Needs the extra `parquet`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from enricher.errors import FatalError
from enricher.worker.contracts import record_schema
from enricher.worker.files.exchange import Answer
from enricher.worker.records import DeadLetter

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
        """Write the last rows and what a reader needs."""
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
