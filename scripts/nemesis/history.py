"""Every offset that a group ever committed, in order, as the broker's own log has it.

A sample can be stale: a coordinator that was frozen or has just taken over may answer with what was true before. The log
of `__consumer_offsets` cannot. Its records are those of Kafka's OffsetCommitKey and OffsetCommitValue.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import Message

OFFSETS_TOPIC = "__consumer_offsets"
_OFFSET_KEYS = {0, 1}
"""Versions of keys that speak of offsets; others are of group members."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One committed offset, and where in the offsets topic it stands."""

    partition: int
    offset: int
    at: int


def commits_of(messages: Iterable[Message], group: str, topic: str) -> Iterator[Commit]:
    """The commits of one group in one topic, as they come. A deleted offset (no value) is none."""
    for message in messages:
        value = message.value()
        partition = _partition(message.key(), group, topic)
        if partition is not None and value is not None:
            yield Commit(partition, struct.unpack_from(">hq", value)[1], message.offset() or 0)


def falls(commits: Iterable[Commit]) -> Iterator[tuple[Commit, Commit]]:
    """Each commit that is below the one before it in its partition, after that one."""
    last: dict[int, Commit] = {}
    for commit in commits:
        before = last.get(commit.partition)
        if before is not None and commit.offset < before.offset:
            yield before, commit
        last[commit.partition] = commit


def _partition(key: bytes | str | None, group: str, topic: str) -> int | None:
    """The partition that a key is about, if it is one of this group and topic."""
    if not isinstance(key, bytes) or struct.unpack_from(">h", key)[0] not in _OFFSET_KEYS:
        return None
    wanted = b"".join(struct.pack(">h", len(text)) + text for text in (group.encode(), topic.encode()))
    if not key.startswith(wanted, 2):
        return None
    partition: int = struct.unpack_from(">i", key, 2 + len(wanted))[0]
    return partition
