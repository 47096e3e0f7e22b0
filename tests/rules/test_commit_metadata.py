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


@pytest.mark.parametrize("text", [None, "", "NULL", "leader=3", "enricher/2 attempts=9", "attempts=9"])
def test_what_somebody_else_wrote_says_nothing(text: str | None) -> None:
    """Tools that reset offsets write an empty string, other consumers whatever they like."""
    assert CommitMetadata() == CommitMetadata.decode(text)


@pytest.mark.parametrize(
    "text",
    [
        "enricher/1 attempts=-1",
        "enricher/1 attempts=x alone=",
        "enricher/1 attempts=²",
        "enricher/1 began-with=4 replay=beginning..end until=9",  # of earlier versions
        f"enricher/1 attempts={'9' * 5_000}",
        "enricher/1 dead-letters=9 dead-letters-in-a-row=3",  # counts of earlier versions
    ],
)
def test_a_count_that_is_none_counts_as_zero(text: str) -> None:
    """A damaged count never raises: the offset beside it is what matters."""
    assert CommitMetadata() == CommitMetadata.decode(text)


@pytest.mark.parametrize(
    ("beside", "topic", "expected"),
    [("a", "a", True), ("a", "b", False), (None, "a", True)],
)
def test_an_offset_belongs_to_a_topic_unless_it_names_another_one(
    beside: str | None,
    topic: str,
    expected: bool,  # noqa: FBT001  a parameter of the test
) -> None:
    """What others committed names none."""
    assert expected == CommitMetadata(beside).is_of(topic)


def test_versions_before_read_what_this_one_writes() -> None:
    """They split it into fields by blanks and equal signs, and pass over names that they do not know."""
    version, *fields = CommitMetadata("id", Mark(attempts=2)).encode().split(" ")
    values = dict(field.split("=", 1) for field in fields if "=" in field)
    assert ("enricher/1", "id", "2") == (version, values["topic-id"], values["attempts"])


def test_a_reason_of_any_length_and_form_fits() -> None:
    """A type of error may have any name: it cannot add fields, or fill the room for metadata."""
    text = CommitMetadata(reached_limit=ReachedLimit(3, reason="a b=c attempts=9 " + "x" * 5_000)).encode()
    assert (
        ReachedLimit(3, reason=("a-b=c-attempts=9-" + "x" * 5_000)[:100]) == CommitMetadata.decode(text).reached_limit
    )
    assert Mark() == CommitMetadata.decode(text).mark
