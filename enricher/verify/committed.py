"""Committed offsets, and which topic each belongs to: a topic that is created again keeps its name, not its id. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from confluent_kafka import TopicPartition

_FORM = "enricher/1"
_TOPIC_ID = "topic-id="
_ONE_ALPHABET = str.maketrans("+/", "-_")


class CommittedOffset(NamedTuple):
    """What a group has committed for a partition. `topic_id`: which topic it says it belongs to, None if it does not."""

    offset: int
    topic_id: str | None = None


Committed = Mapping[int, CommittedOffset | None]
"""The committed offset of each partition; None where there is none."""


def same_topic(one: str | None, other: str | None) -> bool:
    """False where both ids are known and differ.

    Ids are 16 bytes in base64. The client and Kafka's tools write two of its 64 characters differently: `+/` and `-_`.
    """
    if one is None or other is None or one == other:
        return True
    return one.translate(_ONE_ALPHABET) == other.translate(_ONE_ALPHABET)


def topic_id_in(metadata: str | None) -> str | None:
    """The topic id in a committed offset's metadata, `enricher/1 topic-id=... attempts=...`; None where there is none."""
    form, *fields = (metadata or "").split(" ")
    found = [field.removeprefix(_TOPIC_ID) for field in fields if field.startswith(_TOPIC_ID)]
    return found[-1] or None if form == _FORM and found else None


def committed_of(answer: Iterable[TopicPartition]) -> dict[int, CommittedOffset | None]:
    """What the client answered, by partition."""
    return {
        tp.partition: CommittedOffset(tp.offset, topic_id_in(tp.metadata)) if tp.offset >= 0 else None for tp in answer
    }


def of_topic(committed: Committed, topic_id: str | None) -> dict[int, int | None]:
    """The offsets that belong to the topic of this id. One that names another id counts as none."""
    return {
        number: place.offset if place is not None and same_topic(place.topic_id, topic_id) else None
        for number, place in committed.items()
    }
