"""Writes the value of an enriched record in the format of `output.format`, and its content type.

All formats but plain JSON begin with Confluent's prefix, by which consumers find the schema; in Protobuf the index of the
message follows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from enricher.errors import SettingsError
from enricher.worker.articles.enriched import encode_record
from enricher.worker.articles.framing import FIRST_MESSAGE, MAX_SCHEMA_ID, id_prefix
from enricher.worker.articles.schemas import Schema
from enricher.worker.contracts import SCHEMA_TYPES, RecordFormat, record_schema
from enricher.worker.records import EnrichedRecord, ModelCard

Serialise = Callable[[EnrichedRecord, ModelCard], bytes]

CONTENT_TYPES: dict[RecordFormat, bytes] = {
    "json": b"application/json",
    "avro": b"application/avro",
    "protobuf": b"application/protobuf",
    "json-schema": b"application/json",
}
"""Media types of the data behind the prefix, as in the examples of CloudEvents. None of them is registered for a prefix."""


@dataclass(slots=True)
class RecordWriter:
    """Writes records in one format.

    `schema`: what a registry must know before records can be written; None for plain JSON. `begin_with` is then called
    before the first `write`.
    """

    content_type: bytes
    schema: Schema | None
    _serialise: Serialise
    _prefix: bytes | None

    @property
    def ready(self) -> bool:
        """Whether records can be written."""
        return self._prefix is not None

    def begin_with(self, schema_id: int) -> None:
        """Write this id of the schema from now on. Raises SettingsError if the prefix has no room for it."""
        assert self.schema is not None, "plain JSON has no schema id"
        if not 0 <= schema_id <= MAX_SCHEMA_ID:
            raise SettingsError(f"schema id {schema_id} does not fit Confluent's 4-byte prefix (0 to {MAX_SCHEMA_ID})")
        self._prefix = id_prefix(schema_id) + (FIRST_MESSAGE if self.schema.type == "PROTOBUF" else b"")

    def write(self, record: EnrichedRecord, card: ModelCard) -> bytes:
        """The value of a record. Deterministic. Raises InvalidArticle, of stage `publish`, as `encode_record` does."""
        assert self._prefix is not None, "the schema id is found before the first record"
        value = self._serialise(record, card)
        return self._prefix + value if self._prefix else value

    @property
    def writes_text(self) -> bool:
        """Whether numbers are written as text."""
        return self.schema is None or self.schema.type == "JSON"


def record_writer(output_format: RecordFormat) -> RecordWriter:
    """The writer of a format. Raises SettingsError if the packages that it needs are not installed."""
    content_type = CONTENT_TYPES[output_format]
    if output_format == "json":
        return RecordWriter(content_type, None, encode_record, b"")
    schema_type = SCHEMA_TYPES[output_format]
    return RecordWriter(content_type, Schema(schema_type, record_schema(schema_type)), _serialiser(output_format), None)


def _serialiser(output_format: RecordFormat) -> Serialise:
    if output_format == "json-schema":
        return encode_record
    try:
        # Imported here, because only these formats need the packages of an extra.
        if output_format == "avro":
            from enricher.worker.articles.formats.avro_records import encode_avro  # noqa: PLC0415  see above

            return encode_avro
        from enricher.worker.articles.formats.protobuf_records import encode_protobuf  # noqa: PLC0415  see above
    except ImportError as error:
        message = f"output.format={output_format} needs more packages ({error}): pip install '.[registry]'"
        raise SettingsError(message) from error
    return encode_protobuf
