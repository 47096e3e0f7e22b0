"""Pauses after failures."""

from __future__ import annotations

from enricher.worker.runtime.deadlines import doubling_pause_s


def test_pauses_double_up_to_the_longest() -> None:
    """There is none before the first failure."""
    pauses = [doubling_pause_s(failures, first_s=0.5, longest_s=3.0) for failures in range(6)]
    assert [0.0, 0.5, 1.0, 2.0, 3.0, 3.0] == pauses


def test_any_number_of_failures_has_a_pause() -> None:
    """The power of two does not overflow."""
    assert 30.0 == doubling_pause_s(1_000_000, first_s=0.1, longest_s=30.0)
