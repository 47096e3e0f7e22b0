"""Decides whether and when a process that ended is restarted. Time is an argument."""

from __future__ import annotations

from dataclasses import dataclass

from enricher.errors import BrokerError, ModelError, SettingsError, TooManyDeadLetters
from enricher.worker.rules.pauses import doubling_pause_s

MAX_PAUSE_S = 30.0
"""The longest pause; a longer one would only delay partitions."""
_FINAL = frozenset(error.exit_code for error in (SettingsError, BrokerError, TooManyDeadLetters))


@dataclass(frozen=True, slots=True)
class RestartLimits:
    """At most `max_in_a_row` restarts of one process, after pauses that double from `first_pause_s`.

    A process that has been ready for `stable_s` resets the count.
    """

    max_in_a_row: int
    first_pause_s: float
    stable_s: float


def is_final(code: int, *, was_ready: bool) -> bool:
    """Whether not to restart a process that ended with this code.

    A model that failed to load will fail again; a device that failed later may work for a new process.
    """
    return code in _FINAL or (code == ModelError.exit_code and not was_ready)


class Restarts:
    """Counts the restarts of one process."""

    def __init__(self, limits: RestartLimits) -> None:
        self._limits = limits
        self._in_a_row = 0

    def pause_s(self, ready_for_s: float) -> float | None:
        """The pause before restarting a process that was ready for `ready_for_s`; None after too many restarts."""
        if ready_for_s >= self._limits.stable_s:
            self._in_a_row = 0
        if self._in_a_row >= self._limits.max_in_a_row:
            return None
        self._in_a_row += 1
        return doubling_pause_s(self._in_a_row, first_s=self._limits.first_pause_s, longest_s=MAX_PAUSE_S)
