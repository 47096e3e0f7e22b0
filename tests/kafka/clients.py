"""A source and a sink on the real broker, without a worker around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from kafka.harness import Sent
from support.closing import CLOSING, leave_group
from support.patience import PATIENCE_S, wait_until
from support.records import encoder_of, plain_record
from support.topics import Topics

from enricher.worker.articles import Encoder
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.sink import TransactionalSink
from enricher.worker.kafka.source import KafkaSource
from enricher.worker.records import (
    Article,
    Coverage,
    DeadLetter,
    Partition,
    RawRecord,
    Release,
    Ticket,
)
from enricher.worker.rules.dead_letter_limits import DeadLetterLimits, Limits
from enricher.worker.stats import Counters


def unguarded(_what: str, _limit_s: float) -> AbstractContextManager[None]:
    """A guard without a time limit."""
    return nullcontext()


def config_for(topics: Topics, **changes: object) -> KafkaConfig:
    """A configuration for a test's topics. A test in which something must expire asks for short timeouts itself."""
    config = KafkaConfig(
        bootstrap_servers=topics.bootstrap_servers,
        group_id=topics.group,
        instance="worker-0",
        input_topic=topics.input,
        output_topic=topics.output,
        dead_letter_topic=topics.dead_letters,
        session_timeout_s=30,
        max_poll_interval_s=120,
        transaction_timeout_s=20,
        request_timeout_s=30,
        max_record_bytes=1_000_000,
        max_message_bytes=17_000_000,
    )
    return replace(config, **changes)  # type: ignore[arg-type]  # the names are checked at run time


@dataclass(slots=True)
class Diary:
    """A listener that records its calls."""

    owned: set[Partition] = field(default_factory=set)
    events: list[tuple[str, tuple[Partition, ...]]] = field(default_factory=list)
    on_revoked: Callable[[Sequence[Partition]], None] = lambda _partitions: None

    def assigned(self, partitions: Sequence[Partition]) -> None:
        """Note new partitions."""
        self.owned |= set(partitions)
        self.events.append(("assigned", tuple(partitions)))

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """Note revoked partitions."""
        self.owned -= set(partitions)
        self.events.append(("revoked", tuple(partitions)))
        self.on_revoked(partitions)

    def lost(self, partitions: Sequence[Partition]) -> None:
        """Note lost partitions."""
        self.owned -= set(partitions)
        self.events.append(("lost", tuple(partitions)))


def joined(config: KafkaConfig, *, until_caught_up: bool = False) -> tuple[KafkaSource, Diary]:
    """A source that joins its group when it is polled. Closed with the test."""
    source, diary = KafkaSource(config, until_caught_up=until_caught_up), Diary()
    CLOSING.callback(leave_group, source)
    source.open(diary)
    return source, diary


def opened(config: KafkaConfig, *, until_caught_up: bool = False) -> tuple[KafkaSource, Diary]:
    """A source that has joined its group and knows where each of its partitions begins. Closed with the test."""
    source, diary = joined(config, until_caught_up=until_caught_up)
    begin(source, diary, config)
    return source, diary


def begin(source: KafkaSource, diary: Diary, config: KafkaConfig, partitions: int = 1) -> None:
    """Poll until at least this many partitions are owned, and all have begun; commits their starts, as the loop does."""
    source.pause()  # else records may come with the assignment, and nobody here would take them

    def all_begun() -> bool:
        waiting = [place for place in diary.owned if source.start_of(place) is None]
        if starts := source.positions(waiting):
            commit_starts(source, config, starts)
        return len(diary.owned) >= partitions and not waiting

    poll_until(source, all_begun)
    source.resume()


def commit_starts(source: KafkaSource, config: KafkaConfig, starts: Mapping[Partition, int]) -> None:
    """Commit these offsets with a producer of its own, so that no other one is fenced."""
    sink, _ = sink_for(source, replace(config, instance=f"{config.instance}-starts"))
    sink.publish(Release((), starts))
    sink.close()


def client_of(source: KafkaSource) -> Consumer:
    """The client that the source reads with, for what it may do by itself: no other part of a test needs it."""
    return source._consumer


def poll_until(source: KafkaSource, done: Callable[[], bool], timeout_s: float = PATIENCE_S) -> list[RawRecord]:
    """Poll until `done`; returns the records that came meanwhile."""
    records: list[RawRecord] = []

    def is_done() -> bool:
        if done():
            return True
        records.extend(source.poll(1_000, 0.05))
        return False

    wait_until(is_done, timeout_s, "what was polled for", 0.0)
    return records


def records_of(source: KafkaSource, count: int, timeout_s: float = PATIENCE_S) -> list[RawRecord]:
    """The next `count` records."""
    records: list[RawRecord] = []

    def all_came() -> bool:
        records.extend(source.poll(count - len(records), 0.05))
        return len(records) == count

    wait_until(all_came, timeout_s, f"{count} records", 0.0)
    return records


def sink_for(
    source: KafkaSource,
    config: KafkaConfig,
    *,
    encoder: Encoder | None = None,
    producer_class: type[Producer] = Producer,
) -> tuple[TransactionalSink, Counters]:
    """An open sink that commits for `source`. Closed with the test."""
    counters = Counters()
    sink = TransactionalSink(
        config,
        encoder or encoder_of(max_dead_letter_bytes=16_000_000),
        source=source,
        guard=unguarded,
        counters=counters,
        dead_letters=DeadLetterLimits(Limits()),
        producer_class=producer_class,
    )
    sink.open()
    CLOSING.callback(sink.close)
    return sink, counters


def ends_for(config: KafkaConfig) -> tuple[KafkaSource, TransactionalSink]:
    """A source that has joined its group, and its sink."""
    source, sink, _ = begun(config)
    return source, sink


def begun(config: KafkaConfig) -> tuple[KafkaSource, TransactionalSink, Diary]:
    """The same with the source's listener."""
    source, diary = opened(config)
    sink, _ = sink_for(source, config)
    return source, sink, diary


def finished(raw: RawRecord) -> Ticket:
    """A ticket whose article was enriched, without entities."""
    ticket = Ticket(raw, arrived_s=0.0)
    ticket.finish(plain_record(Article("a", "", "b"), (), Coverage(1, 1, truncated=False)))
    return ticket


def dead(raw: RawRecord) -> Ticket:
    """A ticket that ends as a dead letter."""
    ticket = Ticket(raw, arrived_s=0.0)
    ticket.finish(DeadLetter("decode", "InvalidArticle", "not JSON"))
    return ticket


def release_of(records: Sequence[RawRecord], ticket: Callable[[RawRecord], Ticket] = finished) -> Release:
    """A release of these records, in their order."""
    committable = {record.partition: record.offset + 1 for record in records}
    return Release([ticket(record) for record in records], committable)


def inputs(count: int) -> list[Sent]:
    """Small inputs, with keys that spread over the partitions."""
    return [Sent(f"k{number}".encode(), b"v%d" % number) for number in range(count)]


def grow(topics: Topics, partitions: int, *names: str) -> None:
    """Add partitions to these topics. What the broker has answered is not yet what its metadata says."""
    admin = AdminClient({"bootstrap.servers": topics.bootstrap_servers})
    for name in names:
        admin.create_partitions([NewPartitions(name, partitions)])[name].result(timeout=PATIENCE_S)
        while len(admin.list_topics(name, timeout=PATIENCE_S).topics[name].partitions) < partitions:
            admin.poll(0.05)
