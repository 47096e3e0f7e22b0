"""What a verification is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from enricher.verify.payload import Recompute

EVERYTHING: Final = 2**63 - 1
"""More than any topic has."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a verification is to do beside its static checks.

    `settle_s`: how long open transactions have to come to their end. `wait_s`: how long the group has to catch up; None
    judges what it has committed. `watch_s`: how long to sample committed offsets before. `recompute`: how many records
    (`sample`) are compared with what it gives.
    """

    settle_s: float = 25.0
    wait_s: float | None = None
    watch_s: float = 0.0
    recompute: Recompute | None = None
    sample: int = EVERYTHING
