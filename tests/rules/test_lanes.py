"""Lanes: turns in proportion to the shares, whatever the pieces of work are, and batches by turns."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from rules.building import raw, window_of

from enricher.worker.records import Batch, Partition, Ticket, Window
from enricher.worker.rules.batch_rules import BatchRules
from enricher.worker.rules.batching import LengthBucketScheduler
from enricher.worker.rules.lanes import LaneScheduler, Turns

NOW, LATER = "articles.now", "articles"
SHARES = {NOW: 0.8, LATER: 0.2}
BUDGET, MAX_WAIT_S = 8, 1.0
RULES = BatchRules((4, 8), BUDGET, MAX_WAIT_S, run_overhead_tokens=1)


def window(lane: str, arrived_s: float, length: int = 4) -> Window:
    """A window of an article in this lane."""
    return window_of(length, arrived_s, Ticket(raw(0, Partition(lane, 0)), arrived_s))


def scheduler_of() -> LaneScheduler:
    """Two lanes."""
    return LaneScheduler({lane: LengthBucketScheduler(RULES) for lane in SHARES}, SHARES)


def lane_of(batch: Batch | None) -> str | None:
    """The lane of a batch, which has no windows of another one."""
    if batch is None:
        return None
    (lane,) = {each.ticket.raw.partition.topic for each in batch.windows}
    return lane


costs = st.lists(st.floats(0.1, 10.0), min_size=20, max_size=60)


@given(costs, costs, st.floats(0.05, 0.95))
def test_lanes_with_work_get_their_shares(first: list[float], second: list[float], share: float) -> None:
    """While both have work, what they got per share differs by no more than one piece of each."""
    shares, work = {"a": share, "b": 1 - share}, {"a": list(first), "b": list(second)}
    turns, got = Turns(shares), Counter[str]()
    bound = max(first) / share + max(second) / (1 - share)
    while work["a"] and work["b"]:
        lane = turns.order(work)[0]
        turns.note(lane, cost := work[lane].pop())
        got[lane] += cost  # type: ignore[assignment]  # costs are floats
        assert abs(got["a"] / shares["a"] - got["b"] / shares["b"]) <= bound + 1e-6


@given(st.integers(1, 200), st.floats(0.01, 0.99))
def test_a_lane_that_was_idle_goes_next_and_has_saved_up_nothing(pieces: int, share: float) -> None:
    """However long the other was alone: the first piece goes at once, and then both get their shares."""
    turns = Turns({"a": share, "b": 1 - share})
    for _ in range(pieces):
        turns.note("b", 1.0)
    assert turns.order("ba")[0] == "a"
    got = Counter[str]()
    for _ in range(200):
        lane = turns.order("ab")[0]
        turns.note(lane, 1.0)
        got[lane] += 1
    assert abs(got["a"] - 200 * share) <= 2


def test_the_larger_share_goes_first_among_equals() -> None:
    """As at the beginning."""
    assert [NOW, LATER] == Turns(SHARES).order([LATER, NOW])


def test_a_headline_goes_before_a_backlog() -> None:
    """As soon as it is due, though hundreds of windows of the other lane have waited for longer."""
    scheduler = scheduler_of()
    scheduler.add([window(LATER, 0.0) for _ in range(200)])
    for _ in range(5):
        assert lane_of(scheduler.next_batch(0.5)) == LATER
    scheduler.add([window(NOW, 0.5)])
    assert scheduler.next_batch(0.5 + MAX_WAIT_S / 2) is not None, "the backlog goes on while the headline waits"
    assert lane_of(scheduler.next_batch(0.5 + MAX_WAIT_S)) == NOW
    assert lane_of(scheduler.next_batch(0.5 + MAX_WAIT_S)) == LATER


def test_a_flood_leaves_the_other_lane_its_share() -> None:
    """The floor: of 100 batches, 20 are those of the small share."""
    scheduler = scheduler_of()
    for lane in SHARES:
        scheduler.add([window(lane, 0.0) for _ in range(400)])
    got = Counter(lane_of(scheduler.next_batch(5.0)) for _ in range(100))
    assert {NOW: 80, LATER: 20} == dict(got)


def test_it_has_the_interface_of_one_scheduler() -> None:
    """Sums over the lanes, one budget, and forgotten windows are dropped in each."""
    scheduler = scheduler_of()
    windows = [window(NOW, 0.0, 2), window(LATER, 0.25, 3)]
    scheduler.add(windows)
    assert (2, 5) == (scheduler.queued_windows, scheduler.queued_tokens)
    assert (2, 3) == (scheduler.queued_tokens_of(NOW), scheduler.queued_tokens_of(LATER))
    assert MAX_WAIT_S == scheduler.next_due_s()
    scheduler.limit_budget(4)
    assert 4 == scheduler.max_batch_tokens
    for each in windows:
        each.ticket.forgotten = True
    scheduler.drop_forgotten()
    assert (0, None, None) == (scheduler.queued_windows, scheduler.next_due_s(), scheduler.next_batch(9.0))
