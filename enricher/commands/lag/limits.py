"""How far behind is too far. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from enricher.scaling.backlog import Backlog


@dataclass(frozen=True, slots=True)
class Limits:
    """What was asked for; None asks for nothing."""

    max_age_s: float | None = None
    max_lag: int | None = None

    @property
    def any(self) -> bool:
        """True where something was asked for."""
        return self.max_age_s is not None or self.max_lag is not None

    def exceeded(self, backlog: Backlog) -> list[str]:
        """What is above its limit, in words. An age that nobody knows is: an alarm must not sleep through it."""
        said = []
        if self.max_age_s is not None:
            if backlog.age_s is None:
                said.append("a record waits whose age is unknown: it has no timestamp, or cannot be read")
            elif backlog.age_s > self.max_age_s:
                said.append(f"the oldest record has waited for {backlog.age_s:.1f} s, {self.max_age_s:g} s are allowed")
        if self.max_lag is not None and backlog.behind > self.max_lag:
            said.append(f"the group is {backlog.behind} behind, {self.max_lag} are allowed")
        return said
