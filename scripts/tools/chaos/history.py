"""Every offset that a group ever committed, in order, as the broker's own log has it.

A sample can be stale: a coordinator that was frozen or has just taken over may answer with what was true before. The log
of `__consumer_offsets` cannot. Its records are those of Kafka's OffsetCommitKey and OffsetCommitValue.
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
"""Versions of keys that speak of offsets; others are of group members."""
_OFFSET = struct.Struct(">hq")
_TOPIC_ID = re.compile(rb"topic-id=([A-Za-z0-9+/_=-]+)")


@dataclass(frozen=True, slots=True)
class Commit:
    """One committed offset, and where in the offsets topic it stands.

    `offset` is None where it was deleted, `topic_id` where the metadata does not say to which topic it belongs.
    """

    partition: int
    offset: int | None
    at: int
    topic_id: str | None = None


def commits_of(messages: Iterable[Message], group: str, topic: str) -> Iterator[Commit]:
    """The commits of one group in one topic, and their deletions, as they come."""
    for message in messages:
        value = message.value()
        partition = _partition(message.key(), group, topic)
        if partition is not None:
            offset = None if value is None else _OFFSET.unpack_from(value)[1]
            yield Commit(partition, offset, message.offset() or 0, None if value is None else _topic_id(value))


def falls(commits: Iterable[Commit]) -> Iterator[tuple[Commit, Commit]]:
    """Each commit that is below the one before it in its partition, after that one.

    After a deletion, and for a topic of another id, offsets begin again; but none is committed for an older topic then.
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
    """From the metadata beside an offset, which is text and comes behind it in every version."""
    found = _TOPIC_ID.search(value, _OFFSET.size)
    return found[1].decode() if found else None


def _partition(key: bytes | str | None, group: str, topic: str) -> int | None:
    """The partition that a key is about, if it is one of this group and topic."""
    if not isinstance(key, bytes) or struct.unpack_from(">h", key)[0] not in _OFFSET_KEYS:
        return None
    wanted = b"".join(struct.pack(">h", len(text)) + text for text in (group.encode(), topic.encode()))
    if not key.startswith(wanted, 2):
        return None
    partition: int = struct.unpack_from(">i", key, 2 + len(wanted))[0]
    return partition
