"""A worker is not alive if its own work takes too long; waiting for the broker counts only at its full bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enricher.worker.health.worker_health import TURN, Waits, why_stuck
from enricher.worker.runtime.watchdog import Watched

QUICK = Waits(engine_s=0.0, tokenizer_s=0.0, limit_s=120.0)
FOR_THE_BROKER = ["a transaction", "recovering", "draining", "closing"]
SECONDS = st.floats(0, 10_000, allow_nan=False)
LIMITS = st.floats(1, 5_000, allow_nan=False)


def test_a_loop_that_turns_is_alive() -> None:
    """So is one between two turns, or one that has not begun."""
    assert why_stuck(Watched(TURN, 60.0, 29.9), QUICK) is None
    assert why_stuck(None, QUICK) is None


def test_a_turn_beyond_half_its_bound_is_not_alive() -> None:
    """The probe fails long before the watchdog ends the process, so the reason is recorded."""
    assert "no progress in 'one turn of the loop' for 31 s, bound 30 s" == why_stuck(Watched(TURN, 60.0, 30.6), QUICK)


@pytest.mark.parametrize("what", FOR_THE_BROKER)
def test_what_waits_for_the_broker_has_its_full_bound(what: str) -> None:
    """A new process would wait for the same broker."""
    assert why_stuck(Watched(what, 60.0, 59.9), QUICK) is None
    assert f"no progress in '{what}' for 61 s, bound 60 s" == why_stuck(Watched(what, 60.0, 60.9), QUICK)


def test_a_model_that_gives_nothing_back_is_not_alive_beyond_half_its_bound() -> None:
    """The loop keeps turning meanwhile."""
    turning = Watched(TURN, 60.0, 0.1)
    assert why_stuck(turning, Waits(engine_s=60.0, tokenizer_s=0.0, limit_s=120.0)) is None
    assert "the model has finished no batch for 61 s, bound 60 s" == why_stuck(
        turning, Waits(engine_s=61.0, tokenizer_s=0.0, limit_s=120.0)
    )


def test_a_tokenizer_that_gives_nothing_back_is_not_alive_either() -> None:
    """The bound is the same."""
    assert "the tokenizer has finished nothing for 61 s, bound 60 s" == why_stuck(
        None, Waits(engine_s=0.0, tokenizer_s=61.0, limit_s=120.0)
    )


@given(st.sampled_from([TURN, *FOR_THE_BROKER]), LIMITS, SECONDS, SECONDS, SECONDS, LIMITS)
def test_alive_exactly_while_everything_is_within_its_share(
    what: str, limit_s: float, since_s: float, engine_s: float, tokenizer_s: float, wait_limit_s: float
) -> None:
    """The rule holds for any numbers."""
    share = 0.5 if what == TURN else 1.0
    within = since_s <= share * limit_s and max(engine_s, tokenizer_s) <= 0.5 * wait_limit_s
    reason = why_stuck(Watched(what, limit_s, since_s), Waits(engine_s, tokenizer_s, wait_limit_s))
    assert (reason is None) == within


@given(st.sampled_from([TURN, *FOR_THE_BROKER]), LIMITS, SECONDS)
def test_nobody_is_alive_whom_the_watchdog_would_end(what: str, limit_s: float, since_s: float) -> None:
    """The probe never fails later than the watchdog."""
    if since_s > limit_s:
        assert why_stuck(Watched(what, limit_s, since_s), QUICK)
