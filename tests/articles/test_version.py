"""The version of records: its layout, its ranges, and where records of every format carry it."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import orjson
import pytest
from annotated_types import Ge, Le
from hypothesis import given
from hypothesis import strategies as st
from support.records import article_in, encoder_of, finished

from enricher.errors import FatalError
from enricher.worker.records import (
    DeadLetter,
    EnrichedRecord,
    Outcome,
    Partition,
    RawRecord,
    Tombstone,
    Versioning,
)
from enricher.worker.records.outcomes import MAX_EPOCH, MAX_GENERATION, MAX_OFFSET, record_version
from enricher.worker.settings import Settings
from enricher.worker.wiring.formats import line_reader, read_function

epochs, offsets, generations = (st.integers(0, most) for most in (MAX_EPOCH, MAX_OFFSET, MAX_GENERATION))
parts = st.tuples(epochs, offsets, generations)


def test_a_version_has_this_layout() -> None:
    """Bit by bit: indexes keep these numbers, so they must never change."""
    assert 0 == record_version(0, 0, 0)
    assert 1042 << 12 == record_version(0, 1042, 0)
    assert 3 << 55 | 1042 << 12 | 7 == record_version(3, 1042, 7)
    assert 2**63 - 1 == record_version(255, 2**43 - 1, 4095)


@given(one=parts, other=parts)
def test_versions_order_by_epoch_then_offset_then_generation(
    one: tuple[int, int, int], other: tuple[int, int, int]
) -> None:
    """No generation outweighs a newer input, and no offset a newer epoch."""
    assert (one < other) == (record_version(*one) < record_version(*other))


@pytest.mark.parametrize(
    ("outside", "name"),
    [
        ((256, 0, 0), "epoch"),
        ((-1, 0, 0), "epoch"),
        ((0, 2**43, 0), "source offset"),
        ((0, -1, 0), "source offset"),
        ((0, 0, 4096), "generation"),
        ((0, 0, -1), "generation"),
    ],
)
def test_a_part_outside_its_range_is_refused_by_its_name(outside: tuple[int, int, int], name: str) -> None:
    """It would change the other parts."""
    with pytest.raises(ValueError, match=f"the {name} of a version must be 0 to"):
        record_version(*outside)


def test_the_settings_have_the_ranges_of_a_version() -> None:
    """They are written down twice, because the settings must not load what records need."""
    fields = Settings.model_fields
    for group, name, most in (("kafka", "epoch", MAX_EPOCH), ("model", "generation", MAX_GENERATION)):
        kind = fields[group].annotation
        assert kind is not None
        assert not get_args(kind)
        bounds = kind.model_fields[name].metadata
        assert [Ge(0), Le(most)] == bounds


def headers_of(raw: RawRecord, outcome: Outcome, versioning: Versioning) -> dict[str, bytes | None]:
    """The headers of the message that a worker with these numbers makes."""
    return dict(encoder_of(versioning=versioning).outgoing(finished(raw, outcome)).headers)


def test_records_and_tombstones_have_a_version_and_dead_letters_none(raw: RawRecord, record: EnrichedRecord) -> None:
    """The same number for both, so that a tombstone deletes what is older and nothing that is newer."""
    versioning, wanted = Versioning(3, 7), b"%d" % (3 << 55 | 1042 << 12 | 7)
    for outcome in (record, Tombstone()):
        assert wanted == headers_of(raw, outcome, versioning)["enricher.version"]
    letter = DeadLetter("decode", "InvalidArticle", "body is missing")
    assert "enricher.version" not in headers_of(raw, letter, versioning)


@pytest.mark.parametrize("outcome", ["record", "tombstone"])
def test_an_offset_without_a_version_ends_the_worker_with_what_to_do(
    raw: RawRecord, record: EnrichedRecord, outcome: str
) -> None:
    """A record without a version, or with a wrong one, would be lost in an index."""
    beyond = replace(raw, offset=2**43)
    with pytest.raises(
        FatalError, match=r"articles\[3\]: the source offset .* not 8796093022208; .*kafka.epoch above 3"
    ):
        headers_of(beyond, record if outcome == "record" else Tombstone(), Versioning(3))


@pytest.mark.parametrize("article", ["none", "metadata"])
@pytest.mark.parametrize("by_language", [False, True])
def test_a_worker_notes_the_version_if_records_are_to_have_it(article: str, *, by_language: bool) -> None:
    """By the setting `output.version`, whatever else of the article is kept for its record or for the choice of tasks."""
    value = orjson.dumps({"id": "a-1", "body": "Oslo", "language": "nb"})
    raw = RawRecord(Partition("articles", 0), 1042, None, value)
    for on, wanted in ((False, None), (True, 1 << 55 | 1042 << 12 | 2)):
        settings = Settings.model_validate(
            {"kafka": {"epoch": 1}, "model": {"generation": 2}, "output": {"version": on, "article": article}}
        )
        found = article_in(read_function(settings, line_reader(settings), by_language=by_language)(raw))
        assert (wanted, "nb" if by_language else None) == (found.version, found.language)
        assert {} == found.metadata if article == "none" else {"language": "nb"} == found.metadata
