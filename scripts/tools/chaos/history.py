"""Reads every offset that a group ever committed, in order, from the broker's `__consumer_offsets` log.

A sample of committed offsets can be stale: a coordinator that was frozen or has just taken over may give an old answer.
The log cannot. Its records are Kafka's OffsetCommitKey and OffsetCommitValue.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import Message

OFFSETS_TOPIC = "__consumer_offsets"
_OFFSET_KEYS = {0, 1}
"""Key versions of offset commits; the others describe group members."""
_OFFSET = struct.Struct(">hq")
_TOPIC_ID = re.compile(rb"topic-id=([A-Za-z0-9+/_=-]+)")


@dataclass(frozen=True, slots=True)
class Commit:
    """One committed offset. `at`: its own offset in the offsets topic.

    `offset` is None for a deletion, `topic_id` if the metadata does not name the topic.
    """

    partition: int
    offset: int | None
    at: int
    topic_id: str | None = None


def commits_of(messages: Iterable[Message], group: str, topic: str) -> Iterator[Commit]:
    """The commits and deletions of one group in one topic, in log order."""
    for message in messages:
        value = message.value()
        partition = _partition(message.key(), group, topic)
        if partition is not None:
            offset = None if value is None else _OFFSET.unpack_from(value)[1]
            yield Commit(partition, offset, message.offset() or 0, None if value is None else _topic_id(value))


def falls(commits: Iterable[Commit]) -> Iterator[tuple[Commit, Commit]]:
    """Yield each commit that went back, with the one before it in its partition.

    After a deletion and for a new topic id, offsets start again; but then no commit may follow for an older topic.
    """
    last: dict[int, Commit] = {}
    topic_ids: dict[int, list[str]] = defaultdict(list)
    for commit in commits:
        before, known = last.get(commit.partition), topic_ids[commit.partition]
        last[commit.partition] = commit
        if commit.topic_id and commit.topic_id not in known:
            known.append(commit.topic_id)
            if len(known) > 1:
                continue
        older = commit.topic_id in known[:-1]
        if before is not None and (older or _is_lower(commit, before)):
            yield before, commit


def _is_lower(commit: Commit, before: Commit) -> bool:
    return commit.offset is not None and before.offset is not None and commit.offset < before.offset


def _topic_id(value: bytes) -> str | None:
    """The topic id in the commit's metadata, which is text and follows the offset in every version."""
    found = _TOPIC_ID.search(value, _OFFSET.size)
    return found[1].decode() if found else None


def _partition(key: bytes | str | None, group: str, topic: str) -> int | None:
    """The partition of a key; None if it belongs to another group or topic, or is no offset commit."""
    if not isinstance(key, bytes) or struct.unpack_from(">h", key)[0] not in _OFFSET_KEYS:
        return None
    wanted = b"".join(struct.pack(">h", len(text)) + text for text in (group.encode(), topic.encode()))
    if not key.startswith(wanted, 2):
        return None
    partition: int = struct.unpack_from(">i", key, 2 + len(wanted))[0]
    return partition
