"""Bulk requests: their lines, what each answer means, and how large the next one is."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enricher.indexing.bulk_writer import BulkSize, bulk_lines, items_in, refusal_of, request_bytes, verdict_on
from enricher.indexing.index_documents import Document, Origin
from enricher.worker.records import Partition, RawRecord


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
        (200, "written", "deleted"),
        (201, "written", "deleted"),
        (409, "older", "older"),
        (404, "failed", "deleted"),
        (429, "busy", "busy"),
        (503, "failed", "failed"),
        (500, "failed", "failed"),
        (403, "failed", "failed"),
        (400, "refused", "refused"),
    ],
)
def test_a_status_means(status: int, of_index: str, of_deletion: str) -> None:
    """A missing index and a block are no fault of the document."""
    assert (of_index, of_deletion) == (verdict_on(document(), status), verdict_on(document(body=None), status))


@pytest.mark.parametrize(
    "answer", [None, [], {}, {"items": {}}, {"items": [1]}, {"items": [{"index": {}}]}, {"items": []}]
)
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
    """To the bound, as long as it succeeds."""
    size = BulkSize(100, 10_000_000)
    assert 25 == size.documents
    for _ in range(20):
        size.note_taken(size.documents, size.documents)
    assert 100 == size.documents


def test_a_request_that_is_not_full_says_nothing() -> None:
    """A larger one might be refused."""
    size = BulkSize(100, 10_000_000)
    size.note_taken(3, 3)
    assert 25 == size.documents


def test_a_request_of_which_a_shard_took_its_share_is_not_made_smaller() -> None:
    """The others refuse theirs whatever its size is. It grows if that was half of it, and else stays."""
    size = BulkSize(1_000, 10_000_000)
    size.note_taken(63, 250)
    assert 250 == size.documents
    for _ in range(20):
        size.note_taken(size.documents // 2 + 1, size.documents)
    assert 1_000 == size.documents


def test_busy_halves_the_documents_and_too_large_the_bytes() -> None:
    """What was too large stays so."""
    size = BulkSize(100, 1_000_000)
    size.note_taken(0, 20)
    assert 10 == size.documents
    size.note_too_large(800_000)
    assert 400_000 == size.bytes
    for _ in range(20):
        size.note_taken(size.documents, size.documents)
    assert 720_000 == size.bytes


@given(sizes=st.lists(st.integers(0, 5_000), min_size=1), limit=st.integers(10_000, 20_000), most=st.integers(1, 40))
def test_a_request_has_one_document_or_fits(sizes: list[int], limit: int, most: int) -> None:
    """By count and by bytes."""
    size = BulkSize(most, limit)
    taken = size.take([document(body=b"x" * each) for each in sizes])
    assert 1 <= len(taken) <= max(1, size.documents)
    assert len(taken) == 1 or sum(map(request_bytes, taken)) <= limit


def test_the_smallest_request_has_one_document() -> None:
    """However busy the index is."""
    size = BulkSize(2, 10_000)
    for _ in range(10):
        size.note_taken(0, 1)
    assert [document()] == list(size.take([document(), document()]))
