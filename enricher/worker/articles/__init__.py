"""Turns bytes into articles and enriched records into bytes, as `schemas/` specifies.

`reader` turns inputs into articles: `envelope` and `formats` find the document in a value, `mapping`, `pointers` and
`html_text` the fields in the document. `record_values` has the fields of records and `record_formats` their bytes in every
format; `encoder` makes the message of a finished ticket. No Kafka client, no settings, no files but those that protoc reads;
the wall clock is an argument.
"""

from enricher.worker.articles.encoder import (
    MAX_REASON_BYTES,
    MIN_MESSAGE_BYTES,
    RECORD_NAMESPACE,
    Encoder,
    Outgoing,
    clip,
    dead_letter_headers,
    letter_for,
    record_headers,
)
from enricher.worker.articles.mapping import MAX_CHARS, MAX_ID_CHARS, METADATA_FIELDS, FieldMapping
from enricher.worker.articles.reader import ArticleReader, DeleteEvents
from enricher.worker.articles.record_formats import FORMATS, RecordWriter, record_as_json, record_writer
from enricher.worker.articles.record_values import (
    SCHEMA_VERSION,
    WrittenEntities,
    as_line,
    encode_record,
    serialise_findings,
    without_repeats,
    write_entities,
)
