"""The result of a verification: one check for each part of the promise, with counts and places, never with article text.

No I/O. A check fails if something is certainly wrong, and is unknown if the log can no longer tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Self

from confluent_kafka import Message

State = Literal["ok", "failed", "unknown"]

MAX_EXAMPLES = 10

EARLIER = "outputs of an earlier topic of this name"
"""Fact: how many outputs name another topic id. Their inputs were deleted with that topic, so they prove nothing."""


class Place(NamedTuple):
    """The place of a record."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def of(cls, message: Message) -> Self:
        """The place of a message."""
        return cls(message.topic() or "", message.partition() or 0, message.offset() or 0)

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"


@dataclass(slots=True)
class Check:
    """One part of the promise, checked while the log is read. `holds`: what is true if the state is ok."""

    name: str
    holds: str
    checked: int = 0
    failed: int = 0
    examples: list[Place] = field(default_factory=list)
    """The first few violations."""
    doubt: str = ""
    """Why the log can no longer tell; empty if it can."""

    def note(self, place: Place, *, ok: bool) -> None:
        """Count a record as checked, and as a violation unless it is `ok`."""
        self.checked += 1
        if not ok:
            self.fail(place)

    def fail(self, place: Place) -> None:
        """Count a violation."""
        self.failed += 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(place)

    @property
    def state(self) -> State:
        """The result so far."""
        if self.failed:
            return "failed"
        return "unknown" if self.doubt else "ok"

    def as_json(self) -> dict[str, Any]:
        """The object printed by `--json`."""
        return {
            "check": self.name,
            "state": self.state,
            "holds": self.holds,
            "checked": self.checked,
            "failed": self.failed,
            "examples": [place._asdict() for place in self.examples],
            "doubt": self.doubt,
        }


class Checks:
    """All checks, in display order."""

    def __init__(self) -> None:
        self.lost = Check("lost", "every committed input has an output or a dead letter")
        self.doubled = Check("doubled", "no input has two")
        self.invented = Check("invented", "every output belongs to a committed record of the input")
        self.order = Check("order", "outputs keep the order of the inputs, per key")
        self.partition = Check("partition", "outputs are in the partition of their input")
        self.tombstones = Check("tombstones", "a tombstone or delete event becomes a tombstone, and nothing else does")
        self.keys = Check("keys", "an output has the key of its input")
        self.dead_letters = Check("dead letters", "a dead letter has the key and the value of its input")
        self.headers = Check("headers", "the headers conform to the schema")
        self.versions = Check("versions", "a version is that of its input, and of newer inputs it is higher")
        self.record_ids = Check("record ids", "the record id is that of its source")
        self.open_transactions = Check("open transactions", "none is left open: the last stable offset is the end")
        self.published_ahead = Check("published ahead", "nothing is published at or above the committed offset")
        self.committed_ahead = Check("committed ahead", "no committed offset lies beyond the end of the input")
        self.went_back = Check("went back", "committed offsets never went back while they were watched")
        self.caught_up = Check("caught up", "the group has committed everything that was in the topic")
        self.payload = Check("payload", "a recomputation gives the same record")

    def __iter__(self) -> Iterator[Check]:
        return iter(vars(self).values())


@dataclass(frozen=True, slots=True)
class Report:
    """The checks, and what else was counted (`facts`, by name)."""

    checks: tuple[Check, ...]
    facts: Mapping[str, int]

    @property
    def holds(self) -> bool:
        """True if no check failed."""
        return all(check.state != "failed" for check in self.checks)

    @property
    def failed(self) -> list[str]:
        """The names of the checks that failed."""
        return [check.name for check in self.checks if check.state == "failed"]

    def as_json(self) -> dict[str, Any]:
        """The object printed by `--json`."""
        return {"holds": self.holds, "checks": [check.as_json() for check in self.checks], "facts": dict(self.facts)}
