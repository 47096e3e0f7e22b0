"""Writes the value of an enriched record in the format of `output.format`, and its content type.

All formats but plain JSON begin with Confluent's prefix, by which consumers find the schema; in Protobuf the index of the
message follows.
"""

from __future__ import annotations

from dataclasses import dataclass

from enricher.errors import SettingsError
from enricher.worker.articles.framing import MAX_SCHEMA_ID, id_prefix
from enricher.worker.articles.record_formats import FORMATS, Encode, WrittenFormat
from enricher.worker.articles.schemas import Schema
from enricher.worker.contracts import RecordFormat, record_schema
from enricher.worker.records import EnrichedRecord


@dataclass(slots=True)
class RecordWriter:
    """Writes records in one format.

    `schema`: the schema of records, None for plain JSON. With a schema, `begin_with` is called before the first `write`.
    """

    format: WrittenFormat
    schema: Schema | None
    _encode: Encode
    _prefix: bytes | None

    @property
    def content_type(self) -> bytes:
        """The media type of what follows the prefix."""
        return self.format.content_type

    @property
    def ready(self) -> bool:
        """Whether records can be written."""
        return self._prefix is not None

    def begin_with(self, schema_id: int) -> None:
        """Write this id of the schema from now on. Raises SettingsError if the prefix has no room for it."""
        assert self.schema is not None, "plain JSON has no schema id"
        if not 0 <= schema_id <= MAX_SCHEMA_ID:
            raise SettingsError(f"schema id {schema_id} does not fit Confluent's 4-byte prefix (0 to {MAX_SCHEMA_ID})")
        self._prefix = id_prefix(schema_id) + self.format.message

    def write(self, record: EnrichedRecord) -> bytes:
        """The value of a record. Deterministic. Raises InvalidArticle, of stage `publish`, as `encode_record` does."""
        assert self._prefix is not None, "the schema id is found before the first record"
        value = self._encode(record)
        return self._prefix + value if self._prefix else value

    @property
    def writes_text(self) -> bool:
        """Whether numbers are written as text."""
        return self.schema is None or self.schema.type == "JSON"


def record_writer(output_format: RecordFormat) -> RecordWriter:
    """The writer of a format. Raises SettingsError if the packages that it needs are not installed."""
    chosen = FORMATS[output_format]
    encode, _ = chosen.functions()
    if chosen.schema_type is None:
        return RecordWriter(chosen, None, encode, b"")
    return RecordWriter(chosen, Schema(chosen.schema_type, record_schema(chosen.schema_type)), encode, None)
