"""The states of a worker process, and the lines that a child reports: a state, `alive`, or `health` and a port.

The child reports each of the first three states when it begins, and `alive` every `ALIVE_EVERY_S`; the parent sets the other
states.
"""

from __future__ import annotations

from enum import StrEnum


class ProcessState(StrEnum):
    """The state of a worker process."""

    STARTING = "starting"
    """It loads its model or connects with the brokers."""
    READY = "ready"
    """It reads and publishes."""
    DRAINING = "draining"
    """It finishes the batches on the device and ends."""
    DONE = "done"
    """It ended because nothing is left to do."""
    DEAD = "dead"
    """It ended for another reason; a restart may be due."""
    SILENT = "silent"
    """It runs but has not reported for a while: it is frozen, or C code holds its interpreter's lock."""


ALIVE = "alive"
ALIVE_EVERY_S = 1.0
_HEALTH = "health"


def state_of(line: str) -> ProcessState | None:
    """The state that a line reports; None for other lines."""
    try:
        return ProcessState(line.strip())
    except ValueError:
        return None


def health_line(port: int) -> str:
    """The line that reports the port of the loopback address on which a child serves its health."""
    return f"{_HEALTH} {port}"


def health_port_of(line: str) -> int | None:
    """The port that a line reports; None for other lines."""
    word, _, port = line.strip().partition(" ")
    # `isdecimal` also accepts digits of other scripts.
    return int(port) if word == _HEALTH and port.isascii() and port.isdecimal() and 0 < int(port) < 65_536 else None
