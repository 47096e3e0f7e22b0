"""How many workers are wanted: each rule, and properties that hold for every load."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enricher.operate.scaling.policy import Load, Rules, is_active, wanted_workers

QUIET = Load(
    waiting=0, age_s=0.0, waiting_partitions=0, partitions=24, workers=1, arriving_per_s=0.0, per_worker_per_s=10.0
)
RULES = Rules(target_age_s=60.0, catch_up_s=180.0)
AGES_S = st.floats(0, 1e9) | st.just(math.inf)


@st.composite
def loads(draw: st.DrawFn) -> Load:
    """Any load that can be observed."""
    partitions = draw(st.integers(1, 500))
    waiting_partitions = draw(st.integers(0, partitions))
    waiting = draw(st.integers(waiting_partitions, 10**9)) if waiting_partitions else 0
    return Load(
        waiting=waiting,
        age_s=draw(AGES_S) if waiting else 0.0,
        waiting_partitions=waiting_partitions,
        partitions=partitions,
        workers=draw(st.integers(0, 1000)),
        arriving_per_s=draw(st.just(0.0) | st.floats(1e-3, 1e7)),
        per_worker_per_s=draw(st.none() | st.floats(1e-3, 1e6)),
    )


RULE_SETS = st.builds(
    Rules,
    target_age_s=st.floats(1, 1e6),
    catch_up_s=st.floats(1, 1e6),
    max_workers=st.none() | st.integers(1, 2000),
)


@given(loads(), RULE_SETS)
def test_there_are_never_more_than_partitions_nor_than_allowed(load: Load, rules: Rules) -> None:
    """A worker without a partition only costs money."""
    wanted = wanted_workers(load, rules)
    assert wanted <= load.partitions
    assert rules.max_workers is None or wanted <= rules.max_workers


@given(loads(), RULE_SETS)
def test_zero_is_wanted_only_where_nothing_waits_and_nothing_comes(load: Load, rules: Rules) -> None:
    """In that case it is always wanted."""
    assert (wanted_workers(load, rules) == 0) == (load.waiting == 0 and load.arriving_per_s == 0)
    assert is_active(load) == (wanted_workers(load, rules) > 0)


@given(loads(), RULE_SETS, AGES_S)
def test_an_older_record_never_asks_for_fewer(load: Load, rules: Rules, age_s: float) -> None:
    """With everything else equal, a higher age never wants fewer workers."""
    older = replace(load, age_s=max(load.age_s, age_s))
    assert wanted_workers(older, rules) >= wanted_workers(load, rules)


@given(loads(), RULE_SETS, st.integers(0, 10**9), st.floats(0, 1e7))
def test_more_work_never_asks_for_fewer(load: Load, rules: Rules, waiting: int, arriving_per_s: float) -> None:
    """Neither more waiting records nor more arrivals do."""
    more = replace(load, arriving_per_s=load.arriving_per_s + arriving_per_s)
    if load.waiting:
        more = replace(more, waiting=load.waiting + waiting)
    assert wanted_workers(more, rules) >= wanted_workers(load, rules)


@given(loads(), RULE_SETS)
def test_what_is_wanted_stays_wanted_once_it_is_there(load: Load, rules: Rules) -> None:
    """The number is a fixed point if speeds are known: workers that join do not change it."""
    if load.per_worker_per_s is not None:
        wanted = wanted_workers(load, rules)
        assert wanted_workers(replace(load, workers=wanted), rules) == wanted


@pytest.mark.parametrize("arriving_per_s", [38.0, 39.9, 40.1, 42.0])
def test_a_load_at_the_edge_does_not_swing(arriving_per_s: float) -> None:
    """Five workers run, and stay a little below and a little above the capacity of four."""
    load = replace(QUIET, workers=5, arriving_per_s=arriving_per_s)
    assert wanted_workers(load, RULES) == 5


def test_what_comes_is_kept_up_with_at_four_fifths_of_the_workers_time() -> None:
    """With 32 arrivals and ten per worker and second, four workers are busy 80 % of the time."""
    assert wanted_workers(replace(QUIET, arriving_per_s=32.0), RULES) == 4


def test_one_record_that_is_years_old_asks_for_one_worker() -> None:
    """A feed that sends its archive with the original timestamps does not start all workers."""
    load = replace(QUIET, waiting=1, waiting_partitions=1, age_s=3e8)
    assert wanted_workers(load, RULES) == 1


def test_a_backlog_below_half_the_target_age_adds_nothing() -> None:
    """Batches and transactions take time, and a burst that is processed in time needs no more workers."""
    load = replace(QUIET, arriving_per_s=8.0, waiting=200, waiting_partitions=24, age_s=29.0)
    assert wanted_workers(load, RULES) == 1


def test_what_is_overdue_is_gone_in_the_time_for_catching_up() -> None:
    """Of 14,400 waiting records three quarters are overdue: 60 per second for 180 s, so six workers."""
    load = replace(QUIET, waiting=14_400, waiting_partitions=24, age_s=120.0)
    assert wanted_workers(load, RULES) == 6


def test_one_partition_that_is_stuck_asks_for_one_more_worker() -> None:
    """Only one worker can read it, however much waits."""
    load = replace(QUIET, waiting=10**6, waiting_partitions=1, age_s=10_000.0)
    assert wanted_workers(load, RULES) == 1
    assert wanted_workers(replace(load, arriving_per_s=32.0), RULES) == 5


def test_workers_that_would_gain_nothing_are_not_wanted() -> None:
    """With 24 partitions the busiest of 13 workers has two, like each of 12: the number is 12, or 24."""
    asked = {wanted_workers(replace(QUIET, workers=0, arriving_per_s=float(rate)), RULES) for rate in range(1, 400)}
    assert {number for number in asked if number > 8} == {12, 24}


def test_unknown_speed_asks_for_as_many_as_there_are_and_doubles_while_the_age_is_too_high() -> None:
    """Never fewer, never more than twice: workers that are starting are no members yet, so it waits for them."""
    load = replace(QUIET, waiting=5000, waiting_partitions=24, workers=3, per_worker_per_s=None)
    assert wanted_workers(replace(load, age_s=20.0), RULES) == 3
    assert wanted_workers(replace(load, age_s=90.0), RULES) == 5
    assert wanted_workers(replace(load, age_s=1e6), RULES) == 6


def test_from_zero_one_worker_is_wanted_for_one_record() -> None:
    """No worker runs, so a worker's speed is unknown."""
    load = replace(QUIET, waiting=1, waiting_partitions=1, workers=0, age_s=0.1, per_worker_per_s=None)
    assert wanted_workers(load, RULES) == 1
