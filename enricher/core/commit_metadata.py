"""What stands beside a committed offset, in its metadata string: all that a successor must know and no other place keeps.

Kafka stores up to 4,096 bytes with each committed offset (`offset.metadata.max.bytes`), in the same record as the offset, so
it is written and fenced with it. The text is for people too: `kafka-consumer-groups` and others show it.
"""

from __future__ import annotations

from dataclasses import dataclass

_FORM = "enricher/1"
_TOPIC_ID, _ATTEMPTS, _ALONE = "topic-id", "attempts", "alone"


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """Which topic an offset belongs to, and how often a process began there without getting any further.

    `topic_id` is Kafka's id of the topic, None where the broker gives none (before 2.8). `attempts` counts the processes
    that took up work at this offset and have not committed a higher one; `alone` counts those of them that had nothing
    else in flight than the record at this offset.
    """

    topic_id: str | None = None
    attempts: int = 0
    alone: int = 0

    def is_of(self, topic_id: str | None) -> bool:
        """Whether the offset belongs to the topic with this id, as far as anybody says: either id may be unknown."""
        return None in {self.topic_id, topic_id} or self.topic_id == topic_id

    def encode(self) -> str:
        """Write it as `enricher/1 topic-id=... attempts=1`; fields that say nothing are left out."""
        fields = [_FORM]
        if self.topic_id:
            fields.append(f"{_TOPIC_ID}={self.topic_id}")
        if self.attempts:
            fields.append(f"{_ATTEMPTS}={self.attempts}")
        if self.alone:
            fields.append(f"{_ALONE}={self.alone}")
        return " ".join(fields)

    @classmethod
    def decode(cls, text: str | None) -> CommitMetadata:
        """Read it. What somebody else wrote (a tool that resets offsets writes an empty string) says nothing."""
        form, *fields = (text or "").split(" ")
        if form != _FORM:
            return cls()
        values = dict(field.split("=", 1) for field in fields if "=" in field)
        return cls(values.get(_TOPIC_ID), _count(values.get(_ATTEMPTS)), _count(values.get(_ALONE)))


def _count(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() else 0
