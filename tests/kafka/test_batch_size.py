"""Batches get smaller when the broker refuses one of several records, and larger again later."""

from __future__ import annotations

from itertools import pairwise

from enricher.worker.kafka.writing.batch_size import BatchSize

MOST_BYTES = 1_000_000
MINUTE_S, HOUR_S = 60.0, 3600.0


def test_a_few_refused_batches_lead_to_one_record_each() -> None:
    """Even if nothing is known about the limit but that the batches were larger."""
    batches, sizes_bytes = BatchSize(), list[int]()
    batches.next_batch_bytes(MOST_BYTES)
    while not batches.one_record:
        batches.note_refusal(10 * MOST_BYTES, 0.0)
        sizes_bytes.append(batches.next_batch_bytes(MOST_BYTES))
    assert [125_000, 15_625, 1_953, 1] == sizes_bytes


def test_the_refused_batch_bounds_the_next_one() -> None:
    """What was refused together was larger than the limit, so trying little less is a wasted recovery."""
    batches = BatchSize()
    batches.next_batch_bytes(MOST_BYTES)
    batches.note_refusal(40_000, 0.0)
    assert 5_000 == batches.next_batch_bytes(MOST_BYTES)


def test_a_limit_of_the_topics_that_is_lower_counts_alone() -> None:
    """It was asked for again, so nothing has to be tried."""
    batches = BatchSize()
    batches.next_batch_bytes(MOST_BYTES)
    batches.note_refusal(80_000, 0.0)
    assert 6_000 == batches.next_batch_bytes(6_000)
    assert not batches.grew(HOUR_S)


def test_batches_grow_after_a_while_and_up_to_what_the_topics_allow() -> None:
    """Step by step, each after a pause, and never before a transaction has succeeded (`grew` is called then)."""
    batches = BatchSize()
    batches.next_batch_bytes(MOST_BYTES)
    batches.note_refusal(4_000, 0.0)
    assert 1 == batches.next_batch_bytes(MOST_BYTES)
    assert not batches.grew(MINUTE_S - 1)
    sizes_bytes = []
    for minute in range(1, 5):
        assert batches.grew(minute * MINUTE_S)
        assert not batches.grew(minute * MINUTE_S)
        sizes_bytes.append(batches.next_batch_bytes(MOST_BYTES))
    assert [4_096, 32_768, 262_144, MOST_BYTES] == sizes_bytes
    assert not batches.grew(HOUR_S)


def test_a_topic_that_never_takes_large_batches_costs_a_recovery_an_hour() -> None:
    """The pause doubles each time that larger batches are refused again."""
    batches, now_s, refused_s = BatchSize(), 0.0, list[float]()
    batches.next_batch_bytes(MOST_BYTES)
    while now_s < 24 * HOUR_S:
        if batches.next_batch_bytes(MOST_BYTES) > 1_000:
            batches.note_refusal(4_000, now_s)
            refused_s.append(now_s)
        now_s += 1.0
        batches.grew(now_s)
    assert [0, 60, 180, 420, 900, 1_860, 3_780, 7_380] == refused_s[:8]
    assert {HOUR_S} == {later - before for before, later in pairwise(refused_s[6:])}


def test_after_an_hour_without_a_refusal_the_pause_is_short_again() -> None:
    """What refused them then is another trouble."""
    batches = BatchSize()
    for began_s in (0.0, 10 * HOUR_S):
        batches.next_batch_bytes(MOST_BYTES)
        batches.note_refusal(16_000, began_s)
        batches.next_batch_bytes(MOST_BYTES)
        for minute in (1, 2, 3):
            assert batches.grew(began_s + minute * MINUTE_S)
            batches.next_batch_bytes(MOST_BYTES)
