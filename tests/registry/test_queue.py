"""Which schemas are asked for next: nobody starves, an outage is waited for, and what fails alone is given up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from enricher.worker.articles.schemas import SchemaRef
from enricher.worker.registry import queue as queue_module
from enricher.worker.registry.queue import (
    AT_ONCE,
    CONFIRM_S,
    FEWEST_FAILURES,
    FIRST_PAUSE_S,
    INTERVAL_S,
    MANY_UNKNOWN,
    REMEMBERED_S,
    Patience,
    Queue,
    Wanted,
)

PATIENCE = Patience(retry_max_s=30.0, unknown_wait_s=1.0, give_up_s=300.0)


def ref(number: int) -> SchemaRef:
    """A reference."""
    return SchemaRef("id", str(number))


def queue_of(*numbers: int, patience: Patience = PATIENCE) -> Queue:
    """A queue that wants these."""
    queue = Queue(patience)
    for number in numbers:
        queue.add(ref(number), 0.0)
    return queue


def only(queue: Queue, now_s: float) -> Wanted:
    """What is asked for now, which is one schema."""
    (wanted,) = queue.next(now_s)
    return wanted


def failures(queue: Queue, status: int, *, until_s: float, now_s: float = 0.0) -> Iterator[tuple[float, Wanted]]:
    """Fail whatever is asked for while the registry answers about others; yields what is given up, and when."""
    while (next_s := queue.next_s()) is not None and next_s <= until_s:
        now_s = max(now_s, next_s)
        for wanted in queue.next(now_s):
            if queue.blame(wanted, status, now_s):
                queue.refuse(wanted, now_s)
                yield now_s, wanted
            else:
                queue.note_failure(wanted, now_s)


def test_what_many_articles_wait_for_and_what_came_last_overtake_a_stream_of_ids_that_nobody_knows() -> None:
    """Ten thousand hostile ids came first; the others are among the first that are asked for, and so is the oldest."""
    queue = queue_of(*range(10_000), 77_777, 77_777, 77_777, *range(20_000, 20_100), 88_888)
    asked = queue.next(0.0)
    assert AT_ONCE == len(asked)
    assert {ref(0), ref(77_777), ref(88_888)} <= {each.reference for each in asked}


def test_a_few_ids_are_asked_for_together_and_each_once() -> None:
    """However many of the reasons to ask for an id hold."""
    assert [ref(1), ref(2)] == [each.reference for each in queue_of(1, 2, 2).next(0.0)]


def test_requests_for_what_is_unknown_keep_their_interval() -> None:
    """Two thousand take ten seconds."""
    queue, now_s, sent = queue_of(*range(4_000)), 0.0, 0
    while now_s < 10.0:
        for wanted in queue.next(now_s):
            queue.drop([wanted.reference])
            queue.note_answer(now_s, found=False)
            sent += 1
        now_s += INTERVAL_S / 4
    assert 0.9 * 10 / INTERVAL_S <= sent <= 10 / INTERVAL_S + AT_ONCE


def test_pauses_double_up_to_the_longest() -> None:
    """Each time that the registry answers nothing the next pause is longer; one answer makes it short again."""
    queue, now_s, pauses = queue_of(1, patience=Patience(5.0, 1.0, 300.0)), 0.0, []
    for _ in range(6):
        queue.note_failure(only(queue, now_s), now_s)
        queue.away(now_s)
        next_s = queue.next_s()
        assert next_s is not None
        pauses.append(next_s - now_s)
        assert [] == queue.next(next_s - 0.001)
        now_s = next_s
    assert [FIRST_PAUSE_S, 1.0, 2.0, 4.0, 5.0, 5.0] == pauses
    queue.drop([ref(1)])
    queue.note_answer(now_s, found=True)
    queue.add(ref(2), now_s)
    queue.note_failure(only(queue, now_s), now_s)
    queue.away(now_s)
    assert queue.next_s() == now_s + FIRST_PAUSE_S


def test_many_failures_overflow_nothing() -> None:
    """A registry that is away for a year."""
    queue, now_s = queue_of(1), 0.0
    for _ in range(5_000):
        queue.note_failure(only(queue, now_s), now_s)
        queue.away(now_s)
        now_s += 30.0
    assert queue.failing


def test_ids_that_fail_alone_pause_alone() -> None:
    """A hundred fail again and again; one that comes later is asked for at once."""
    queue = queue_of(*range(100))
    assert [] == [*failures(queue, 403, until_s=200.0)]
    queue.add(ref(777), 200.0)
    assert ref(777) in {each.reference for turn in range(2) for each in queue.next(200.0 + turn)}


def test_in_an_outage_one_id_that_was_never_asked_for_is_tried_each_second() -> None:
    """It may be the one that is answered. All others wait for the end of the pause."""
    queue, now_s = queue_of(*range(50)), 0.0
    for _ in range(8):
        for wanted in queue.next(now_s):
            queue.note_failure(wanted, now_s)
        queue.away(now_s)
        now_s = queue.next_s() or now_s
    assert [1, 1.0] == [len(queue.next(now_s)), queue.free_s - (now_s - 1.0)]
    queue.drop(map(ref, range(50)))
    queue.add(ref(777), now_s)
    assert ref(777) == only(queue, now_s).reference


def test_a_schema_that_always_fails_and_a_stream_of_others_take_turns() -> None:
    """Neither the one that fails nor the others have to wait for the end of the other's stream."""
    queue, now_s, tried, done = queue_of(-1, patience=Patience(2.0, 1.0, 0.0)), 0.0, 0, 0
    for number in range(3_000):
        queue.add(ref(number), now_s)
        for wanted in queue.next(now_s):
            if wanted.reference == ref(-1):
                tried += 1
                queue.note_failure(wanted, now_s)
            else:
                queue.drop([wanted.reference])
                queue.note_answer(now_s, found=True)
                done += 1
        now_s = max(now_s + 0.02, queue.free_s)
    assert 5 <= tried <= 60, "it is tried again every two seconds, for a minute"
    assert done > 2_900


def test_an_unknown_id_is_asked_for_again_until_it_was_unknown_for_long_enough() -> None:
    """At growing distances, so that one that is registered late waits at most twice as long as it must."""
    queue, now_s, asked_s = queue_of(1, patience=Patience(30.0, 10.0, 300.0)), 0.0, []
    while len(queue):
        now_s = queue.next_s() or now_s
        asked_s.append(now_s)
        wanted = only(queue, now_s)
        if queue.is_refused(wanted, now_s, unknown=True):
            assert 10.0 == queue.refuse(wanted, now_s)
    assert [0.0, 1.0, 2.0, 4.0, 8.0, 10.0] == asked_s
    assert not queue.failing


def test_what_cannot_be_used_is_confirmed_once_whatever_unknown_ids_may_wait() -> None:
    """The answer may have been cut short."""
    queue = queue_of(1, patience=Patience(30.0, 600.0, 300.0))
    assert not queue.is_refused(only(queue, 0.0), 0.0, unknown=False)
    assert CONFIRM_S == queue.next_s()
    assert queue.is_refused(only(queue, CONFIRM_S), CONFIRM_S, unknown=False)


def test_an_id_that_was_refused_is_refused_at_once_the_next_time_and_has_been_observed_for_longer() -> None:
    """Unless nobody asked for a while: then it is an id like any other, which may just be registered late."""
    queue, now_s = queue_of(1), 0.0
    observed_s = []
    for now_s in (0.0, 1.0, 3.0, 7.0):
        queue.add(ref(1), now_s)
        wanted = only(queue, now_s)
        if queue.is_refused(wanted, now_s, unknown=True):
            observed_s.append(queue.refuse(wanted, now_s))
    assert [1.0, 3.0, 7.0] == observed_s
    late_s = now_s + REMEMBERED_S + 0.001
    queue.add(ref(1), late_s)
    assert not queue.is_refused(only(queue, late_s), late_s, unknown=True)


def test_many_unknown_ids_in_a_row_are_refused_at_the_first_answer_unless_several_articles_wait() -> None:
    """A schema that is found ends the row, and so does a pause."""

    def refused_at_once(queue: Queue, number: int, now_s: float, articles: int = 1) -> bool:
        for _ in range(articles):
            queue.add(ref(number), now_s)
        wanted = only(queue, now_s)
        at_once = queue.is_refused(wanted, now_s, unknown=True)
        queue.refuse(wanted, now_s)
        return at_once

    queue = queue_of()
    first = [refused_at_once(queue, number, 0.0) for number in range(MANY_UNKNOWN + 2)]
    assert [False] * MANY_UNKNOWN + [True, True] == first
    assert not refused_at_once(queue, 1_000, 0.0, articles=2)
    assert not refused_at_once(queue, 2_000, 60.0)
    for number in range(3_000, 3_000 + MANY_UNKNOWN):
        refused_at_once(queue, number, 60.0)
    queue.add(ref(7), 60.0)
    queue.note_found(only(queue, 60.0))
    assert not refused_at_once(queue, 9_000, 60.0)


def test_an_id_that_fails_for_long_while_others_are_answered_is_given_up() -> None:
    """Not before: until then it is asked for again at growing distances. The next time it fails once."""
    queue = queue_of(1)
    ((given_up_s, wanted),) = failures(queue, 403, until_s=1_000.0)
    assert PATIENCE.give_up_s <= given_up_s <= PATIENCE.give_up_s + PATIENCE.retry_max_s
    assert ref(1) == wanted.reference
    queue.add(ref(1), given_up_s + 30)
    assert queue.blame(only(queue, given_up_s + 30), 403, given_up_s + 30)


def test_in_an_outage_no_id_is_given_up_and_the_time_of_an_outage_does_not_count() -> None:
    """It failed for hours with all others; when they are answered again, it has all the time."""
    queue, now_s = queue_of(1), 0.0
    assert [] == [*failures(queue, 503, until_s=290.0)]
    for _ in range(1_000):
        now_s = max(queue.next_s() or 0.0, 290.0)
        queue.note_failure(only(queue, now_s), now_s)
        queue.away(now_s)
    queue.note_answer(now_s, found=True)
    ((given_up_s, _),) = failures(queue, 503, until_s=now_s + 1_000.0, now_s=now_s)
    assert given_up_s >= now_s + PATIENCE.give_up_s


def test_of_a_stream_of_ids_that_fail_in_the_same_way_not_each_takes_the_whole_time() -> None:
    """A value that begins with byte 01 is taken for a GUID, and each such value for another one."""
    queue = queue_of(*range(10))
    given_up = [*failures(queue, 403, until_s=400.0)]
    assert 10 == len(given_up)
    queue.add(ref(11), 400.0)
    ((given_up_s, _),) = failures(queue, 403, until_s=500.0, now_s=400.0)
    assert given_up_s - 400.0 == pytest.approx(FIRST_PAUSE_S * (2 ** (FEWEST_FAILURES - 1) - 1), abs=1.0)
    queue.add(ref(12), 500.0)
    assert [] == [*failures(queue, 500, until_s=700.0, now_s=500.0)], "it fails in another way"


def test_one_that_recovers_gives_the_others_that_fail_as_it_did_all_the_time_again() -> None:
    """Waiting helped."""
    queue = queue_of(1)
    assert 1 == len([*failures(queue, 403, until_s=400.0)])
    queue.add(ref(2), 400.0)
    wanted = only(queue, 400.0)
    assert not queue.blame(wanted, 403, 400.0)
    queue.note_found(wanted)
    queue.add(ref(3), 401.0)
    assert [] == [*failures(queue, 403, until_s=600.0, now_s=401.0)]


def test_with_zero_nothing_is_given_up() -> None:
    """Somebody prefers to wait."""
    assert [] == [*failures(queue_of(1, patience=Patience(30.0, 1.0, 0.0)), 403, until_s=10_000.0)]


def test_what_nobody_waits_for_is_not_asked_for() -> None:
    """Its partition has another owner now. A request that was under way changes nothing."""
    queue = Queue(PATIENCE)
    assert (True, False) == (queue.add(ref(1), 0.0), queue.add(ref(1), 0.0))
    wanted = only(queue, 0.0)
    queue.drop([ref(1), ref(2)])
    assert (0, [], None) == (len(queue), queue.next(0.0), queue.next_s())
    queue.note_failure(wanted, 0.0)
    assert not queue.failing


def test_what_is_remembered_of_refused_ids_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are forgotten."""
    monkeypatch.setattr(queue_module, "MAX_REMEMBERED", 3)
    queue = queue_of(*range(10))
    for number in range(10):
        queue.refuse(Wanted(ref(number), refused_since_s=0.0), 1.0)
    assert [ref(7), ref(8), ref(9)] == [*queue._refused]
