"""Delete events: which documents are some, in every form of a record, and what their tombstones delete."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import fastavro
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import any_text

from enricher.errors import InvalidArticle
from enricher.worker.articles import ArticleReader, DeleteEvents, FieldMapping
from enricher.worker.articles.formats import compile_schema
from enricher.worker.articles.reader import Scalar
from enricher.worker.articles.schemas import Decoder, Schema, SchemaRef
from enricher.worker.records import Article, Headers, Partition, RawRecord, Tombstone

CANARY = "xyzzycanary"
FIELDS = FieldMapping({"id": "/after/id", "body": "/after/body"}, scalar_ids=True)
BEFORE = FieldMapping({"id": "/before/id"}, scalar_ids=True)
DELETED = {"op": "d", "before": {"id": 1004, "body": CANARY}, "after": None}
CREATED = {"op": "c", "before": None, "after": {"id": 7, "body": "Rain in Bergen."}}
ROW = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "long"}, {"name": "body", "type": "string"}]}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "op", "type": {"type": "enum", "name": "Op", "symbols": ["c", "d"]}},
        {"name": "before", "type": ["null", ROW]},
        {"name": "after", "type": ["null", "Row"]},
    ],
}


class Registry:
    """The decoder of `ENVELOPE`, for every schema."""

    def decoder(self, _reference: SchemaRef) -> Decoder:
        """The decoder."""
        return compile_schema(Schema("AVRO", json.dumps(ENVELOPE)))


def reads(deletes: DeleteEvents, **more: Any) -> ArticleReader:  # noqa: ANN401  as the reader takes
    """A reader of change events."""
    return ArticleReader(max_article_chars=1000, max_value_bytes=5000, mapping=FIELDS, deletes=deletes, **more)


CHANGES = DeleteEvents("/op", ["d"], BEFORE)


def raw(value: bytes | object, headers: Headers = (), key: bytes | None = None) -> RawRecord:
    """A record of the input topic."""
    value = value if isinstance(value, bytes) else orjson.dumps(value)
    return RawRecord(Partition("articles", 0), 0, key, value, headers)


def avro(document: object) -> bytes:
    """A framed value, by fastavro."""
    out = BytesIO(b"\0\0\0\0\7")
    out.seek(5)
    fastavro.schemaless_writer(out, fastavro.parse_schema(ENVELOPE), document)
    return out.getvalue()


def test_a_delete_event_is_a_tombstone_in_every_form() -> None:
    """JSON, framed JSON and Avro; the article beside it is one as ever."""
    for document, expected in ((DELETED, Tombstone(b"1004")), (CREATED, Article("7", "", "Rain in Bergen."))):
        text = orjson.dumps(document)
        plain, framed = reads(CHANGES), reads(CHANGES, decoders=Registry())
        assert expected == plain.read(raw(text))
        assert expected == plain.read(raw(b"\0\0\0\0\7" + text))
        assert expected == framed.read(raw(avro(document)))


def test_the_key_of_the_input_is_that_of_the_tombstone() -> None:
    """Every output has it, so the id is not even looked at; an empty key is none."""
    assert Tombstone() == reads(CHANGES).read(raw({"op": "d"}, key=b"k"))
    assert Tombstone(b"1004") == reads(CHANGES).read(raw(DELETED, key=b""))


def test_without_an_own_pointer_the_id_is_where_articles_have_it() -> None:
    """In the document, or in a header."""
    usual = DeleteEvents("/deleted", [True], FieldMapping())
    assert Tombstone(b"a-1") == reads(usual).read(raw({"id": "a-1", "deleted": True}))
    in_header = DeleteEvents("/deleted", [True], FieldMapping({"id": "header:ce_id"}))
    assert Tombstone(b"event") == reads(in_header).read(raw({"deleted": True}, (("ce_id", b"event"),)))


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"op": "d"}, "id is missing at /before/id"),
        ({"op": "d", "before": {"id": ""}}, "id is empty"),
        ({"op": "d", "before": {"id": [CANARY]}}, "id is not a string at /before/id"),
        ({"op": "d", "before": {"id": "x" * 513}}, "id has 513 characters, at most 512 are allowed"),
    ],
)
def test_an_event_without_key_and_id_is_refused(document: object, reason: str) -> None:
    """A tombstone that deletes nothing would hide that the article is still there."""
    with pytest.raises(InvalidArticle) as caught:
        reads(CHANGES).read(raw(document))
    assert f"the delete event has neither a key nor an id: {reason}" == str(caught.value)
    assert caught.value.__context__ is None, "what is chained may hold the document"


def test_an_id_that_is_no_text_is_refused() -> None:
    """A decoder may let lone surrogates through, and they have no bytes."""
    with pytest.raises(InvalidArticle, match="lone surrogate"):
        CHANGES.tombstone({"op": "d", "before": {"id": "\ud83d"}}, raw(b"{}"))


@pytest.mark.parametrize("marks", [True, 1, "1", 0, False, ""])
def test_values_have_types(marks: Scalar) -> None:
    """True is 1 to Python, but not to a publisher; numbers with a fraction, null, lists and objects mark nothing."""
    deletes = DeleteEvents("/deleted", [marks], FieldMapping())
    for found in (True, 1, "1", 0, False, "", 1.0, 0.0, None, [marks], {"deleted": marks}):
        assert deletes.is_delete({"deleted": found}) == (type(found) is type(marks) and found == marks)
    assert not deletes.is_delete({})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(allow_nan=False) | any_text(max_size=3) | st.just("d"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["op", "id", "x"]), inner, max_size=3),
    max_leaves=9,
)


@given(
    document=st.dictionaries(st.sampled_from(["op", "id", "body", "before", "after"]), json_values, max_size=5),
    field=st.sampled_from(["/op", "/op/op", "/op/0", "/id"]),
    key=st.sampled_from([None, b"", b"k", b"\xff"]),
)
def test_any_document_is_an_article_a_tombstone_or_refused(
    document: dict[str, Any], field: str, key: bytes | None
) -> None:
    """Whatever a publisher writes, a tombstone has a key."""
    try:
        found = reads(DeleteEvents(field, ["d", True, 1], BEFORE)).read(raw(document, key=key))
    except InvalidArticle:
        return
    assert isinstance(found, Article) or key or (isinstance(found, Tombstone) and found.key)
