"""`ArticleReader`: frames, decoders and mapping joined, delete events, and that no record can end the worker."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import any_text
from support.records import article_in

from enricher.errors import InvalidArticle, SchemaPending
from enricher.worker.articles import ArticleReader, DeleteEvents, FieldMapping, formats, reader
from enricher.worker.articles.reader import Scalar
from enricher.worker.articles.schemas import Decoder, SchemaRef
from enricher.worker.records import Article, Headers, Partition, RawRecord, Tombstone

LIMIT_CHARS, LIMIT_BYTES = 1000, 5000
CANARY = "xyzzycanary"
USUAL = {"id": "a-1", "title": "Rain", "body": "Rain in Bergen."}
READ = Article("a-1", "Rain", "Rain in Bergen.")
FRAMED = b"\x00\x00\x00\x00\x07"


def raw(value: bytes, headers: Headers = (), key: bytes | None = None) -> RawRecord:
    """A record of the input topic."""
    return RawRecord(Partition("articles", 0), 0, key, value, headers)


def reads(**more: Any) -> ArticleReader:  # noqa: ANN401  as the reader takes
    """A reader with the limits that these tests share."""
    return ArticleReader(**({"max_article_chars": LIMIT_CHARS, "max_value_bytes": LIMIT_BYTES} | more))


def refusal(value: bytes, read: ArticleReader, headers: Headers = ()) -> str:
    """The message with which a record is refused."""
    with pytest.raises(InvalidArticle) as caught:
        read.read(raw(value, headers))
    assert caught.value.__context__ is None, "what is chained may hold the document"
    assert CANARY not in str(caught.value)
    return str(caught.value)


class Registry:
    """Decoders: one for all schemas, but for those that are not here yet."""

    def __init__(self, decode: Decoder, *, pending: bool = False) -> None:
        self._decode = decode
        self._pending = pending

    def decoder(self, reference: SchemaRef) -> Decoder:
        """The decoder, whichever schema it is."""
        if self._pending:
            raise SchemaPending(reference)
        return self._decode


# ---- JSON


@pytest.mark.parametrize("more", [{}, {"mapping": FieldMapping({"id": "/id"})}, {"keep_document": True}])
def test_a_value_above_the_limit_is_refused_before_anything_looks_at_it(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    """Neither frames nor JSON are parsed, and no decoder runs."""
    for name in ("read_frame", "orjson"):
        monkeypatch.setattr(reader, name, None)
    monkeypatch.setattr(formats, "orjson", None)
    expected = "value has 5001 bytes, at most 5000 are allowed"
    for decoders in (None, Registry(lambda _payload: pytest.fail("it was decoded"))):
        assert expected == refusal(b"{" + b" " * LIMIT_BYTES, reads(**more, decoders=decoders))


# ---- the whole document


@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", FRAMED, FRAMED + b"\xef\xbb\xbf"])
def test_the_document_is_kept_byte_by_byte(before: bytes) -> None:
    """Numbers, order, repeated names and white space as the publisher wrote them; only prefixes are no JSON."""
    text = b'{ "id":"a-1","title":"Rain",\n "body":"Rain in Bergen.", "n": 1.10, "n": 100000000000000000000000 }\r\n'
    assert text == article_in(reads(keep_document=True).read(raw(before + text))).document
    assert None is article_in(reads().read(raw(before + text))).document
    assert None is article_in(reads(mapping=FieldMapping({"id": "/id"})).read(raw(before + text))).document


def test_a_document_that_no_reader_of_records_could_parse_is_refused() -> None:
    """Parsers of other languages take half of what ours does; without `article` in the record it is enriched."""
    read = reads(keep_document=True)
    for levels, fits in ((499, True), (500, False)):
        value = b'{"id":"1","body":"Oslo","x":' + b"[" * levels + b"]" * levels + b"}"
        assert reads().read(raw(value))
        if fits:
            assert orjson.loads(b'{"article":' + (article_in(read.read(raw(value))).document or b"") + b"}")
        else:
            assert "the document has more than 500 levels, too many for output.article=whole" == refusal(value, read)
    wide = orjson.dumps({"id": "1", "body": "[" * 900 + "{" * 90, "x": [[{}]] * 300})
    assert wide == article_in(read.read(raw(wide))).document, "wide documents, and brackets in texts, are not deep"


# ---- frames and decoders


def test_a_framed_value_is_what_its_decoder_says() -> None:
    """And the fields are then found as in JSON."""
    payloads = []

    def decode(payload: bytes) -> dict[str, Any]:
        payloads.append(payload)
        return {"uuid": 7, "text": {"paragraphs": ["Oslo", "Rome"]}}

    mapping = FieldMapping({"id": "/uuid", "body": "/text/paragraphs"}, scalar_ids=True)
    found = reads(mapping=mapping, decoders=Registry(decode)).read(raw(FRAMED + b"\x02ab"))
    assert Article("7", "", "Oslo\n\nRome", body_separator="\n\n") == found
    assert [b"\x02ab"] == payloads


def test_a_value_without_a_frame_is_json() -> None:
    """A topic may have both while its publishers change."""
    read = reads(decoders=Registry(lambda _payload: pytest.fail("it has no schema")))
    assert READ == read.read(raw(orjson.dumps(USUAL)))
    assert READ == read.read(raw(b"\xef\xbb\xbf" + orjson.dumps(USUAL)))
    assert "value is not valid JSON" in refusal(b"{" + CANARY.encode(), read)


def test_a_schema_that_is_not_here_yet_refuses_nothing() -> None:
    """The article waits: a registry that is down is not a poison record."""
    read = reads(decoders=Registry(lambda _payload: USUAL, pending=True))
    with pytest.raises(SchemaPending) as caught:
        read.read(raw(FRAMED + b"x"))
    assert SchemaRef("id", "7") == caught.value.reference


@pytest.mark.parametrize("document", [None, [], "text", 1, [USUAL], b"{}"])
def test_a_decoded_value_that_is_no_object_is_no_article(document: object) -> None:
    """A schema may be of anything."""
    assert "value is not a JSON object" == refusal(FRAMED, reads(decoders=Registry(lambda _payload: document)))


@pytest.mark.parametrize(
    "error", [KeyError, IndexError, RecursionError, UnicodeDecodeError, OverflowError, AssertionError]
)
def test_a_decoder_that_fails_ends_one_record_and_not_the_worker(error: type[Exception]) -> None:
    """The reason names schema and error; the library's own message may hold the document."""

    def fail(payload: bytes) -> object:
        raise error(*(("utf-8", payload, 0, 1, CANARY) if error is UnicodeDecodeError else (CANARY,)))

    expected = f"the decoder of schema id 7 failed with {error.__name__}"
    assert expected == refusal(FRAMED + CANARY.encode(), reads(decoders=Registry(fail)))


@pytest.mark.parametrize("error", [MemoryError(), KeyboardInterrupt(), SchemaPending("x"), InvalidArticle("its own")])
def test_what_says_nothing_about_the_record_is_not_held_against_it(error: BaseException) -> None:
    """A machine without memory is no reason for a dead letter; the errors that are ours keep their words."""

    def fail(_payload: bytes) -> object:
        raise error

    with pytest.raises(type(error)) as caught:
        reads(decoders=Registry(fail)).read(raw(FRAMED))
    assert error is caught.value


def test_an_error_of_the_registry_is_no_dead_letter() -> None:
    """A disk that fails while a schema is looked up says nothing about the record."""

    class Broken(Registry):
        def decoder(self, reference: SchemaRef) -> Decoder:
            raise OSError(28, f"no space for {reference}")

    with pytest.raises(OSError, match="no space"):
        reads(decoders=Broken(lambda _payload: USUAL)).read(raw(FRAMED))


@pytest.mark.parametrize(
    "change", [{"body": f"\ud83d{CANARY}"}, {"id": "\udc00"}, {"title": "\ud83d"}, {"source": "\ud83d"}]
)
def test_text_that_cannot_be_written_is_refused_by_its_field(change: dict[str, str]) -> None:
    """Tokenizers and writers fail on lone surrogates, outside of any handler."""
    (name,) = change
    read = reads(decoders=Registry(lambda _payload: USUAL | change))
    assert f"{name} has a lone surrogate, which is not text" == refusal(FRAMED, read)


def test_the_document_of_another_format_is_kept_as_json() -> None:
    """What cannot be written as JSON, or becomes far larger, is refused."""

    def kept(extra: object) -> ArticleReader:
        return reads(decoders=Registry(lambda _payload: USUAL | {"x": extra}), keep_document=True)

    assert (
        orjson.dumps(USUAL | {"x": [1.5, None]}) == article_in(kept([1.5, None]).read(raw(FRAMED + b"\x02"))).document
    )
    for wrong in (2**64, b"bytes", "\ud83d", {1: 2}, orjson.loads(b"[" * 999 + b"]" * 999)):
        assert "the document cannot be written as JSON, or is nested too deeply" == refusal(FRAMED, kept(wrong))
    assert "bytes as JSON, at most 5000 are allowed" in refusal(FRAMED, kept([None] * 2000))


def test_metadata_that_become_too_large_are_refused() -> None:
    """A decoder may make much of a few bytes."""
    mapping = FieldMapping(metadata={"x": "/x"})

    def kept(extra: object) -> ArticleReader:
        return reads(decoders=Registry(lambda _payload: USUAL | {"x": extra}), mapping=mapping)

    assert b'{"x":[1.5]}' == article_in(kept([1.5]).read(raw(FRAMED + b"\x02"))).further
    assert "what articles.metadata names has 10007 bytes as JSON, at most 5000 are allowed" == refusal(
        FRAMED, kept([None] * 2000)
    )


def test_json_with_a_schema_is_kept_byte_by_byte() -> None:
    """Its decoder returns the document; its bytes are those of the payload."""
    text = b'\xef\xbb\xbf {"id": "a-1", "body": "Oslo", "n": 1.10}'
    read = reads(decoders=Registry(lambda payload: orjson.loads(payload[3:])), keep_document=True)
    assert text[3:] == article_in(read.read(raw(FRAMED + text))).document
    other = reads(decoders=Registry(lambda _payload: USUAL), keep_document=True)
    for payload in (b'{"id": "b"}', b"{\x02", b"{}", b"[]", b"", text):
        assert orjson.dumps(USUAL) == article_in(other.read(raw(FRAMED + payload))).document


# ---- delete events


IN_AFTER = FieldMapping({"id": "/after/id", "body": "/after/body"}, scalar_ids=True)
BEFORE = FieldMapping({"id": "/before/id"}, scalar_ids=True)
DELETED = {"op": "d", "before": {"id": 1004, "body": CANARY}, "after": None}
CREATED = {"op": "c", "before": None, "after": {"id": 7, "body": "Rain in Bergen."}}
CHANGES = DeleteEvents("/op", ["d"], BEFORE)


def changes(deletes: DeleteEvents, **more: Any) -> ArticleReader:  # noqa: ANN401  as the reader takes
    """A reader of change events."""
    return reads(mapping=IN_AFTER, deletes=deletes, **more)


def test_a_delete_event_is_a_tombstone_in_every_form() -> None:
    """JSON, framed JSON, and what a decoder returns; the article beside it is one as ever."""
    for document, expected in ((DELETED, Tombstone(b"1004")), (CREATED, Article("7", "", "Rain in Bergen."))):
        text = orjson.dumps(document)
        assert expected == changes(CHANGES).read(raw(text))
        assert expected == changes(CHANGES).read(raw(FRAMED + text))
        assert expected == changes(CHANGES, decoders=Registry(orjson.loads)).read(raw(FRAMED + text))


def test_the_key_of_the_input_is_that_of_the_tombstone() -> None:
    """Every output has it, so the id is not even looked at; an empty key is none."""
    assert Tombstone() == changes(CHANGES).read(raw(orjson.dumps({"op": "d"}), key=b"k"))
    assert Tombstone(b"1004") == changes(CHANGES).read(raw(orjson.dumps(DELETED), key=b""))


def test_without_an_own_pointer_the_id_is_where_articles_have_it() -> None:
    """In the document, or in a header."""
    usual = DeleteEvents("/deleted", [True], FieldMapping())
    assert Tombstone(b"a-1") == changes(usual).read(raw(orjson.dumps({"id": "a-1", "deleted": True})))
    in_header = DeleteEvents("/deleted", [True], FieldMapping({"id": "header:ce_id"}))
    assert Tombstone(b"event") == changes(in_header).read(raw(orjson.dumps({"deleted": True}), (("ce_id", b"event"),)))


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
    found = refusal(orjson.dumps(document), changes(CHANGES))
    assert f"the delete event has neither a key nor an id: {reason}" == found


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
        found = changes(DeleteEvents(field, ["d", True, 1], BEFORE)).read(raw(orjson.dumps(document), key=key))
    except InvalidArticle:
        return
    assert isinstance(found, Article) or key or (isinstance(found, Tombstone) and found.key)
