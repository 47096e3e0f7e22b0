"""How busy the worker is, and when that lets transactions begin."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random
from statistics import quantiles

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from enricher.worker.rules.load import AVERAGED_S, Cadence, Load, share_at_load

SHARE = 0.5
LONGEST_S = 0.25
loads = st.floats(0, 1)
shares = st.floats(0.001, 10)


def busy_for(seconds: float, *, running: int, waited: float, tokenizing: float) -> float:
    """The load of two threads to which turns of 5 ms were added; `waited`: the share of each that the loop waited."""
    load = Load(2, 0.0)
    for turn in range(1, 1 + round(seconds / 0.005)):
        load.note(0.005 * turn, running=running, tokenizing=tokenizing, waited_s=0.005 * waited)
    return load.busy


# ---- scaled


@given(one=loads, other=loads, share=shares, power=st.integers(1, 4))
@example(one=0.0, other=5e-324, share=0.2, power=4).via("the average of a worker that has done nothing for ten minutes")
def test_the_share_that_is_allowed_falls_with_the_load(one: float, other: float, share: float, power: int) -> None:
    """Everywhere, without a step upwards; at half load it is what the setting says."""
    lower, higher = sorted((one, other))
    assert share_at_load(share, lower, power) >= share_at_load(share, higher, power) >= 0
    assert [math.inf, share, 0] == [share_at_load(share, load, power) for load in (0.0, 0.5, 1.0)]


# ---- Load


@pytest.mark.parametrize(
    ("running", "waited", "tokenizing"),
    [(0, 0.7, 0.0), (1, 0.9, 0.2), (2, 0.5, 0.9), (1, 0.2, 0.0), (3, 1.0, 0.0), (1, 0.9, 0.7), (0, 1.0, 5.0)],
)
def test_the_average_arrives_at_the_busiest_part(running: int, waited: float, tokenizing: float) -> None:
    """Of device, tokenizer and loop; more batches or calls than threads keep the threads busy, not more than that."""
    busiest = max(min(1.0, running / 2), min(1.0, tokenizing), 1 - waited)
    found = busy_for(10 * AVERAGED_S, running=running, waited=waited, tokenizing=tokenizing)
    assert busiest == pytest.approx(found, abs=1e-3)


@given(pauses_s=st.lists(st.floats(1e-6, 3), min_size=1, max_size=30))
def test_the_average_does_not_depend_on_how_often_it_is_noted(pauses_s: list[float]) -> None:
    """Many short turns weigh as much as one long one."""
    often, once = Load(2, 0.0), Load(2, 0.0)
    now_s = 0.0
    for pause_s in pauses_s:
        now_s += pause_s
        often.note(now_s, running=1, waited_s=pause_s)
    once.note(now_s, running=1, waited_s=now_s)
    assert once.busy == pytest.approx(often.busy)


@given(turns=st.lists(st.tuples(st.floats(0, 2), st.integers(0, 9), st.floats(0, 3)), max_size=40))
def test_the_load_is_a_share(turns: list[tuple[float, int, float]]) -> None:
    """Also after turns that took no time, or whose wait was measured as longer than the turn."""
    load, now_s = Load(2, 0.0), 0.0
    for pause_s, running, waited_s in turns:
        now_s += pause_s
        load.note(now_s, running=running, waited_s=waited_s)
        assert 0 <= load.busy <= 1


def test_time_that_is_skipped_does_not_count() -> None:
    """A worker that connected for a minute has no load afterwards."""
    load = Load(1, 0.0)
    load.skip(60.0)
    load.note(60.001, running=1, waited_s=0.0)
    assert load.busy < 0.01


# ---- Cadence


def cadence_with(*costs_s: float, share: float = SHARE) -> Cadence:
    """Transactions took so long; the last one ended at 10 s."""
    cadence = Cadence(LONGEST_S, share, 0.0)
    for cost_s in costs_s:
        cadence.note_try(10.0 - cost_s)
        cadence.note_transaction(10.0 - cost_s, 10.0)
    return cadence


@given(load=loads, cost_s=st.floats(0, 2), share=st.floats(0, 1))
def test_a_transaction_is_never_put_off_beyond_the_longest_interval(load: float, cost_s: float, share: float) -> None:
    """Counted from the beginning of the one before, as always."""
    cadence = cadence_with(cost_s, share=share)
    assert cadence.earliest_s(load) <= cadence.latest_s
    assert 10.0 - cost_s + LONGEST_S == cadence.latest_s


@given(load=loads, cost_s=st.floats(0, LONGEST_S / 2), share=shares)
def test_transactions_take_at_most_two_thirds_of_the_time(load: float, cost_s: float, share: float) -> None:
    """The pause is at least half as long as the transaction, and as long as brokers need to end it, at any load."""
    assert cadence_with(cost_s, share=share).earliest_s(load) >= 10.0 + max(cost_s / 2, 0.005) - 1e-9


@given(cost_s=st.floats(0.001, 0.1), share=st.floats(0, 1))
def test_a_busy_worker_publishes_at_the_longest_interval(cost_s: float, share: float) -> None:
    """Near capacity the transactions are as large as ever."""
    cadence = cadence_with(cost_s, share=share)
    assert {cadence.latest_s} == {cadence.earliest_s(load) for load in (0.999, 1.0)}


@given(load=loads, idle_since_s=st.floats(9, 11), cost_s=st.floats(0.005, 0.1))
def test_a_worker_without_work_publishes_after_as_long_as_it_takes(
    load: float, idle_since_s: float, cost_s: float
) -> None:
    """The load does not matter: it is no later than that, no earlier than the shortest pause, and never without a share."""
    cadence, found_s = cadence_with(cost_s), cadence_with(cost_s).earliest_s(load, idle_since_s)
    assert found_s <= max(10.0 + max(cost_s / 2, 0.005), idle_since_s + cost_s) + 1e-9
    assert cadence.earliest_s(0.0) <= found_s <= cadence.earliest_s(load)
    assert cadence.latest_s == cadence_with(cost_s, share=0.0).earliest_s(load, idle_since_s)


def test_one_slow_transaction_changes_nothing() -> None:
    """The median counts; when most are slow, it does."""
    usual, once, often = cadence_with(*[0.004] * 9), cadence_with(*[0.004] * 8, 2.0), cadence_with(*[0.02] * 9)
    once.note_try(10.0)
    usual.note_try(10.0)
    assert usual.earliest_s(0.5) == once.earliest_s(0.5)
    assert often.earliest_s(0.5) > usual.earliest_s(0.5)


# ---- both together


class Threshold(Cadence):
    """All or nothing: transactions as often as possible below half load, at the longest interval above."""

    def earliest_s(self, load: float, idle_since_s: float | None = None) -> float:
        """By the load alone."""
        del idle_since_s
        return super().earliest_s(0.0 if load < 0.5 else 1.0)


def intervals(traffic_load: float, cost_s: float, kind: type[Cadence] = Cadence) -> list[float]:
    """Seconds between transactions of a loop that works on articles as they come, after its averages have settled.

    In turns of a millisecond. Each article takes 2 ms of the loop; transactions take `cost_s`, more or less by a fifth.
    """
    random, now_s, finished = Random(1), 0.0, False
    load, cadence, began_s = Load(2, 0.0), kind(LONGEST_S, SHARE, 0.0), list[float]()
    while now_s < 16:
        worked_s = 0.002 if random.random() < traffic_load / (2 - traffic_load) else 0.0
        finished |= worked_s > 0
        now_s += worked_s
        if finished and now_s >= cadence.earliest_s(load.busy):
            cadence.note_try(now_s)
            began_s.append(now_s)
            took_s = cost_s * random.uniform(0.8, 1.2)
            now_s, worked_s, finished = now_s + took_s, worked_s + took_s, False
            cadence.note_transaction(began_s[-1], now_s)
        waited_s = 0.0 if worked_s else 0.001
        now_s += waited_s
        load.note(now_s, running=0, waited_s=waited_s)
    return [after_s - before_s for before_s, after_s in pairwise(began_s) if before_s > 6]


def swing(taken_s: list[float]) -> float:
    """How many times longer the long intervals are than the short ones."""
    tenths = quantiles(taken_s, n=10)
    return tenths[-1] / tenths[0]


@pytest.mark.parametrize("cost_s", [0.004, 0.02])
@pytest.mark.parametrize("traffic_load", [0.25, 0.35, 0.5, 0.75, 0.95])
def test_the_rhythm_of_transactions_settles(traffic_load: float, cost_s: float) -> None:
    """Transactions raise the load, which lengthens the interval, which lowers it: neither swings."""
    taken_s = intervals(traffic_load, cost_s)
    assert swing(taken_s) < 2
    assert max(taken_s) <= LONGEST_S + 0.005, "an article may be in the way"


def test_a_rhythm_that_swings_is_noticed() -> None:
    """A threshold is what this must not be."""
    assert swing(intervals(0.35, 0.02, Threshold)) > 2
