"""What a probe is told: yes or no, and one line why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of a probe. `reason` is one line without a text of an article."""

    ok: bool
    reason: str


class Probed(Protocol):
    """What the three probes ask, each in a thread of the server. Nothing here blocks."""

    def live(self) -> Verdict:
        """False where only a new process can help."""

    def ready(self) -> Verdict:
        """Whether it does its work, or would as soon as there is some."""

    def started(self) -> Verdict:
        """Whether the start is over."""
