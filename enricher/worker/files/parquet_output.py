"""Enriched records as a Parquet file, written in parts, so that a later run can continue an interrupted one.

A part has the answers for one row group of the input. It gets its name when it is complete, so a killed run loses only the
part that it was writing. At the end the parts are joined into the output. Needs the extra `parquet`.
"""

from __future__ import annotations

import os
import shutil
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from enricher.errors import FatalError, SettingsError
from enricher.worker.contracts import record_schema
from enricher.worker.files.exchange import Answer
from enricher.worker.files.whole import partial_name
from enricher.worker.records import DeadLetter

Values = Mapping[str, Any]
"""A record as the values of our Avro schema."""

_ROWS_AT_ONCE = 1_000
"""The most rows of one row group of the output: so many records wait in memory until they are written."""
_IDENTITY = "run.json"
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

    `group_ends`: the number of the row after each row group of the input. `identity`: what the rows depend on; parts with
    another identity are not continued. The parts are in the folder `FILE.partial`. Raises FatalError if they cannot be
    written, SettingsError if the folder is not of this run.
    """

    def __init__(self, path: Path, *, group_ends: Sequence[int], identity: Mapping[str, Any]) -> None:
        self._path = path
        self._ends = group_ends
        self._folder = partial_name(path)
        self._done = self._folder.with_name(f"{self._folder.name}.done")
        self._schema = output_schema()
        self._rows: list[dict[str, Any]] = []
        self._writer: pq.ParquetWriter | None = None
        self._unfinished = f".{uuid4().hex}"
        """The suffix of files that this run writes: another run may write the same part."""
        with self._errors():
            self._begin(identity)
        complete = 0
        while complete < len(group_ends) and self._part(complete).is_file():
            complete += 1
        self.first_row = group_ends[complete - 1] if complete else 0
        """The row of the input to begin with: all rows before it are in complete parts."""

    def write(self, answers: Sequence[Answer[Values]]) -> None:
        """Add the answers for the next rows. Blocks for the disk."""
        with self._errors():
            for answer in answers:
                written = answer.written
                if isinstance(written, DeadLetter):
                    reasons = (written.stage, written.error_type, written.message)
                    self._rows.append({"refused": dict(zip(_REASONS, reasons, strict=True))})
                else:
                    self._rows.append(_row(written))
                group = bisect_right(self._ends, answer.offset)
                last = answer.offset + 1 == self._ends[group]
                if last or len(self._rows) == _ROWS_AT_ONCE:
                    self._write_rows(group)
                if last:
                    self._complete(group)

    def finish(self) -> None:
        """Join the parts, which must all be complete, into the output, and remove them."""
        whole = self._folder / "whole"
        with self._errors():
            with self._new_file(whole) as writer:
                for group in range(len(self._ends)):
                    with pq.ParquetFile(self._part(group)) as part:
                        for index in range(part.num_row_groups):
                            writer.write_table(part.read_row_group(index))
            _sync(whole)
            if self._path.exists():
                shutil.copymode(self._path, whole)
            whole.replace(self._path.resolve())
            # Renamed first, so that a folder left by a kill is not taken for the parts of an unfinished output.
            self._folder.replace(self._done)
            shutil.rmtree(self._done)

    def close(self) -> None:
        """Close the unfinished part, which the next run writes again."""
        if self._writer:
            self._writer.close()

    def _begin(self, identity: Mapping[str, Any]) -> None:
        """Make the folder, or make sure that it is of this run."""
        if self._done.exists():
            shutil.rmtree(self._done)
        mine = orjson.dumps(identity, option=orjson.OPT_SORT_KEYS)
        file = self._folder / _IDENTITY
        if not file.is_file():
            if self._folder.exists():
                raise SettingsError(f"{self._folder} is in the way, and not of an earlier run: move it")
            # The folder gets its name when the file is in it, so a killed run leaves no folder without one.
            new = self._folder.with_name(f"{self._folder.name}.new")
            new.mkdir(exist_ok=True)
            (new / _IDENTITY).write_bytes(mine)
            _sync(new / _IDENTITY)
            new.replace(self._folder)
        elif file.read_bytes() != mine:
            kept = orjson.loads(file.read_bytes())
            differs = ", ".join(name for name, value in identity.items() if kept.get(name) != value)
            raise SettingsError(
                f"{self._folder} has the rows of an earlier run with another {differs}: give the output another name, or "
                f"delete the folder to begin again"
            )

    def _part(self, group: int) -> Path:
        return self._folder / f"{group:06}.parquet"

    def _new_file(self, path: Path) -> pq.ParquetWriter:
        return pq.ParquetWriter(path, self._schema, compression="zstd")

    def _write_rows(self, group: int) -> None:
        if self._writer is None:
            self._writer = self._new_file(self._part(group).with_suffix(self._unfinished))
        self._writer.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
        self._rows = []

    def _complete(self, group: int) -> None:
        assert self._writer is not None, "a row group has rows"
        self._writer.close()
        self._writer = None
        part = self._part(group)
        unfinished = part.with_suffix(self._unfinished)
        _sync(unfinished)
        unfinished.replace(part)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise FatalError(f"cannot write {self._path}: {error}") from error


def _row(values: Values) -> dict[str, Any]:
    """The values as pyarrow takes them: maps as lists of pairs."""
    row = {**values}
    if "metadata" in row:
        row["metadata"] = [*row["metadata"].items()]
    return row


def _sync(path: Path) -> None:
    """Flush a file to the disk before it gets its final name, so that it is whole even after a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
