"""Which schema is asked for next: nobody starves, and a registry that is away is left alone more and more."""

from __future__ import annotations

from enricher.codec.schemas import SchemaRef
from enricher.registry.queue import CONFIRM_S, FIRST_PAUSE_S, INTERVAL_S, Queue


def ref(number: int) -> SchemaRef:
    """A reference."""
    return SchemaRef("id", str(number))


def test_what_many_articles_wait_for_overtakes_a_stream_of_ids_that_nobody_knows() -> None:
    """Ten thousand hostile ids came first; a good one with a few articles is asked for at the second turn."""
    queue = Queue(30.0)
    for number in range(10_000):
        queue.add(ref(number))
    for _ in range(3):
        queue.add(ref(77_777))
    asked, now_s = [], 0.0
    for _ in range(4):
        wanted = queue.next(now_s)
        assert wanted
        asked.append(wanted.reference)
        queue.drop([wanted.reference])
        queue.answered(now_s, found=True)
        now_s += INTERVAL_S
    assert ref(77_777) in asked[:2]
    assert {ref(0), ref(1)} <= set(asked), "what came first is asked for, too"


def test_requests_for_what_is_unknown_keep_their_interval() -> None:
    """Five hundred take ten seconds."""
    queue, now_s, sent = Queue(30.0), 0.0, 0
    for number in range(2_000):
        queue.add(ref(number))
    while now_s < 10.0:
        if wanted := queue.next(now_s):
            queue.drop([wanted.reference])
            queue.answered(now_s, found=False)
            sent += 1
        now_s += INTERVAL_S / 4
    assert sent <= 10 / INTERVAL_S + 1


def test_pauses_double_up_to_the_longest() -> None:
    """Each failure, of whatever schema, makes the next pause longer; one answer makes it short again."""
    queue, now_s, pauses = Queue(5.0), 0.0, []
    queue.add(ref(1))
    for _ in range(6):
        wanted = queue.next(now_s)
        assert wanted
        queue.failed(wanted, now_s)
        next_s = queue.next_s()
        assert next_s is not None
        pauses.append(next_s - now_s)
        assert queue.next(next_s - 0.001) is None
        now_s = next_s
    assert [FIRST_PAUSE_S, 1.0, 2.0, 4.0, 5.0, 5.0] == pauses
    queue.add(ref(2))
    queue.answered(now_s, found=True)
    fresh = queue.next(now_s)
    assert fresh
    queue.failed(fresh, now_s)
    assert queue.free_s - now_s == FIRST_PAUSE_S


def test_many_failures_overflow_nothing() -> None:
    """A registry that is away for a year."""
    queue, now_s = Queue(30.0), 0.0
    queue.add(ref(1))
    for _ in range(5_000):
        wanted = queue.next(now_s)
        assert wanted
        queue.failed(wanted, now_s)
        now_s += 30.0
    assert queue.failing


def test_a_schema_that_always_fails_and_a_stream_of_others_take_turns() -> None:
    """Neither the one that fails nor the others have to wait for the end of the other's stream."""
    queue, now_s, tried = Queue(2.0), 0.0, 0
    queue.add(ref(-1))
    done = 0
    for number in range(3_000):
        queue.add(ref(number))
        wanted = queue.next(now_s)
        if wanted is None:
            now_s = queue.next_s() or now_s
            continue
        if wanted.reference == ref(-1):
            tried += 1
            queue.failed(wanted, now_s)
        else:
            queue.drop([wanted.reference])
            queue.answered(now_s, found=True)
            done += 1
        now_s = max(now_s + INTERVAL_S, queue.free_s)
    assert 5 <= tried <= 60, "it is tried again every two seconds, for a minute"
    assert done > 2_900


def test_an_unknown_id_is_asked_for_again_after_a_while() -> None:
    """A follower may not know yet what the leader has registered."""
    queue = Queue(30.0)
    queue.add(ref(1))
    wanted = queue.next(0.0)
    assert wanted
    queue.postponed(wanted, 0.0)
    assert (None, CONFIRM_S) == (queue.next(CONFIRM_S - 0.001), queue.next_s())
    again = queue.next(CONFIRM_S)
    assert again
    assert (again.reference, again.unknown, queue.failing) == (ref(1), True, False)


def test_what_nobody_waits_for_is_not_asked_for() -> None:
    """Its partition has another owner now."""
    queue = Queue(30.0)
    assert (True, False) == (queue.add(ref(1)), queue.add(ref(1)))
    queue.drop([ref(1), ref(2)])
    assert (0, None, None) == (len(queue), queue.next(0.0), queue.next_s())
