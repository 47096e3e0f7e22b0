"""The metadata string of a committed offset: what the next owner of a partition must know beside the offset.

Kafka stores up to 4,096 bytes with each committed offset (`offset.metadata.max.bytes`), in the same record, so both are
written and fenced together. People can read it: `kafka-consumer-groups` shows it.
"""

from __future__ import annotations

from dataclasses import dataclass

_VERSION = "enricher/1"
_TOPIC_ID, _ATTEMPTS, _ALONE = "topic-id", "attempts", "alone"


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """Which topic an offset belongs to, and how many processes began there without committing a higher offset.

    `topic_id` is Kafka's id of the topic, None from brokers before 2.8. `attempts` counts those processes; `alone` counts
    those of them that had only the record at this offset in flight.
    """

    topic_id: str | None = None
    attempts: int = 0
    alone: int = 0

    def is_of(self, topic_id: str | None) -> bool:
        """Whether the offset belongs to the topic with this id; True if either id is unknown."""
        return None in {self.topic_id, topic_id} or self.topic_id == topic_id

    def encode(self) -> str:
        """Write it as `enricher/1 topic-id=... attempts=1`, without empty fields."""
        fields = [_VERSION]
        if self.topic_id:
            fields.append(f"{_TOPIC_ID}={self.topic_id}")
        if self.attempts:
            fields.append(f"{_ATTEMPTS}={self.attempts}")
        if self.alone:
            fields.append(f"{_ALONE}={self.alone}")
        return " ".join(fields)

    @classmethod
    def decode(cls, text: str | None) -> CommitMetadata:
        """Read it. Text of other programs (a tool that resets offsets writes an empty string) counts as empty."""
        version, *fields = (text or "").split(" ")
        if version != _VERSION:
            return cls()
        values = dict(field.split("=", 1) for field in fields if "=" in field)
        return cls(values.get(_TOPIC_ID), _count(values.get(_ATTEMPTS)), _count(values.get(_ALONE)))


def _count(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() else 0
