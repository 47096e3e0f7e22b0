"""Bytes <-> records, as `schemas/` specifies.

`reader` reads inputs, `framing` finds their schemas, `formats` decodes payloads by these. `enriched` writes records as JSON
and `writers` in every format, `record_formats` reads them again; `output_headers` makes headers, `cloudevents` those of
events, and `encoder` the message of a finished ticket. No Kafka client, no settings, no files but those that protoc reads;
the wall clock is an argument.
"""

from enricher.worker.articles.cloudevents import EventHeaders, default_source
from enricher.worker.articles.deletes import DeleteEvents
from enricher.worker.articles.encoder import MIN_MESSAGE_BYTES, Encoder, Outgoing, letter_for
from enricher.worker.articles.enriched import (
    SCHEMA_VERSION,
    WrittenEntities,
    as_line,
    encode_record,
    serialise_findings,
    without_repeats,
    write_entities,
)
from enricher.worker.articles.json_articles import MAX_ID_CHARS
from enricher.worker.articles.mapping import FieldMapping
from enricher.worker.articles.optional import MAX_CHARS, METADATA_FIELDS
from enricher.worker.articles.output_headers import (
    MAX_REASON_BYTES,
    RECORD_NAMESPACE,
    clip,
    dead_letter_headers,
    record_headers,
)
from enricher.worker.articles.reader import ArticleReader
from enricher.worker.articles.record_formats import FORMATS, record_as_json
from enricher.worker.articles.writers import RecordWriter, record_writer

__all__ = [
    "FORMATS",
    "MAX_CHARS",
    "MAX_ID_CHARS",
    "MAX_REASON_BYTES",
    "METADATA_FIELDS",
    "MIN_MESSAGE_BYTES",
    "RECORD_NAMESPACE",
    "SCHEMA_VERSION",
    "ArticleReader",
    "DeleteEvents",
    "Encoder",
    "EventHeaders",
    "FieldMapping",
    "Outgoing",
    "RecordWriter",
    "WrittenEntities",
    "as_line",
    "clip",
    "dead_letter_headers",
    "default_source",
    "encode_record",
    "letter_for",
    "record_as_json",
    "record_headers",
    "record_writer",
    "serialise_findings",
    "without_repeats",
    "write_entities",
]
