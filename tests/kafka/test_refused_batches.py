"""A batch that is too large for its topic says nothing about its records: only one that was sent alone is to blame."""

from __future__ import annotations

import random
from collections.abc import Sequence
from logging import Logger
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka.clients import config_for, opened, records_of, release_of, sink_for
from kafka.harness import Sent, as_sent, assert_exactly_once, headers_of, publish
from kafka.test_bad_input import run_worker
from support.operating import alter
from support.plain_records import plain_record
from support.reading import read_all
from support.topics import Topics

from enricher.errors import RefusedBatch, RefusedOutput
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.kafka.writing.limits import TopicLimits
from enricher.worker.kafka.writing.sink import TransactionalSink
from enricher.worker.records import Article, Coverage, RawRecord, Ticket
from enricher.worker.stats.counters import Counters
from tools.chaos.stub import StubEngine, stub_model

pytestmark = pytest.mark.broker

LIMIT_BYTES = 6_000
_MOST_REFUSALS, _STEPS = 5, 4
"""From the largest batches to one record each, and back."""


def incompressible(count: int, *, seed: int = 1) -> list[Sent]:
    """Articles whose outputs take about 700 bytes, which lz4 does not make smaller."""
    chosen = random.Random(seed)
    return [as_sent({"id": chosen.randbytes(150).hex(), "title": "Ada", "body": f"in {n}"}) for n in range(count)]


def dead_letters_of(topics: Topics, inputs: Sequence[Sent], monkeypatch: pytest.MonkeyPatch) -> dict[bytes, bytes]:
    """Run a worker over the inputs; returns the error type of each dead letter by its key. Nothing is lost or doubled."""
    places = publish(topics.bootstrap_servers, topics.input, inputs)
    run_worker(topics, monkeypatch, stub_model(StubEngine()))
    dead = read_all(topics.bootstrap_servers, topics.dead_letters)
    assert_exactly_once([*read_all(topics.bootstrap_servers, topics.output), *dead], places)
    return {message.key() or b"": headers_of(message)["enricher.dlq.error.type"] or b"" for message in dead}


def test_good_articles_are_no_dead_letters_because_they_were_sent_together(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker may not read the limit of the output topic, which is above each output and below a batch."""
    alter(topics.bootstrap_servers, topics.output, {"max.message.bytes": str(LIMIT_BYTES)})
    monkeypatch.setattr(TopicLimits, "read", lambda _self: {})
    assert {} == dead_letters_of(topics, incompressible(620), monkeypatch)


def test_among_many_only_those_that_are_too_large_alone_become_dead_letters(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the same conditions; each of these is larger than the limit by itself."""
    alter(topics.bootstrap_servers, topics.output, {"max.message.bytes": "2000"})
    monkeypatch.setattr(TopicLimits, "read", lambda _self: {})
    large = [Sent(random.Random(n).randbytes(1_500), sent.value) for n, sent in enumerate(incompressible(3, seed=2))]
    inputs = [*large, *incompressible(120)]
    random.Random(3).shuffle(inputs)
    assert dict.fromkeys((sent.key for sent in large), b"RefusedOutput") == dead_letters_of(topics, inputs, monkeypatch)


def opened_with(topics: Topics, inputs: Sequence[Sent]) -> tuple[TransactionalSink, Counters, list[RawRecord]]:
    """A sink that thinks the output topic takes large batches, and the records of these inputs."""
    config = config_for(topics, properties={"producer.compression.type": "none"})
    publish(topics.bootstrap_servers, topics.input, inputs)
    source, _ = opened(config)
    sink, counters = sink_for(source, config)
    return sink, counters, records_of(source, len(inputs))


def test_when_the_limit_is_lowered_a_refused_batch_blames_nobody(topics: Topics) -> None:
    """The worker may read the limit: the next producer keeps to the new one at once, and everything is written."""
    sink, counters, records = opened_with(topics, [Sent(b"same", b"%d" % n) for n in range(60)])
    alter(topics.bootstrap_servers, topics.output, {"max.message.bytes": str(LIMIT_BYTES)})
    with pytest.raises(RefusedBatch):
        sink.publish(release_of(records))
    sink.recover()
    assert {} == sink.publish(release_of(records))
    assert 60 == len(read_all(topics.bootstrap_servers, topics.output))
    assert 0 == counters.producers_resized


def test_a_limit_that_is_raised_again_refuses_nothing_any_more(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for again before a transaction; the next producer's batches are as large as before."""
    monkeypatch.setattr("enricher.worker.kafka.writing.limits._ASK_AGAIN_S", 0.0)
    alter(topics.bootstrap_servers, topics.output, {"max.message.bytes": str(LIMIT_BYTES)})
    sink, counters, records = opened_with(topics, [Sent(b"x" * LIMIT_BYTES, b"%d" % n) for n in range(3)])
    assert {"OutputTooLarge"} == {letter.error_type for letter in sink.publish(release_of(records[:1])).values()}
    alter(topics.bootstrap_servers, topics.output, {"max.message.bytes": "1000000"})
    assert {} == sink.publish(release_of(records[1:2]))
    assert 1 == counters.producers_resized
    assert {} == sink.publish(release_of(records[2:]))
    assert 1 == counters.producers_resized


def test_batches_shrink_to_one_record_and_grow_again(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """One too large among small ones of its partition: named only once it was alone, then normal batches again."""
    monkeypatch.setattr(TopicLimits, "read", lambda _self: {})
    monkeypatch.setattr("enricher.worker.kafka.writing.batch_size._FIRST_PAUSE_S", 0.0)
    alter(topics.bootstrap_servers, topics.output, {"max.message.bytes": "2000"})
    inputs = [Sent(b"same", b"%d" % number) for number in range(20)]
    sink, counters, records = opened_with(topics, inputs)
    large = records[7]

    def enriched(raw: RawRecord) -> Ticket:
        ticket = Ticket(raw, arrived_s=0.0)
        article = Article("x" * 3_000 if raw is large else "a", "", "b")
        ticket.finish(plain_record(article, (), Coverage(1, 1, truncated=False)))
        return ticket

    for _ in range(_MOST_REFUSALS):
        try:
            sink.publish(release_of(records, enriched))
        except RefusedBatch:
            sink.recover()
        except RefusedOutput as refusal:
            refused = refusal
            break
    assert [large.offset] == [ticket.raw.offset for ticket in refused.outcomes]
    sink.recover()
    others = [record for record in records if record is not large]
    while counters.producers_resized < _STEPS:
        sink.publish(release_of(others[:1], enriched))
        others = others[1:]
    alter(topics.bootstrap_servers, topics.output, {"max.message.bytes": "1000000"})
    sink.publish(release_of(others, enriched))
    assert 19 == len(read_all(topics.bootstrap_servers, topics.output))


def test_batches_grow_again_where_every_transaction_is_slow(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small batches make transactions slow; the new producer that follows each of those may send larger ones."""
    sizes_bytes: list[int] = []

    class Noting(Producer):
        """A producer that notes how large its batches may be."""

        def __init__(self, properties: dict[str, Any], *, logger: Logger) -> None:
            sizes_bytes.append(properties["batch.size"])
            super().__init__(properties, logger=logger)

    monkeypatch.setattr(TopicLimits, "read", lambda _self: {})
    monkeypatch.setattr("enricher.worker.kafka.writing.batch_size._FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(KafkaConfig, "retry_pause_s", 0.0)
    alter(topics.bootstrap_servers, topics.output, {"max.message.bytes": str(LIMIT_BYTES)})
    config = config_for(topics, properties={"producer.compression.type": "none"})
    publish(topics.bootstrap_servers, topics.input, [Sent(b"same", b"%d" % n) for n in range(60)])
    source, _ = opened(config)
    sink, _ = sink_for(source, config, producer_class=Noting)
    records = records_of(source, 60)
    with pytest.raises(RefusedBatch):
        sink.publish(release_of(records))
    sink.recover()
    assert sizes_bytes[-1] < sizes_bytes[0]
    for record in records[:_STEPS]:
        sink.publish(release_of([record]))
    assert sizes_bytes[-1] == sizes_bytes[0]
