"""The states of a worker process. The first three are told by the child, a word a line; the others its parent sees."""

from __future__ import annotations

from enum import StrEnum


class ProcessState(StrEnum):
    """Where a worker process stands."""

    STARTING = "starting"
    """It loads its model."""
    READY = "ready"
    """It reads and publishes."""
    DRAINING = "draining"
    """It finishes what is on the device, and ends."""
    DONE = "done"
    """It ended because there is nothing left to do."""
    DEAD = "dead"
    """It ended otherwise; another may be about to take its place."""


def state_of(line: str) -> ProcessState | None:
    """The state that a child tells with a line; None where the line is something else."""
    try:
        return ProcessState(line.strip())
    except ValueError:
        return None
