"""Where a source and a sink work without a worker: the fake log, and a real broker; and a member of their group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Protocol

from confluent_kafka import Producer
from kafka.clients import Diary, client_of, config_for, finished, release_of, sink_for
from kafka.harness import headers_of, source_of, transaction
from loop.fake_sink import DEAD_LETTERS, OUTPUT, FakeSink, Output
from loop.fake_source import FakeSource
from loop.world import INPUT, World
from support.closing import CLOSING
from support.operating import commit, producer_of
from support.patience import PATIENCE_S, wait_until
from support.reading import committed_and_ends, read_all
from support.records import encoder_of, plain_record
from support.topics import make_topics

from enricher.worker.kafka.source import KafkaSource
from enricher.worker.loop.ports import Sink, Source
from enricher.worker.records import Article, Coverage, EnrichedRecord, Outcome, Partition, RawRecord, Release, Ticket

PARTITIONS = 2
POLL_S, POLLS = 0.05, 2_400
SOON_S = 6
"""Brokers allow no shorter session, and clients no shorter time between two polls than that."""
LARGE_CHARS, LIMIT_BYTES = 5_000, 4_096


class Ends(Protocol):
    """An input topic of two partitions, the output topics, and the means to read and write them without a worker."""

    def partition(self, number: int) -> Partition:
        """An input partition."""

    def put(self, count: int, partition: int = 0) -> None:
        """Append records."""

    def put_transaction(self, count: int, *, commit: bool) -> None:
        """Append records in a transaction, whose marker takes an offset, to partition 0."""

    def source(self, *, expires_soon: bool = False) -> Source:
        """A source that has not been opened; with `expires_soon` the group expels it soon once nobody polls it."""

    def sink(self, source: Source) -> Sink:
        """A sink that commits for `source`, opened. All have one transactional id."""

    def expel(self, source: Source) -> None:
        """Have the group expel its only member, which expires soon."""

    def outputs(self, *, dead: bool = False) -> Mapping[int, list[int]]:
        """By partition, the input offsets of the outputs that readers of committed records see, in their order."""

    def committed(self) -> Mapping[int, int]:
        """The offsets that the group has committed."""


class FakeEnds:
    """On the fake log."""

    def __init__(self) -> None:
        self.world = World(partitions=PARTITIONS)

    def partition(self, number: int) -> Partition:
        """An input partition."""
        return Partition(INPUT, number)

    def put(self, count: int, partition: int = 0) -> None:
        """Append records."""
        self.world.put(*[b"v"] * count, partition=partition)

    def put_transaction(self, count: int, *, commit: bool) -> None:
        """Append records, and a marker."""
        self.world.put_transaction(*[b"v"] * count, commit=commit)

    def source(self, *, expires_soon: bool = False) -> FakeSource:  # noqa: ARG002  it is expelled at once
        """Not open yet."""
        return FakeSource(self.world.log, self.world.clock, "worker-0", random=Random(1))

    def sink(self, source: Source) -> FakeSink:
        """Open."""
        assert isinstance(source, FakeSource)
        sink = FakeSink(
            self.world.log,
            self.world.clock,
            "worker-0",
            membership=lambda: source.membership(),  # noqa: PLW0108  a test may replace it
            too_large=is_large,
        )
        sink.open()
        return sink

    def expel(self, source: Source) -> None:
        """At once."""
        assert isinstance(source, FakeSource)
        source.expel()

    def outputs(self, *, dead: bool = False) -> Mapping[int, list[int]]:
        """What readers of committed records see."""
        topic = DEAD_LETTERS if dead else OUTPUT
        found = {number: self.world.outputs(topic, number) for number in range(PARTITIONS)}
        return {
            number: [output.offset for output in outputs if isinstance(output, Output)]
            for number, outputs in found.items()
            if outputs
        }

    def committed(self) -> Mapping[int, int]:
        """Committed offsets."""
        return {partition.number: offset for partition, offset in self.world.log.committed.items()}


class RealEnds:
    """On a real broker."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.topics = make_topics(bootstrap_servers, PARTITIONS)
        self.config = config_for(self.topics)
        # The group has begun: the first start of a partition is `tests/kafka/test_start.py`'s matter.
        commit(bootstrap_servers, self.topics.group, self.topics.input, dict.fromkeys(range(PARTITIONS), 0))

    def partition(self, number: int) -> Partition:
        """An input partition."""
        return Partition(self.topics.input, number)

    def put(self, count: int, partition: int = 0) -> None:
        """Append records."""
        producer = producer_of(self.topics.bootstrap_servers)
        self._write(producer, count, partition)

    def put_transaction(self, count: int, *, commit: bool) -> None:
        """Append records, and a marker."""
        with transaction(self.topics.bootstrap_servers, self.topics.input, commit=commit) as producer:
            self._write(producer, count, 0)

    def source(self, *, expires_soon: bool = False) -> KafkaSource:
        """Not open yet; closed with the test."""
        soon = replace(self.config, session_timeout_s=SOON_S, max_poll_interval_s=SOON_S)
        source = KafkaSource(soon if expires_soon else self.config)
        CLOSING.callback(source.close)
        return source

    def sink(self, source: Source) -> Sink:
        """Open; closed with the test."""
        assert isinstance(source, KafkaSource)
        sink, _ = sink_for(source, self.config, encoder=encoder_of(max_record_bytes=LIMIT_BYTES))
        return sink

    def expel(self, source: Source) -> None:
        """Wait until it notices that nobody has polled it for long enough."""
        assert isinstance(source, KafkaSource)
        wait_until(lambda: not client_of(source).memberid(), PATIENCE_S, "it is expelled")

    def outputs(self, *, dead: bool = False) -> Mapping[int, list[int]]:
        """What readers of committed records see."""
        found: dict[int, list[int]] = {}
        topic = self.topics.dead_letters if dead else self.topics.output
        for message in read_all(self.topics.bootstrap_servers, topic):
            number, offset = source_of(message)
            assert message.partition() == number, headers_of(message)
            found.setdefault(number, []).append(offset)
        return found

    def committed(self) -> Mapping[int, int]:
        """Committed offsets behind a record."""
        found = committed_and_ends(self.topics.bootstrap_servers, self.topics.group, self.topics.input)
        return {number: offset for number, (offset, _end) in found.items() if offset > 0}

    def _write(self, producer: Producer, count: int, partition: int) -> None:
        for _ in range(count):
            producer.produce(self.topics.input, b"v", b"k", partition=partition)
        assert producer.flush(PATIENCE_S) == 0


class Member:
    """A source that has joined the group, its sink, and the records that came and are not published."""

    def __init__(self, ends: Ends, *, partitions: int = PARTITIONS, expires_soon: bool = False) -> None:
        self.source = ends.source(expires_soon=expires_soon)
        self.sink = ends.sink(self.source)
        self.diary = Diary()
        self.records: list[RawRecord] = []
        self.source.open(self.diary)
        if partitions:
            self.until(lambda: len(self.diary.owned) == partitions)

    def poll(self, limit: int = 100) -> None:
        """Take in what there is."""
        self.records += self.source.poll(limit, POLL_S)

    def until(self, done: Callable[[], bool], *others: Member) -> None:
        """Poll this member and others until something holds."""
        for _ in range(POLLS):
            if done():
                return
            for member in (self, *others):
                member.poll()
        raise AssertionError("it did not happen in time")

    def read(self, count: int) -> list[RawRecord]:
        """Poll until so many records are not published."""
        self.until(lambda: len(self.records) >= count)
        return self.records

    def publish(self, ticket: Callable[[RawRecord], Ticket] = finished) -> Release:
        """All records that came, in one transaction."""
        release = release_of(self.records, ticket)
        self.sink.publish(release)
        self.records = []
        return release

    def offsets(self) -> list[int]:
        """Of the records that came."""
        return [record.offset for record in self.records]


def large(raw: RawRecord) -> Ticket:
    """A ticket whose output is too large for its topic."""
    ticket = Ticket(raw, arrived_s=0.0)
    ticket.finish(plain_record(Article("x" * LARGE_CHARS, "", "b"), (), Coverage(1, 1, truncated=False)))
    return ticket


def is_large(outcome: Outcome) -> bool:
    """What the encoder finds out by encoding."""
    return isinstance(outcome, EnrichedRecord) and len(outcome.article.id) >= LARGE_CHARS
