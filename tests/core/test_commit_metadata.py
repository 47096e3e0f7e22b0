"""The metadata string of a committed offset: what is written is read back, and what others wrote says nothing."""

from __future__ import annotations

import pytest

from enricher.core.commit_metadata import CommitMetadata
from enricher.records import Mark


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        (CommitMetadata(), "enricher/1"),
        (CommitMetadata("kz7-Q2mNTXS0b_1d0wY3sA"), "enricher/1 topic-id=kz7-Q2mNTXS0b_1d0wY3sA"),
        (CommitMetadata("id", Mark(attempts=3, alone=1)), "enricher/1 topic-id=id attempts=3 alone=1"),
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


@pytest.mark.parametrize("text", ["enricher/1 attempts=-1", "enricher/1 attempts=x alone=", "enricher/1 attempts=²"])
def test_a_count_that_is_none_counts_as_zero(text: str) -> None:
    """A damaged count never raises: the offset beside it is what matters."""
    assert CommitMetadata() == CommitMetadata.decode(text)


@pytest.mark.parametrize(
    ("beside", "topic", "expected"),
    [("a", "a", True), ("a", "b", False), (None, "a", True), ("a", None, True), (None, None, True)],
)
def test_an_offset_belongs_to_a_topic_unless_both_ids_are_known_and_differ(
    beside: str | None,
    topic: str | None,
    expected: bool,  # noqa: FBT001  a parameter of the test
) -> None:
    """Brokers before 2.8 give no ids, and what others committed names none."""
    assert expected == CommitMetadata(beside).is_of(topic)
