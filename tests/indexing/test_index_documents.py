"""Records of the output topic become documents: ids, versions, facets; and requests: lines, verdicts, sizes."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any, Literal

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enricher.indexing.bulk_writer import BulkSize, bulk_lines, items_in, refusal_of, request_bytes, verdict_on
from enricher.indexing.index_documents import Document, DocumentMaker, NoDocument, Origin, name_of
from enricher.worker.records import Headers, Partition, RawRecord

HEADERS = (
    ("enricher.source.topic", b"articles"),
    ("enricher.source.topic.id", b"aaaaaaaaaaaaaaaaaaaaaa"),
    ("enricher.version", b"%d" % (3 << 55 | 41 << 12 | 7)),
)
MERKEL, PARIS, OTHER_MERKEL = (
    {"label": label, "text": text, "field": "body", "start": 0, "end": len(text), "score": 1.0}
    for label, text in (("PER", "Merkel"), ("LOC", "Paris"), ("PER", "Merkel"))
)


def raw(key: bytes | None, record: dict[str, Any] | None, headers: Headers = HEADERS) -> RawRecord:
    """A record of the output topic."""
    return RawRecord(Partition("entities", 2), 5, key, None if record is None else orjson.dumps(record), headers)


def body_of(document: Document) -> dict[str, Any]:
    """What is sent."""
    assert document.body is not None
    found: dict[str, Any] = orjson.loads(document.body)
    return found


def test_a_record_becomes_a_document_under_its_key_with_its_version() -> None:
    """All fields of the record are there, and the origin says of which topic and epoch the version is."""
    record = {"id": "a-1", "language": "de", "metadata": {"desk": 7}, "entities": [MERKEL]}
    document = DocumentMaker().document(raw(b"k", record))
    assert ("k", 3 << 55 | 41 << 12 | 7) == (document.id, document.version)
    assert Origin("articles", "aaaaaaaaaaaaaaaaaaaaaa", 3) == document.origin
    assert {**record, "entities": [MERKEL | {"name": "Merkel"}], "facets": {"PER": ["Merkel"]}} == body_of(document)


def test_ids_of_a_catalogue_are_listed_once() -> None:
    """To filter and count by; without a catalogue there is no such field, and without an id no entry.

    For facets they have the name of the entry, if the worker wrote it.
    """
    merkel = MERKEL | {"ids": [{"id": "Q567", "match": "alias"}], "id": "Q567", "why": "only"}
    named = OTHER_MERKEL | {"id": "Q9", "catalogue_name": "Angela Merkel", "why": "only"}
    paris = PARIS | {"ids": [{"id": "Q90", "match": "name"}, {"id": "Q47899", "match": "alias"}]}
    record = {
        "id": "a",
        "entities": [merkel, paris, merkel, named],
        "catalogue": {"digest": "sha256:5f", "generation": 1},
    }
    body = body_of(DocumentMaker().document(raw(b"k", record)))
    assert (["Q567", "Q9"], ["Q567\tQ567", "Angela Merkel\tQ9"]) == (body["ids"], body["named_ids"])
    assert (
        not {"ids", "named_ids"}
        & body_of(DocumentMaker().document(raw(b"k", {"id": "a", "entities": [MERKEL]}))).keys()
    )


BARACK_OBAMA = (
    *("Barack Obama", "Barack\nObama", "Barack\u00a0Obama", "Ba\u00adrack Oba\u00adma", "Barack \u200bObama"),
    *("\ufeffBarack\r\n\t Obama\u200f", "Barack\u2028Obama", "Barack\u2002\u2009Obama "),
)
ZOE = ("Zoë Müller", "Zoe\u0308 Mu\u0308ller")
"""In NFC and in NFD."""


@pytest.mark.parametrize("spellings", [BARACK_OBAMA, ZOE])
def test_one_person_has_one_name_however_pages_break_it(spellings: Sequence[str]) -> None:
    """In facets and in the keyword of an entity; its text stays the slice of the article."""
    entities = [MERKEL | {"text": text} for text in spellings]
    found = body_of(DocumentMaker().document(raw(b"k", {"id": "a", "entities": entities})))
    assert {"PER": [spellings[0]]} == found["facets"]
    assert [spellings[0]] * len(spellings) == [entity["name"] for entity in found["entities"]]
    assert [*spellings] == [entity["text"] for entity in found["entities"]]


NAMES = ["Zoe", "Zoë", "ZOE", "Jean-Luc", "Jean Luc"]


@pytest.mark.parametrize(
    ("entities", "facets"),
    [
        ([MERKEL, PARIS, OTHER_MERKEL], {"PER": ["Merkel"], "LOC": ["Paris"]}),
        ([MERKEL | {"label": "a.b"}], {"a_b": ["Merkel"]}),
        ([MERKEL | {"text": text} for text in (*NAMES, "\u200b")], {"PER": NAMES}),
    ],
    ids=["each text once", "a dot is no path of an object", "names that differ stay apart"],
)
def test_facets_have_names_by_label(entities: list[dict[str, Any]], facets: dict[str, list[str]]) -> None:
    """In the order of the article. Case, accents and hyphens are left to the reader; what is invisible is no name."""
    assert facets == body_of(DocumentMaker().document(raw(b"k", {"id": "a", "entities": entities})))["facets"]


@given(st.text(max_size=30))
def test_a_name_is_a_name_of_itself(text: str) -> None:
    """So a value from a facet finds what it counts."""
    name = name_of(text)
    assert name == name_of(name) == " ".join(name.split())
    assert unicodedata.is_normalized("NFC", name)


@pytest.mark.parametrize("key", [b"k", b'{"id": "a-1"}', b'"a-1"', b"\x00\x00\x00\x00\x05\x06a-1", b"\xff", b"a-1 "])
def test_ids_identify_only_documents_whose_key_is_the_id(key: bytes) -> None:
    """A tombstone has only its key: it would delete nothing, and nobody would hear of it."""
    with pytest.raises(NoDocument, match="keys must be ids"):
        DocumentMaker("id").document(raw(key, {"id": "a-1", "entities": []}))
    if key != b"\xff":
        documents = [DocumentMaker("key").document(raw(key, each)) for each in ({"id": "a-1", "entities": []}, None)]
        assert 1 == len({each.id for each in documents}), "by its key, the tombstone deletes the document"


def test_a_tombstone_deletes_what_its_key_names() -> None:
    """With its version, whatever identifies documents."""
    for maker in (DocumentMaker("key"), DocumentMaker("id")):
        document = maker.document(raw(b"k", None))
        assert ("k", None) == (document.id, document.body)
        assert document.version


@pytest.mark.parametrize(
    ("identified_by", "key", "expected"),
    [("id", b"a-1", "a-1"), ("id", None, "a-1"), ("id", b"", "a-1"), ("key", None, "a-1"), ("key", b"", "a-1")],
)
def test_the_id_identifies_where_the_key_does_not(
    identified_by: Literal["key", "id"], key: bytes | None, expected: str
) -> None:
    """By the setting, or because there is no key."""
    assert expected == DocumentMaker(identified_by).document(raw(key, {"id": "a-1", "entities": []})).id


def test_title_and_body_come_from_where_articles_have_them() -> None:
    """Paragraphs are joined as the worker did, so that offsets fit; the article itself is not repeated."""
    article = {"headline": "T", "content": {"text": ["one", "two"]}}
    record = {"id": "a", "entities": [], "body_separator": " | ", "article": article}
    document = DocumentMaker(fields={"title": "/headline", "body": "/content/text"}).document(raw(b"k", record))
    found = body_of(document)
    assert ("T", "one | two") == (found["title"], found["body"])
    assert "article" not in found
    blocks = record | {"article": {"blocks": [{"text": "one"}, {"url": "/a"}, {"text": None}, {"text": "two"}]}}
    document = DocumentMaker(fields={"body": "/blocks/*/text"}).document(raw(b"k", blocks))
    assert "one | two" == body_of(document)["body"]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (raw(b"k", {"id": "a"}, HEADERS[:2]), "no header enricher.version"),
        (raw(b"k", {"id": "a"}, (*HEADERS[:2], ("enricher.version", b"%d" % 2**63))), "not a whole number"),
        (raw(b"k", {"id": "a"}, HEADERS[2:]), "no header enricher.source.topic"),
        (raw(None, None), "a tombstone without a key"),
        (raw(None, {"entities": []}), "neither a key nor an id"),
        (raw(b"\xff", {"id": "a"}), "not UTF-8"),
        (raw(b"k" * 513, {"id": "a"}), "more than 512 bytes"),
        (RawRecord(Partition("t", 0), 1, b"k", b"Merkel said", HEADERS), "not an enriched record"),
        (raw(b"k", {"entities": [{"label": "PER"}]}), "not an enriched record"),
    ],
)
def test_what_is_no_document_says_why(record: RawRecord, reason: str) -> None:
    """Without any text of the record."""
    with pytest.raises(NoDocument, match=reason) as refusal:
        DocumentMaker().document(record)
    assert "Merkel" not in str(refusal.value)


def document(key: str = "a", body: bytes | None = b'{"number":1}', version: int = 7) -> Document:
    """A document of no record in particular."""
    return Document(key, version, body, RawRecord(Partition("t", 0), 1, b"a", body), Origin("t", None, 0))


def test_every_action_has_its_version() -> None:
    """Deletions too."""
    lines = [orjson.loads(line) for line in bulk_lines([document("a"), document("b", None, 9)]).splitlines()]
    given = {"version_type": "external_gte"}
    assert [
        {"index": {"_id": "a", "version": 7, **given}},
        {"number": 1},
        {"delete": {"_id": "b", "version": 9, **given}},
    ] == lines


@pytest.mark.parametrize(
    ("status", "of_index", "of_deletion"),
    [
        (201, "written", "deleted"),
        (409, "older", "older"),
        (404, "failed", "deleted"),
        (429, "busy", "busy"),
        (500, "failed", "failed"),
        (403, "failed", "failed"),
        (400, "refused", "refused"),
    ],
)
def test_a_status_means(status: int, of_index: str, of_deletion: str) -> None:
    """A missing index and a block are no fault of the document."""
    assert (of_index, of_deletion) == (verdict_on(document(), status), verdict_on(document(body=None), status))


@pytest.mark.parametrize("answer", [None, {}, {"items": [1]}, {"items": [{"index": {}}]}, {"items": []}])
def test_another_answer_is_none(answer: Any) -> None:  # noqa: ANN401  any JSON
    """Of a proxy, for instance."""
    assert items_in(answer, 1) is None


def test_a_reason_repeats_no_text() -> None:
    """The index quotes values, and may name fields that come from an article."""
    quoted = "failed to parse field [number] of type [long]. Preview of field's value: 'Angela Merkel'"
    error = {"type": "document_parsing_exception", "reason": quoted}
    refusal = refusal_of(document(), {"status": 400, "error": error})
    assert "the index answers with status 400 in the field 'number'" == refusal.message
    assert "document_parsing_exception" == refusal.error_type
    foreign = refusal_of(document(), {"status": 400, "error": {**error, "reason": "field [Merkel] is odd"}})
    assert "Merkel" not in foreign.message
    assert "unknown" == refusal_of(document(), {"status": 400, "error": "text"}).error_type


def test_a_request_begins_small_and_grows() -> None:
    """To the bound, as long as it succeeds. One that is not full says nothing: a larger one might be refused."""
    size = BulkSize(100, 10_000_000)
    size.note_taken(3, 3)
    assert 25 == size.documents
    for _ in range(20):
        size.note_taken(size.documents, size.documents)
    assert 100 == size.documents


def test_a_request_of_which_a_shard_took_its_share_is_not_made_smaller() -> None:
    """The others refuse theirs whatever its size is. It grows if that was half of it, and else stays."""
    size = BulkSize(1_000, 10_000_000)
    size.note_taken(63, 250)
    assert 250 == size.documents
    for _ in range(20):
        size.note_taken(size.documents // 2 + 1, size.documents)
    assert 1_000 == size.documents


def test_busy_halves_the_documents_and_too_large_the_bytes() -> None:
    """What was too large stays so: the bytes do not rise again."""
    size = BulkSize(100, 1_000_000)
    size.note_taken(0, 20)
    assert 10 == size.documents
    size.note_too_large(800_000)
    assert 400_000 == size.bytes
    for _ in range(20):
        size.note_taken(size.documents, size.documents)
    assert 400_000 == size.bytes


@given(
    sizes=st.lists(st.integers(0, 5_000), min_size=1),
    limit=st.integers(10_000, 20_000),
    most=st.integers(1, 40),
    busy=st.integers(0, 10),
)
def test_a_request_has_one_document_or_fits(sizes: list[int], limit: int, most: int, busy: int) -> None:
    """By count and by bytes, however busy the index was."""
    size = BulkSize(most, limit)
    for _ in range(busy):
        size.note_taken(0, 1)
    taken = size.take([document(body=b"x" * each) for each in sizes])
    assert 1 <= len(taken) <= max(1, size.documents)
    assert len(taken) == 1 or sum(map(request_bytes, taken)) <= limit
