"""A batch that is too large for its topic says nothing about its records: only one that was sent alone is to blame."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from kafka.clients import config_for, ends_for, opened, records_of, release_of, sink_for
from kafka.harness import Sent, as_sent, assert_exactly_once, headers_of, publish, source_of
from kafka.test_bad_input import run_worker
from support.operating import alter
from support.plain_records import plain_record
from support.reading import read_all
from support.topics import Topics

from enricher.errors import BrokerError, RefusedBatch, RefusedOutput
from enricher.worker.kafka.sink import TransactionalSink
from enricher.worker.records import Article, Coverage, RawRecord, Release, Ticket
from tools.chaos.stub import StubEngine, stub_model

pytestmark = pytest.mark.broker

LIMIT_BYTES = 6_000
UNTOLD = "enricher.worker.kafka.sink.message_limits"
"""What asks for the limits of the topics."""


def incompressible(count: int, *, seed: int = 1) -> list[Sent]:
    """Articles whose outputs take about 700 bytes, which lz4 does not make smaller."""
    chosen = random.Random(seed)
    return [as_sent({"id": chosen.randbytes(150).hex(), "title": "Ada", "body": f"in {n}"}) for n in range(count)]


def test_a_refused_batch_ends_the_worker_and_lower_settings_let_it_go_on(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may not read the limit, which a batch exceeds. Only what is too large alone becomes a dead letter."""
    alter(topics.bootstrap_servers, topics.output, {"max.message.bytes": str(LIMIT_BYTES)})
    monkeypatch.setattr(UNTOLD, lambda *_: {})
    large = [
        Sent(random.Random(n).randbytes(LIMIT_BYTES), sent.value) for n, sent in enumerate(incompressible(3, seed=2))
    ]
    inputs = [*large, *incompressible(620)]
    random.Random(3).shuffle(inputs)
    places = publish(topics.bootstrap_servers, topics.input, inputs)
    few = {"ENRICHER_WORKER__MAX_IN_FLIGHT_ARTICLES": "200"}
    with pytest.raises(
        BrokerError, match=r"articles\.max_record_bytes and articles\.max_dead_letter_bytes.*kafka-configs"
    ):
        run_worker(topics, monkeypatch, stub_model(StubEngine()), **few)
    assert read_all(topics.bootstrap_servers, topics.output), "each record was tried alone, and most were accepted"
    lower = {"ENRICHER_ARTICLES__MAX_RECORD_BYTES": str(LIMIT_BYTES)}
    assert run_worker(topics, monkeypatch, stub_model(StubEngine()), **few, **lower).recoveries == 0
    dead = read_all(topics.bootstrap_servers, topics.dead_letters)
    assert_exactly_once([*read_all(topics.bootstrap_servers, topics.output), *dead], places)
    assert {sent.key for sent in large} == {message.key() for message in dead}
    assert {headers_of(message)["enricher.dlq.error.type"] for message in dead} <= {b"RefusedOutput", b"OutputTooLarge"}


def opened_with(topics: Topics, inputs: Sequence[Sent]) -> tuple[TransactionalSink, list[RawRecord]]:
    """A sink that thinks the output topic takes large batches, and the records of these inputs."""
    config = config_for(topics, properties={"producer.compression.type": "none"})
    publish(topics.bootstrap_servers, topics.input, inputs)
    source, _ = opened(config)
    sink, _ = sink_for(source, config)
    return sink, records_of(source, len(inputs))


def test_when_the_limit_is_lowered_a_restart_keeps_to_it(topics: Topics) -> None:
    """A refused batch blames nobody: each record is written alone. The worker may read the limit when it starts."""
    sink, records = opened_with(topics, [Sent(b"same", b"%d" % n) for n in range(60)])
    alter(topics.bootstrap_servers, topics.output, {"max.message.bytes": str(LIMIT_BYTES)})
    with pytest.raises(RefusedBatch):
        sink.publish(release_of(records[:40]))
    sink.recover()
    assert {} == sink.publish(release_of(records[:40]))
    with pytest.raises(BrokerError, match="a restart is enough"):
        sink.publish(release_of(records[40:]))
    sink.recover()
    assert {} == sink.publish(Release((), {records[0].partition: 40})), "attempts can still be taken back"
    sink.close()
    source, restarted = ends_for(config_for(topics, properties={"producer.compression.type": "none"}))
    assert {} == restarted.publish(release_of(records_of(source, 20)))
    offsets = [source_of(message)[1] for message in read_all(topics.bootstrap_servers, topics.output)]
    assert list(range(60)) == offsets


def test_after_a_refused_batch_each_record_is_tried_alone_once(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """One too large among small ones of its partition: named once it was alone; the others are written."""
    monkeypatch.setattr(UNTOLD, lambda *_: {})
    alter(topics.bootstrap_servers, topics.output, {"max.message.bytes": "2000"})
    sink, records = opened_with(topics, [Sent(b"same", b"%d" % number) for number in range(20)])
    large = records[7]

    def enriched(raw: RawRecord) -> Ticket:
        ticket = Ticket(raw, arrived_s=0.0)
        article = Article("x" * 3_000 if raw is large else "a", "", "b")
        ticket.finish(plain_record(article, (), Coverage(1, 1, truncated=False)))
        return ticket

    with pytest.raises(RefusedBatch):
        sink.publish(release_of(records, enriched))
    sink.recover()
    with pytest.raises(RefusedOutput) as refusal:
        sink.publish(release_of(records, enriched))
    assert [large.offset] == [ticket.raw.offset for ticket in refusal.value.outcomes]
    sink.recover()
    others = [record for record in records if record is not large]
    sink.publish(release_of(others[:10], enriched))
    with pytest.raises(BrokerError):
        sink.publish(release_of(others[10:], enriched))
    assert 10 == len(read_all(topics.bootstrap_servers, topics.output))
