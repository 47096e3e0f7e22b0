"""scripts/bench fill: the device that is a stand-in, the two ratios, and a tiny run through Kafka."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from tools.bench.bench import Bench
from tools.bench.fill import Filled, measure, outcome
from tools.bench.machine import Load
from tools.bench.stand_in import Cost, Device, Turn
from tools.bench.watching import Moment, WatchedCounters
from tools.kafka import Cluster

BATCH_TOKENS = 8192


def filled(turns: list[Turn]) -> Filled:
    """A run from 0 to 100 s."""
    counters = WatchedCounters(tuple)
    counters.began, counters.ended = Moment(0.0, 0.0, 0.0, 0.0), Moment(100.0, 2.0, 1.0, 0.0)
    return Filled(BATCH_TOKENS, Cost(), counters, turns, [], Load(100.0, 0.1, 0.0))


@pytest.mark.parametrize(("tokens", "seconds"), [(8_192, 0.0123), (32_768, 0.047), (20_480, 0.02965)])
def test_a_batch_takes_as_long_as_on_the_measured_device(tokens: int, seconds: float) -> None:
    """The two measured points, and the line between them; `slower` multiplies."""
    assert seconds == pytest.approx(Cost().seconds(tokens))
    assert 3 * seconds == pytest.approx(Cost(slower=3.0).seconds(tokens))


def test_the_device_computes_one_batch_at_a_time() -> None:
    """Batches that two threads give it together follow one another, each for its own time."""
    device = Device(Cost(slower=0.1))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(device.compute, [8_192] * 6))
    assert len(device.turns) == 6
    assert all(before.ended_s <= after.began_s for before, after in pairwise(device.turns))
    assert all(turn.ended_s - turn.began_s == pytest.approx(0.00123) for turn in device.turns)


def test_the_rate_under_backlog_ends_with_the_last_full_batch() -> None:
    """A device that is busy without a gap has its bare rate then; later batches and the ends count in the other ratio."""
    batch_s = Cost().seconds(BATCH_TOKENS)
    turns = [Turn(BATCH_TOKENS, place * batch_s, (place + 1) * batch_s) for place in range(3)]
    turns.append(Turn(100, 50.0, 51.0))
    run = filled(turns)
    assert run.under_backlog == pytest.approx(1.0)
    assert run.overall == pytest.approx((3 + 100 / BATCH_TOKENS) * batch_s / 100)


@pytest.mark.broker
def test_a_tiny_run_through_kafka_is_measured(broker: Cluster) -> None:
    """The dry run: every article is published, with entities."""
    bench = Bench(1, quick=True, say=lambda _: None)
    vars(bench)["cluster"] = broker
    found = measure(bench, count=12, batch_tokens=2048, cost=Cost(slower=0.1), entities=40)
    figures = found.figures()
    assert figures["articles"] == 12
    assert 20 < figures["entities_per_article"] < 60
    assert 0 < found.overall < 1
    [table] = outcome(found).tables
    assert [*figures] == [name for name, _ in table.rows]
