"""JSON documents that name a JSON Schema."""

from __future__ import annotations

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from support.bounded import binary

from enricher.errors import InvalidArticle
from enricher.worker.articles.envelope import read_frame
from enricher.worker.articles.formats import compile_schema
from enricher.worker.articles.schemas import Schema

ARTICLE = {"id": "a-1", "title": "Zoë", "tags": ["x"], "n": 1.5, "none": None}
SCHEMA = '{"title": "Article", "type": "object", "properties": {"id": {"type": "string", "pattern": "(a+)+$"}}}'
DECODE = compile_schema(Schema("JSON", SCHEMA))


@pytest.mark.parametrize("conf", [{}, {"schema.id.serializer": header_schema_id_serializer}])
def test_what_confluents_serializer_writes_is_read(
    mock_registry: SchemaRegistryClient, conf: dict[str, object]
) -> None:
    """With its prefix and with its header."""
    headers: list[tuple[str, str | bytes | None]] = []
    serializer = JSONSerializer('{"title": "Article", "type": "object"}', mock_registry, conf=conf)
    value = serializer(ARTICLE, SerializationContext("articles", MessageField.VALUE, headers))
    frame = read_frame(value, binary(headers), max_payload_bytes=10_000)
    assert frame is not None
    assert ("guid" if conf else "id") == frame.reference.kind
    assert ARTICLE == DECODE(frame.payload)


def test_a_byte_order_mark_is_skipped() -> None:
    """As of JSON without a schema."""
    assert {"id": "a"} == DECODE(b'\xef\xbb\xbf{"id": "a"}')


def test_documents_are_not_validated() -> None:
    """So a schema's regular expressions never run: this one would take hours."""
    assert {"id": "a" * 5_000 + "!"} == DECODE(b'{"id": "' + b"a" * 5_000 + b'!"}')


@pytest.mark.parametrize(
    "payload", [b"", b"{", b"{} x", b"[]", b'"text"', b"null", b"NaN", b"\xff", b"[" * 1_000_000, b'{"a":' * 1_000_000]
)
def test_what_is_no_object_is_refused(payload: bytes) -> None:
    """Trailing bytes and a million levels too."""
    with pytest.raises(InvalidArticle, match=r"^value "):
        DECODE(payload)


def test_the_schema_itself_is_not_looked_at() -> None:
    """However hostile it is."""
    assert {} == compile_schema(Schema("JSON", "[" * 1_000_000))(b"{}")
