"""Speeds from several backlogs: how much arrives, and how much one worker processes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scaling.building import backlog

from enricher.operate.scaling.rates import Rates


def rates_of(*moments: tuple[float, int, int, float, int], partitions: int = 1) -> Rates:
    """Rates after backlogs of (seconds, done, written, age, workers); offsets are those of each partition."""
    rates = Rates()
    for at_s, done, written, age_s, workers in moments:
        rates.note(backlog(done=done, written=written, age_s=age_s, workers=workers, partitions=partitions), at_s)
    return rates


def test_what_comes_is_averaged_over_a_minute() -> None:
    """Earlier arrivals no longer count."""
    rates = rates_of((0, 0, 0, 0, 0), (30, 0, 9000, 0, 0), (60, 0, 9000, 0, 0), (120, 0, 9600, 0, 0))
    assert rates.arriving_per_s == pytest.approx(10.0)


def test_rare_looks_still_leave_two_to_compare() -> None:
    """Even if more than a minute lies between them."""
    assert rates_of((0, 0, 0, 0, 0), (600, 0, 6000, 0, 0)).arriving_per_s == pytest.approx(10.0)


def test_the_first_look_tells_what_comes_by_the_age_of_what_waits() -> None:
    """A scaler that has just started takes a backlog of ten minutes neither for nothing nor for a peak."""
    assert rates_of((0, 0, 6000, 600.0, 0)).arriving_per_s == pytest.approx(10.0)
    assert rates_of((0, 0, 60, 0.1, 0)).arriving_per_s == pytest.approx(1.0)


def test_nothing_is_known_of_workers_before_one_did_something() -> None:
    """Neither without workers nor with one that processes nothing."""
    assert Rates().per_worker_per_s is None
    assert rates_of((0, 0, 100, 9, 0), (20, 0, 100, 29, 0)).per_worker_per_s is None
    assert rates_of((0, 0, 100, 9, 1), (20, 0, 100, 29, 1)).per_worker_per_s is None


def test_workers_that_are_never_idle_are_measured() -> None:
    """Three workers process 600 records in 20 s."""
    rates = rates_of((0, 0, 9000, 60, 3), (20, 200, 9000, 80, 3), partitions=3)
    assert rates.per_worker_per_s == pytest.approx(10.0)


def test_the_middle_of_the_measurements_counts() -> None:
    """One interval in which partitions were reassigned does no harm."""
    done = [0, 200, 400, 401, 601, 801]
    moments = [(20.0 * turn, each, 9000, 60.0, 1) for turn, each in enumerate(done)]
    assert rates_of(*moments).per_worker_per_s == pytest.approx(10.0)


def test_a_worker_that_was_never_full_may_do_a_little_more() -> None:
    """It processed 8 per second with nothing waiting: 10 are assumed."""
    assert rates_of((0, 0, 0, 0, 1), (20, 160, 160, 0, 1)).per_worker_per_s == pytest.approx(10.0)


def test_one_that_does_more_than_was_measured_is_believed() -> None:
    """Articles became shorter, and nothing waits: the measured speed follows."""
    moments = [(0.0, 0, 9000, 60.0, 1), (20.0, 200, 9000, 60.0, 1)]
    moments += [(20.0 * turn, 400 * turn - 200, 400 * turn - 200, 0.0, 1) for turn in range(2, 6)]
    assert rates_of(*moments).per_worker_per_s == pytest.approx(20.0)


def test_an_interval_in_which_workers_joined_or_left_is_no_measurement() -> None:
    """How much each worker processed is unknown."""
    assert rates_of((0, 0, 9000, 60, 1), (20, 200, 9000, 60, 2)).per_worker_per_s is None


def test_records_deleted_by_retention_were_not_processed() -> None:
    """The start moves without a commit, so no worker processed it."""
    rates = Rates()
    for at_s, start in ((0.0, 0), (20.0, 5000)):
        seen = backlog(done=start, written=9000, age_s=60.0)
        gone = [replace(each, committed=0) for each in seen.partitions]
        rates.note(replace(seen, partitions=gone), at_s)
    assert rates.per_worker_per_s is None
