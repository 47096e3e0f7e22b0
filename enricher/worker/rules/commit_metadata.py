"""The metadata string of a committed offset: what the next owner of a partition must know beside the offset.

Kafka stores up to 4,096 bytes with each committed offset (`offset.metadata.max.bytes`), in the same record, so both are
written and fenced together. People can read it: `kafka-consumer-groups` shows it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from enricher.worker.records import Mark, ReachedLimit

_VERSION = "enricher/1"
_MOST_DIGITS = 19
"""The digits of the largest offset. Anybody may commit offsets for the group, and Python parses no thousands of digits."""
_MOST_REASON_CHARS = 100


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """The topic of an offset (Kafka's id; None if another program committed it), and the notes beside the offset.

    `mark` and `reached_limit`: attempts at the records from that offset on, and the limit of dead letters that ended a
    worker.
    """

    topic_id: str | None = None
    mark: Mark = field(default_factory=Mark)
    reached_limit: ReachedLimit = field(default_factory=ReachedLimit)

    def is_of(self, topic_id: str) -> bool:
        """Whether the offset belongs to the topic with this id; True if it names none."""
        return self.topic_id in {None, topic_id}

    def encode(self) -> str:
        """The metadata as text, `enricher/1 topic-id=... attempts=1`, without empty fields."""
        values = {
            "topic-id": self.topic_id,
            "attempts": self.mark.attempts or None,
            "alone": self.mark.alone or None,
            "limit-in-a-row": self.reached_limit.in_a_row or None,
            "limit-in-window": self.reached_limit.in_window or None,
            "limit-reason": self.reached_limit.reason.replace(" ", "-")[:_MOST_REASON_CHARS] or None,
        }
        return " ".join([_VERSION, *(f"{name}={value}" for name, value in values.items() if value is not None)])

    @classmethod
    def decode(cls, text: str | None) -> CommitMetadata:
        """Read the metadata. Text of other programs (a tool that resets offsets writes an empty string) counts as empty."""
        version, *fields = (text or "").split(" ")
        if version != _VERSION:
            return cls()
        values = dict(field.split("=", 1) for field in fields if "=" in field)
        mark = Mark(_count(values.get("attempts")) or 0, _count(values.get("alone")) or 0)
        reached_limit = ReachedLimit(
            in_a_row=_count(values.get("limit-in-a-row")) or 0,
            in_window=_count(values.get("limit-in-window")) or 0,
            reason=values.get("limit-reason", "")[:_MOST_REASON_CHARS],
        )
        return cls(values.get("topic-id"), mark, reached_limit)


def _count(text: str | None) -> int | None:
    return int(text) if text and len(text) <= _MOST_DIGITS and text.isascii() and text.isdecimal() else None
