"""Hostile records through a real broker and a real worker: each is enriched, passed through or dead-lettered, once.

The full form, with its figures, takes an hour or two, more than a test may:
`scripts/test tests/fuzz/test_fuzz_broker.py --fuzz-records 100000 -s --timeout 0 -o faulthandler_timeout=0`.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Message
from fuzz.hostile import Hostile, publish
from kafka.harness import headers_of, source_of, worker
from kafka.test_hostile_sizes import peak_mb_of
from support.reading import read_all
from support.topics import Topics

pytestmark = pytest.mark.broker

PEAK_MB = 1_500
"""Of the worker's resident memory, with the settings' defaults."""
PER_RECORD_S = 0.2
"""Against hanging; not a claim about speed."""


@pytest.mark.parametrize("seed", [845, pytest.param(24, marks=pytest.mark.long)])
def test_every_hostile_record_is_dealt_with_once(
    topics: Topics, tmp_path: Path, pytestconfig: pytest.Config, seed: int
) -> None:
    """The worker exits with 0, stays alive and within its memory, and nothing is lost, doubled or out of order.

    Among the first 200 of the first seed are a value of 5 MB, one that is nested too deep, and 100,000 headers and one more.
    """
    log, count = tmp_path / "worker.log", int(pytestconfig.getoption("fuzz_records"))
    places = publish(topics.bootstrap_servers, topics.input, count, seed=seed)
    assert count == len(places)
    began_s = time.monotonic()
    peak_mb = caught_up(topics, log, limit_s=120 + PER_RECORD_S * count)
    spent_s = time.monotonic() - began_s
    assert "Traceback" not in log.read_text("utf-8")
    seen = [outcome_of(message, places) for message in read(topics)]
    counts = Counter(outcome for _, outcome in seen)
    assert sorted(place for place, _ in seen) == sorted(places), "each place once"
    assert counts.total() == count
    wrong = [(places[place], outcome) for place, outcome in seen if places[place].expected not in {outcome, "any"}]
    assert wrong == []
    print(f"\n{count} hostile records in {spent_s:.0f} s: {dict(counts)}, peak {peak_mb:.0f} MB")
    assert peak_mb < PEAK_MB


def caught_up(topics: Topics, log: Path, limit_s: float) -> float:
    """Run a worker to the end of the topic; returns its peak resident memory in megabytes."""
    peak_mb, give_up_s = 0.0, time.monotonic() + limit_s
    unlimited = {"ENRICHER_DEAD_LETTERS__MAX_IN_A_ROW": "0", "ENRICHER_DEAD_LETTERS__MAX_RATIO": "0"}
    with worker(topics.environment | unlimited, "--until-caught-up", log=log) as process:
        while process.poll() is None:
            assert time.monotonic() < give_up_s, f"not done within {limit_s:.0f} s"
            peak_mb = max(peak_mb, peak_mb_of(process.pid))
            time.sleep(0.05)
        assert process.returncode == 0, log.read_text("utf-8")[-3_000:]
    return peak_mb


def read(topics: Topics) -> list[Message]:
    """All outputs; within a partition they have the input's order."""
    both = [read_all(topics.bootstrap_servers, topic) for topic in (topics.output, topics.dead_letters)]
    for messages in both:
        for number in {message.partition() for message in messages}:
            offsets = [source_of(message)[1] for message in messages if message.partition() == number]
            assert offsets == sorted(offsets)
    return [message for messages in both for message in messages]


def outcome_of(message: Message, places: dict[tuple[int, int], Hostile]) -> tuple[tuple[int, int], str]:
    """The place of its input, and the outcome."""
    place = source_of(message)
    assert message.key() == places[place].key
    if "enricher.dlq.stage" in headers_of(message):
        return place, "dead letter"
    return place, "tombstone" if message.value() is None else "record"
