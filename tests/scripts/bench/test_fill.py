"""scripts/bench fill: the device that is a stand-in, what its waits are put down to, and a tiny run through Kafka."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from itertools import pairwise
from pathlib import Path

import pytest

from tools.bench.bench import Bench
from tools.bench.fill import Filled, Submitted, measure, outcome
from tools.bench.stand_in import Cost, Device, Turn
from tools.bench.watching import Call
from tools.kafka import Cluster

BATCH_TOKENS = 8192


def filled(turns: list[Turn], submitted: list[Submitted], transactions: list[Call]) -> Filled:
    """A run from 0 to 100 s."""
    return Filled(
        batch_tokens=BATCH_TOKENS,
        cost=Cost(),
        articles=10,
        entities=400,
        began_s=0.0,
        ended_s=100.0,
        turns=turns,
        submitted=submitted,
        tokenizations=[Call(1, 1.0, 4.0, 2.0)],
        transactions=transactions,
        loop_cpu_s=1.0,
        process_cpu_s=2.0,
        broker_cores=0.1,
        others_cores=0.0,
    )


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


def test_every_second_without_a_batch_has_one_cause() -> None:
    """The second batch: windows until 22, a transaction until 24, the loop until 27, the threads until 28."""
    turns = [Turn(BATCH_TOKENS, 10.0, 20.0), Turn(BATCH_TOKENS, 28.0, 60.0), Turn(100, 60.0, 90.0)]
    submitted = [
        Submitted(9.0, {8.0: BATCH_TOKENS}),
        Submitted(27.0, {8.5: 8_000, 22.0: 192}),
        Submitted(40.0, {22.0: 100}),
    ]
    run = filled(turns, submitted, [Call(1, 15.0, 24.0, 0.1)])
    idle = run.idle()
    assert (10.0, 2.0, 2.0, 3.0, 1.0, 10.0) == (
        idle.first,
        idle.windows,
        idle.transaction,
        idle.loop,
        idle.handover,
        idle.last,
    )
    assert run.seconds == pytest.approx(sum(astuple(idle)) + run.busy * run.seconds)


def test_the_rate_under_backlog_ends_with_the_last_full_batch() -> None:
    """A device that is busy without a gap has its bare rate then; later batches and the ends count in the other ratio."""
    batch_s = Cost().seconds(BATCH_TOKENS)
    turns = [Turn(BATCH_TOKENS, place * batch_s, (place + 1) * batch_s) for place in range(3)]
    turns.append(Turn(100, 50.0, 51.0))
    run = filled(turns, [], [])
    assert run.under_backlog == pytest.approx(1.0)
    assert run.overall == pytest.approx((3 + 100 / BATCH_TOKENS) * batch_s / 100)


@pytest.mark.broker
def test_a_tiny_run_through_kafka_is_measured_and_drawn(broker: Cluster, tmp_path: Path) -> None:
    """The dry run: every article is published, with entities, and the picture is written."""
    bench = Bench(1, quick=True, say=lambda _: None)
    vars(bench)["cluster"] = broker
    found = measure(bench, count=12, batch_tokens=2048, cost=Cost(slower=0.1), entities=40)
    assert found.articles == 12
    assert 20 < found.entities / 12 < 60
    assert 0 < found.overall < 1
    assert len(found.turns) == len(found.submitted)
    assert found.seconds == pytest.approx(sum(astuple(found.idle())) + found.busy * found.seconds)
    assert len(outcome(found).tables) == 2
    from tools.bench.drawing import save_timeline  # noqa: PLC0415  half a second that only this test needs

    save_timeline(found, tmp_path / "fill.png")
    assert (tmp_path / "fill.png").stat().st_size > 10_000
