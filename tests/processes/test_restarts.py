"""When a dead process is started again, and when that is of no use."""

from __future__ import annotations

import pytest

from enricher.errors import (
    BrokerError,
    Fenced,
    ModelError,
    RecoveryExhausted,
    SettingsError,
    Stalled,
    TooManyDeadLetters,
)
from enricher.worker.processes.restarts import MAX_PAUSE_S, RestartLimits, Restarts, is_final

LIMITS = RestartLimits(max_in_a_row=3, first_pause_s=1.0, stable_s=60.0)


def test_pauses_double_and_then_it_is_enough() -> None:
    """A process that dies at once again and again is started three times more."""
    restarts = Restarts(LIMITS)
    assert [1.0, 2.0, 4.0, None] == [restarts.pause_s(0.0) for _ in range(4)]


def test_a_process_that_was_ready_for_long_begins_a_new_row() -> None:
    """Once a day is no crash loop."""
    restarts = Restarts(LIMITS)
    assert [1.0, 2.0, 1.0, 2.0, 1.0] == [restarts.pause_s(lived_s) for lived_s in (0.0, 59.0, 60.0, 0.0, 3600.0)]


def test_pauses_have_a_bound() -> None:
    """However many restarts are allowed."""
    restarts = Restarts(RestartLimits(max_in_a_row=2_000, first_pause_s=1.0, stable_s=60.0))
    assert MAX_PAUSE_S == [restarts.pause_s(0.0) for _ in range(1_000)][-1]


@pytest.mark.parametrize(
    ("code", "was_ready", "final"),
    [
        (SettingsError.exit_code, False, True),
        (BrokerError.exit_code, True, True),
        (Fenced.exit_code, True, False),
        (ModelError.exit_code, False, True),
        (ModelError.exit_code, True, False),
        (RecoveryExhausted.exit_code, True, False),
        (Stalled.exit_code, False, False),
        (TooManyDeadLetters.exit_code, True, True),
        (1, False, False),
        (137, True, False),
    ],
)
def test_what_no_restart_mends(code: int, *, was_ready: bool, final: bool) -> None:
    """Settings, rights, a refused model, limits; but a device may work again, and a rival or an outage may pass."""
    assert is_final(code, was_ready=was_ready) == final
