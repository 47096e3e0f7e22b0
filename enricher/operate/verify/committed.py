"""Committed offsets, and the topic that each belongs to: a topic that is created again has a new id. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import TopicPartition

_VERSION = "enricher/1"
_TOPIC_ID = "topic-id="
_ONE_ALPHABET = str.maketrans("+/", "-_")


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The commit of a group for a partition. `topic_id`: that of its metadata, None if they name none."""

    offset: int
    topic_id: str | None = None


Committed = Mapping[int, CommittedOffset | None]
"""The committed offset of each partition; None if there is none."""


def same_topic(one: str | None, other: str | None) -> bool:
    """False if both ids are known and differ.

    Ids are 16 bytes in base64, of which the client and Kafka's tools write two characters differently: `+/` and `-_`.
    """
    if one is None or other is None or one == other:
        return True
    return one.translate(_ONE_ALPHABET) == other.translate(_ONE_ALPHABET)


def topic_id_in(metadata: str | None) -> str | None:
    """The topic id in a committed offset's metadata (`enricher/1 topic-id=... attempts=...`), or None."""
    version, *fields = (metadata or "").split(" ")
    found = [field.removeprefix(_TOPIC_ID) for field in fields if field.startswith(_TOPIC_ID)]
    return found[-1] or None if version == _VERSION and found else None


def committed_of(answer: Iterable[TopicPartition]) -> dict[int, CommittedOffset | None]:
    """The client's answer by partition."""
    return {
        tp.partition: CommittedOffset(tp.offset, topic_id_in(tp.metadata)) if tp.offset >= 0 else None for tp in answer
    }


def of_topic(committed: Committed, topic_id: str | None) -> dict[int, int | None]:
    """The offsets by partition; one that names another topic id counts as none."""
    return {
        number: place.offset if place is not None and same_topic(place.topic_id, topic_id) else None
        for number, place in committed.items()
    }
