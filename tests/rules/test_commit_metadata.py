"""The metadata string of a committed offset: what is written is read back, and what others wrote says nothing."""

from __future__ import annotations

import pytest

from enricher.worker.records import Mark, ReachedLimit
from enricher.worker.rules.commit_metadata import CommitMetadata


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        (CommitMetadata(), "enricher/1"),
        (CommitMetadata("kz7-Q2mNTXS0b_1d0wY3sA"), "enricher/1 topic-id=kz7-Q2mNTXS0b_1d0wY3sA"),
        (CommitMetadata("id", Mark(attempts=3, alone=1)), "enricher/1 topic-id=id attempts=3 alone=1"),
        (CommitMetadata("id", reached_limit=ReachedLimit(in_window=9)), "enricher/1 topic-id=id limit-in-window=9"),
        (
            CommitMetadata(reached_limit=ReachedLimit(3, reason="decode:InvalidArticle")),
            "enricher/1 limit-in-a-row=3 limit-reason=decode:InvalidArticle",
        ),
    ],
)
def test_what_is_written_is_read_back(metadata: CommitMetadata, text: str) -> None:
    """Fields that say nothing are left out, and come back as saying nothing."""
    assert text == metadata.encode()
    assert metadata == CommitMetadata.decode(text)


@pytest.mark.parametrize(
    "text",
    [
        *(None, "", "NULL", "leader=3", "enricher/2 attempts=9", "attempts=9"),
        "enricher/1 attempts=-1",
        "enricher/1 attempts=x alone=",
        "enricher/1 attempts=²",
        f"enricher/1 attempts={'9' * 5_000}",
        "enricher/1 began-with=4 replay=beginning..end until=9",  # of earlier versions
        "enricher/1 dead-letters=9 dead-letters-in-a-row=3",
    ],
)
def test_what_somebody_else_wrote_says_nothing(text: str | None) -> None:
    """Tools that reset offsets write an empty string, others what they like. A damaged count never raises: it is zero."""
    assert CommitMetadata() == CommitMetadata.decode(text)


def test_an_offset_belongs_to_a_topic_unless_it_names_another_one() -> None:
    """What others committed names none."""
    assert [True, False, True] == [CommitMetadata(beside).is_of("a") for beside in ("a", "b", None)]


def test_a_reason_of_any_length_and_form_fits() -> None:
    """A type of error may have any name: it cannot add fields, or fill the room for metadata."""
    text = CommitMetadata(reached_limit=ReachedLimit(3, reason="a b=c attempts=9 " + "x" * 5_000)).encode()
    assert (
        ReachedLimit(3, reason=("a-b=c-attempts=9-" + "x" * 5_000)[:100]) == CommitMetadata.decode(text).reached_limit
    )
    assert Mark() == CommitMetadata.decode(text).mark
