"""Committed offsets that went back, read from records as the broker writes them to `__consumer_offsets`."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import cast

import pytest
from confluent_kafka import Message

from tools.chaos.check import Commit, commits_of, falls

GROUP, TOPIC = "g", "t"
OLD, NEW = "topic-id=B1", "topic-id=A+/2"
GONE = None


@dataclass(frozen=True, slots=True)
class Record:
    """One record of the offsets topic, as far as it is read."""

    at: int
    committed: tuple[int, str] | None

    def key(self) -> bytes:
        """OffsetCommitKey, version 1: group, topic, partition."""
        texts = b"".join(struct.pack(">h", len(text)) + text.encode() for text in (GROUP, TOPIC))
        return struct.pack(">h", 1) + texts + struct.pack(">i", 3)

    def value(self) -> bytes | None:
        """OffsetCommitValue, version 3: offset, leader epoch, metadata, time; None for a deletion."""
        if self.committed is None:
            return None
        offset, metadata = self.committed
        return (
            struct.pack(">hqih", 3, offset, -1, len(metadata))
            + metadata.encode()
            + struct.pack(">q", 1_700_000_000_000)
        )

    def offset(self) -> int:
        """The record's own offset."""
        return self.at


def read(*committed: tuple[int, str] | None) -> Iterator[Commit]:
    """The commits, parsed."""
    records = [Record(at, each) for at, each in zip(count(), committed, strict=False)]
    return commits_of(cast("list[Message]", records), GROUP, TOPIC)


def test_commit_is_read_with_its_topic_id() -> None:
    """The topic id is the last part of the metadata."""
    assert [Commit(3, 17, 0, "A+/2"), Commit(3, None, 1, None)] == list(read((17, f"enricher/1 {NEW}"), GONE))


@pytest.mark.parametrize(
    ("commits", "back"),
    [
        ([(7, ""), (5, ""), (6, "")], [5]),
        ([(7, OLD), (5, OLD), (6, OLD)], [5]),
        ([(7, OLD), GONE, (2, OLD), (3, OLD)], []),
        ([(7, ""), GONE, (2, "")], []),
        ([(7, OLD), (2, NEW), (3, NEW)], []),
        ([(7, OLD), GONE, (2, NEW), (3, NEW)], []),
        ([(7, OLD), (2, NEW), (9, OLD)], [9]),
        ([(7, OLD), GONE, (2, NEW), (9, OLD)], [9]),
    ],
)
def test_offsets_begin_again_only_after_a_deletion_or_for_a_new_topic(
    commits: list[tuple[int, str] | None], back: list[int]
) -> None:
    """A lower offset went back, with or without a topic id; so did any of the old topic after one of the new."""
    assert back == [after.offset for _, after in falls(read(*commits))]
