"""What a verification says: one check for each part of the promise, with counts and places, never with text.

Knows no broker. A check is failed where something is certainly wrong, unknown where the log no longer tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

State = Literal["ok", "failed", "unknown"]

MAX_EXAMPLES = 10

EARLIER = "outputs of an earlier topic of this name"
"""A fact: outputs that name another topic id. What they were made from was deleted with its topic, so they prove nothing."""


class Place(NamedTuple):
    """A record, by where it stands."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"


@dataclass(slots=True)
class Check:
    """One question to the log; filled while it is read. `holds` says what is so where the answer is ok."""

    name: str
    holds: str
    checked: int = 0
    failed: int = 0
    examples: list[Place] = field(default_factory=list)
    """The first few of what failed."""
    doubt: str = ""
    """Why the log no longer tells, where it does not."""

    def fail(self, place: Place) -> None:
        """Count a violation."""
        self.failed += 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(place)

    @property
    def state(self) -> State:
        """The answer so far."""
        if self.failed:
            return "failed"
        return "unknown" if self.doubt else "ok"

    def as_json(self) -> dict[str, Any]:
        """For machines."""
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
    """Every check, in the order in which it is shown."""

    def __init__(self) -> None:
        self.lost = Check("lost", "every committed input has an output or a dead letter")
        self.doubled = Check("doubled", "no input has two")
        self.invented = Check("invented", "every output belongs to a committed record of the input")
        self.order = Check("order", "outputs keep the order of the inputs, per key")
        self.partition = Check("partition", "outputs stand in the partition of their input")
        self.tombstones = Check("tombstones", "a tombstone gives a tombstone, and nothing else does")
        self.keys = Check("keys", "an output has the key of its input")
        self.dead_letters = Check("dead letters", "a dead letter has the key and the value of its input")
        self.headers = Check("headers", "the headers are those of the schema")
        self.record_ids = Check("record ids", "the record id is that of its source")
        self.open_transactions = Check("open transactions", "none is left open: the last stable offset is the end")
        self.published_ahead = Check("published ahead", "nothing is published at or above the committed offset")
        self.committed_ahead = Check("committed ahead", "no committed offset lies beyond the end of the input")
        self.went_back = Check("went back", "committed offsets never went back while watched")
        self.caught_up = Check("caught up", "the group has committed everything that was there")
        self.payload = Check("payload", "a recomputation gives the same record")

    def __iter__(self) -> Iterator[Check]:
        return iter(vars(self).values())


@dataclass(frozen=True, slots=True)
class Report:
    """The answers, and what else was counted on the way (`facts`, by name)."""

    checks: tuple[Check, ...]
    facts: Mapping[str, int]

    @property
    def holds(self) -> bool:
        """True where no check failed."""
        return all(check.state != "failed" for check in self.checks)

    @property
    def failed(self) -> list[str]:
        """The names of the checks that failed."""
        return [check.name for check in self.checks if check.state == "failed"]

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {"holds": self.holds, "checks": [check.as_json() for check in self.checks], "facts": dict(self.facts)}
