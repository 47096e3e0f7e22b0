"""The metadata string of a committed offset: what the next owner of a partition must know beside the offset.

Kafka stores up to 4,096 bytes with each committed offset (`offset.metadata.max.bytes`), in the same record, so both are
written and fenced together. People can read it: `kafka-consumer-groups` shows it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from enricher.records import Mark

_VERSION = "enricher/1"


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """Which topic an offset belongs to (Kafka's id of it, None from brokers before 2.8), and its mark."""

    topic_id: str | None = None
    mark: Mark = field(default_factory=Mark)

    def is_of(self, topic_id: str | None) -> bool:
        """Whether the offset belongs to the topic with this id; True if either id is unknown."""
        return None in {self.topic_id, topic_id} or self.topic_id == topic_id

    def encode(self) -> str:
        """Write it as `enricher/1 topic-id=... attempts=1`, without empty fields."""
        values = {"topic-id": self.topic_id, "attempts": self.mark.attempts, "alone": self.mark.alone}
        return " ".join([_VERSION, *(f"{name}={value}" for name, value in values.items() if value)])

    @classmethod
    def decode(cls, text: str | None) -> CommitMetadata:
        """Read it. Text of other programs (a tool that resets offsets writes an empty string) counts as empty."""
        version, *fields = (text or "").split(" ")
        if version != _VERSION:
            return cls()
        values = dict(field.split("=", 1) for field in fields if "=" in field)
        return cls(values.get("topic-id"), Mark(_count(values.get("attempts")), _count(values.get("alone"))))


def _count(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() else 0
