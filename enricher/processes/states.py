"""The states of a worker process, and the lines by which a child tells: a state's word, or `health` and a port.

The first three states are told by the child, the others its parent sees.
"""

from __future__ import annotations

from enum import StrEnum


class ProcessState(StrEnum):
    """Where a worker process stands."""

    STARTING = "starting"
    """It loads its model, or waits for the brokers."""
    READY = "ready"
    """It reads and publishes."""
    DRAINING = "draining"
    """It finishes what is on the device, and ends."""
    DONE = "done"
    """It ended because there is nothing left to do."""
    DEAD = "dead"
    """It ended otherwise; another may be about to take its place."""


_HEALTH = "health"


def state_of(line: str) -> ProcessState | None:
    """The state that a child tells with a line; None where the line is something else."""
    try:
        return ProcessState(line.strip())
    except ValueError:
        return None


def health_line(port: int) -> str:
    """The line that tells on which port of the loopback address a child answers for its health."""
    return f"{_HEALTH} {port}"


def health_port_of(line: str) -> int | None:
    """The port of such a line; None where the line is something else."""
    word, _, port = line.strip().partition(" ")
    # Only ASCII digits: `isdecimal` alone takes those of other scripts, and an address has none of them.
    return int(port) if word == _HEALTH and port.isascii() and port.isdecimal() and 0 < int(port) < 65_536 else None
