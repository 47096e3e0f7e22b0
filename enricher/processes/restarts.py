"""Whether and when a process that ended is started again. Decides only; the clock is the supervisor's."""

from __future__ import annotations

from dataclasses import dataclass

from enricher.errors import BrokerError, ModelError, SettingsError

MAX_PAUSE_S = 30.0
"""Pauses double up to this: longer ones would only keep partitions waiting."""
_FINAL = frozenset(error.exit_code for error in (SettingsError, BrokerError))


@dataclass(frozen=True, slots=True)
class RestartLimits:
    """`max_in_a_row` restarts of one process, after pauses that double from `first_pause_s`.

    The row ends with a process that has been ready for `stable_s`.
    """

    max_in_a_row: int
    first_pause_s: float
    stable_s: float


def is_final(code: int, *, was_ready: bool) -> bool:
    """Whether a restart cannot mend what a process ended with.

    A model that is refused at the start will be refused again; a device that failed later may work for a new process.
    """
    return code in _FINAL or (code == ModelError.exit_code and not was_ready)


class Restarts:
    """The restarts of one process."""

    def __init__(self, limits: RestartLimits) -> None:
        self._limits = limits
        self._in_a_row = 0

    def pause_s(self, ready_for_s: float) -> float | None:
        """How long to wait before the next start, after it was ready for so long; None where it is enough."""
        if ready_for_s >= self._limits.stable_s:
            self._in_a_row = 0
        if self._in_a_row >= self._limits.max_in_a_row:
            return None
        self._in_a_row += 1
        return min(self._limits.first_pause_s * 2.0 ** (self._in_a_row - 1), MAX_PAUSE_S)
