"""Bytes <-> records, as `schemas/` specifies.

`articles` reads inputs, `enriched` writes records, `headers` makes the headers of outputs, `encoder` makes the message of a
finished ticket. No Kafka client, no files, no settings; the wall clock is an argument.
"""

from enricher.codec.articles import MAX_ID_CHARS, METADATA_FIELDS, decode_article
from enricher.codec.encoder import MIN_MESSAGE_BYTES, Encoder, Outgoing
from enricher.codec.enriched import SCHEMA_VERSION, WrittenEntities, encode_record, write_entities
from enricher.codec.headers import (
    MAX_REASON_BYTES,
    RECORD_NAMESPACE,
    clipped,
    dead_letter_headers,
    record_headers,
)

__all__ = [
    "MAX_ID_CHARS",
    "MAX_REASON_BYTES",
    "METADATA_FIELDS",
    "MIN_MESSAGE_BYTES",
    "RECORD_NAMESPACE",
    "SCHEMA_VERSION",
    "Encoder",
    "Outgoing",
    "WrittenEntities",
    "clipped",
    "dead_letter_headers",
    "decode_article",
    "encode_record",
    "record_headers",
    "write_entities",
]
