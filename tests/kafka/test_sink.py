"""The producer on a real broker: which record or batch was refused, fencing, new producers."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import cast

import pytest
from confluent_kafka import KafkaError, Message, Producer
from kafka.clients import (
    config_for,
    dead,
    ends_for,
    finished,
    inputs,
    opened,
    records_of,
    release_of,
    sink_for,
)
from kafka.harness import Sent, as_sent, assert_exactly_once, headers_of, publish, source_of
from kafka.test_bad_input import run_worker
from support.operating import alter
from support.patience import PATIENCE_S
from support.reading import read_all
from support.topics import Topics

from enricher.errors import (
    BrokerError,
    EnricherError,
    Fenced,
    RefusedBatch,
    RefusedOutput,
    TransactionTrouble,
)
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.transaction import DeliveryReports, Failure
from enricher.worker.records import Partition, RawRecord, Release, Ticket
from tools.chaos.stub import StubEngine, stub_model

pytestmark = pytest.mark.broker


class _LosesItsReason(Producer):
    """As the client was seen to behave when it was fenced during a flush."""

    def flush(self, *arguments: float) -> int:
        """Flushes, and fails without a reason."""
        super().flush(*arguments)
        raise SystemError("<method 'flush' of 'cimpl.Producer' objects> returned NULL without setting an exception")


@pytest.mark.parametrize(("fenced", "error"), [(True, Fenced), (False, TransactionTrouble)])
def test_a_flush_that_loses_its_reason_is_asked_for_it(
    topics: Topics,
    fenced: bool,  # noqa: FBT001  a parameter of the test
    error: type[EnricherError],
) -> None:
    """Fencing is distinguished from other trouble. Neither is a crash."""
    config = config_for(topics)
    publish(topics.bootstrap_servers, topics.input, inputs(5))
    source, _ = opened(config)
    sink, _ = sink_for(source, config, producer_class=_LosesItsReason)
    release = release_of(records_of(source, 5))
    if fenced:
        sink_for(source, config)
    with pytest.raises(error):
        sink.publish(release)


class _OneByOne(Producer):
    """A client so fast that the broker has answered for a record before the next one is handed over."""

    def produce(self, *arguments: object, **named: object) -> None:
        """Hand one record over and wait for its delivery report."""
        super().produce(*arguments, **named)  # type: ignore[arg-type]  # whatever the sink gave
        self.flush(PATIENCE_S)


def dead_if_bad(raw: RawRecord) -> Ticket:
    """A dead letter for a value `bad`, else an enriched record."""
    return dead(raw) if raw.value == b"bad" else finished(raw)


def test_a_refusal_before_the_last_record_is_produced_names_the_record(topics: Topics) -> None:
    """The client accepts no more records then; the reports name the one that was refused."""
    alter(topics.bootstrap_servers, topics.output, {"cleanup.policy": "compact"})
    config = config_for(topics)
    first, last = Sent(None, b"no key"), Sent(None, b"bad")
    source, _ = opened(config)
    sink, _ = sink_for(source, config, producer_class=_OneByOne)
    records: list[RawRecord] = []
    for sent in (first, *inputs(3), last):
        publish(topics.bootstrap_servers, topics.input, [sent])
        records += records_of(source, 1)
    with pytest.raises(RefusedOutput) as refused:
        sink.publish(release_of(records, dead_if_bad))
    assert [ticket.raw.value for ticket in refused.value.outcomes] == [b"no key"]


def test_a_record_without_key_that_was_not_even_sent_is_not_to_blame() -> None:
    """A failed transaction also drops what is queued behind the refused record, which would have been accepted."""
    reports = DeliveryReports()
    article, bad = (RawRecord(Partition("articles", 0), offset, None, b"bad") for offset in range(2))
    reports.failed = [
        Failure(finished(article), KafkaError(KafkaError.INVALID_RECORD), ("entities", 0)),
        Failure(dead_if_bad(bad), KafkaError(KafkaError._PURGE_QUEUE), ("dead-letters", 0)),
    ]
    assert [article] == [failure.ticket.raw for failure in reports.refused_without_key()]


def reporting_late() -> type[Producer]:
    """Two producers of which the first one, retired and slow to close, reports while the second one flushes."""
    late: list[Callable[[], None]] = []

    class ReportsLate(Producer):
        def produce(self, *arguments: object, **named: object) -> None:
            on_delivery = cast("Callable[[KafkaError, Message], None]", named["on_delivery"])
            late.append(lambda: on_delivery(KafkaError(KafkaError._PURGE_INFLIGHT), Message(topic="entities")))
            super().produce(*arguments, **named)  # type: ignore[arg-type]  # whatever the sink gave

        def flush(self, *arguments: float) -> int:
            if len(late) == 2:
                late[0]()
            return super().flush(*arguments)

    return ReportsLate


def test_a_retired_producers_reports_do_not_touch_the_next_transaction(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread may close it long after a new producer has taken over."""
    config = config_for(topics)
    publish(topics.bootstrap_servers, topics.input, inputs(1))
    source, _ = opened(config)
    sink, _ = sink_for(source, config, producer_class=reporting_late())
    release = release_of(records_of(source, 1))
    with monkeypatch.context() as patched:
        patched.setattr(source, "membership", _no_member)
        with pytest.raises(TransactionTrouble, match="no member"):
            sink.publish(release)
    sink.recover()
    sink.publish(release)
    assert len(read_all(topics.bootstrap_servers, topics.output)) == 1


def _no_member() -> object:
    raise TransactionTrouble("no member")


def test_a_fenced_worker_that_has_much_to_write_does_not_fight(
    topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told that it was fenced while it still hands records over. The client's own line about it is no alarm."""
    caplog.set_level(logging.INFO, logger="librdkafka")
    config = config_for(topics)
    publish(topics.bootstrap_servers, topics.input, inputs(8_000))
    source, _ = opened(config)
    older, _ = sink_for(source, config)
    sink_for(source, config)
    with pytest.raises(Fenced, match=r"'worker-0'.*--describe --members --group"):
        older.publish(release_of(records_of(source, 8_000)))
    assert {"INFO"} == {each.levelname for each in caplog.records if "fenced by a newer instance" in each.getMessage()}


def test_what_was_published_counts_though_no_new_producer_follows(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction was slow and is committed; that the next producer fails is the next transaction's trouble."""
    monkeypatch.setattr(KafkaConfig, "retry_pause_s", 0.0)
    config = config_for(topics)
    publish(topics.bootstrap_servers, topics.input, inputs(2))
    source, _ = opened(config)
    sink, counters = sink_for(source, config)
    first, second = records_of(source, 2)

    def away() -> Producer:
        raise TransactionTrouble("no broker answers")

    with monkeypatch.context() as patched:
        patched.setattr(sink, "_connect", away)
        sink.publish(release_of([first]))
    assert counters.producers_renewed == 1
    assert len(read_all(topics.bootstrap_servers, topics.output)) == 1
    with pytest.raises(TransactionTrouble, match="broken"):
        sink.publish(release_of([second]))
    sink.recover()
    sink.publish(release_of([second]))
    assert counters.producers_renewed == 2
    assert len(read_all(topics.bootstrap_servers, topics.output)) == 2


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


def test_when_the_limit_is_lowered_a_restart_keeps_to_it(topics: Topics) -> None:
    """A refused batch blames nobody: each record is written alone. The worker may read the limit when it starts."""
    config = config_for(topics, properties={"producer.compression.type": "none"})
    publish(topics.bootstrap_servers, topics.input, [Sent(b"same", b"%d" % n) for n in range(60)])
    source, sink = ends_for(config)
    records = records_of(source, 60)
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
    source.close()  # else the group waits for it until its poll interval ends
    source, restarted = ends_for(config)
    assert {} == restarted.publish(release_of(records_of(source, 20)))
    offsets = [source_of(message)[1] for message in read_all(topics.bootstrap_servers, topics.output)]
    assert list(range(60)) == offsets
