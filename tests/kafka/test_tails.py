"""What the ends of the output topics tell about a group whose offsets are gone, and when they cannot tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import ResourceType
from kafka.clients import (
    config_for,
    dead,
    ends_for,
    finished,
    inputs,
    joined,
    opened,
    poll_until,
    records_of,
    release_of,
)
from kafka.harness import Sent, publish, transaction
from kafka.test_start import enrich, publish_to
from support.operating import alter, delete_group
from support.patience import PATIENCE_S, wait_until
from support.reading import read_all
from support.topics import Topics

from enricher.errors import BrokerError, SettingsError
from enricher.worker.kafka.reading import stable_ends, tails
from enricher.worker.kafka.reading.source import KafkaSource
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.records import Partition, RawRecord, Ticket, Tombstone
from tools.kafka import Cluster

pytestmark = pytest.mark.broker

COUNT = 40


@pytest.fixture
def config(topics: Topics) -> KafkaConfig:
    """The worker's configuration, and 40 inputs to enrich."""
    publish(topics.bootstrap_servers, topics.input, inputs(COUNT))
    return config_for(topics)


@contextmanager
def left_open(topics: Topics, topic: str, name: str, partitions: Sequence[int] = range(4)) -> Iterator[Producer]:
    """A record of another producer in each partition, in a transaction that is open; aborted in the end."""
    with transaction(topics.bootstrap_servers, f"{topics.group}.{name}", commit=False) as producer:
        for number in partitions:
            producer.produce(topic, b"another producer's", b"k", partition=number)
        assert producer.flush(PATIENCE_S) == 0
        yield producer


def starts_of(source: KafkaSource, topics: Topics) -> dict[int, int]:
    """Where the partitions began whose start is known."""
    starts = {number: source.start_of(Partition(topics.input, number)) for number in range(4)}
    return {number: start.offset for number, start in starts.items() if start}


def enrich_behind(
    producer_of: AbstractContextManager[Producer], topics: Topics, config: KafkaConfig, opening: ExitStack
) -> list[RawRecord]:
    """Enrich all inputs, after `opening` has begun a transaction of another producer; then the group's offsets are lost."""
    source, sink = ends_for(config)
    records = records_of(source, COUNT)
    opening.enter_context(producer_of)
    sink.publish(release_of(records, lambda raw: dead(raw) if raw.offset % 3 else finished(raw)))
    source.close()
    delete_group(topics.bootstrap_servers, topics.group)
    return records


def ends_of(records: Sequence[RawRecord]) -> dict[int, int]:
    """The offset behind the last record of each partition."""
    return {record.partition.number: record.offset + 1 for record in records}


@pytest.mark.parametrize("role", ["output", "dead_letters"])
def test_outputs_behind_an_open_transaction_are_waited_for(
    topics: Topics, config: KafkaConfig, role: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A reader of committed records cannot see them, so the partitions would begin at their beginning and be doubled."""
    with ExitStack() as opening:
        records = enrich_behind(left_open(topics, getattr(topics, role), "open"), topics, config, opening)
        source, _ = joined(config)
        poll_until(source, lambda: "transaction is open" in caplog.text)
        assert {} == starts_of(source, topics)
        assert source.connection().silent_s > 0, "the age of what waits is seen"
    poll_until(source, lambda: len(starts_of(source, topics)) == 4)
    assert ends_of(records) == starts_of(source, topics)
    assert 0.0 == source.connection().silent_s


def test_partitions_beside_an_open_transaction_go_on(topics: Topics, config: KafkaConfig) -> None:
    """Only the partition that cannot tell yet waits, also through a recovery; then it begins where it should."""
    with ExitStack() as opening:
        records = enrich_behind(left_open(topics, topics.output, "open", [2]), topics, config, opening)
        source, _ = joined(config)
        poll_until(source, lambda: len(starts_of(source, topics)) == 3)
        source.rewind()
        source.pause()
        poll_until(source, lambda: len(starts_of(source, topics)) == 3)
        source.resume()
        assert ends_of(records) | {2: None} == {**starts_of(source, topics), 2: None}
        places = publish(topics.bootstrap_servers, topics.input, inputs(COUNT))
        expected = sorted(place for place in places if place[0] != 2)
        assert expected == sorted((r.partition.number, r.offset) for r in records_of(source, len(expected)))
    assert {2} == {record.partition.number for record in records_of(source, len(places) - len(expected))}
    assert ends_of(records) == starts_of(source, topics)


def test_a_producer_that_always_has_a_transaction_open_holds_up_nothing(
    topics: Topics, config: KafkaConfig, caplog: pytest.LogCaptureFixture
) -> None:
    """Only what was there at the first look counts: the topic may be shared with busy transactional producers."""
    records = enrich(config, COUNT)
    delete_group(topics.bootstrap_servers, topics.group)
    with ExitStack() as first:
        first.enter_context(left_open(topics, topics.dead_letters, "one"))
        source, _ = joined(config)
        poll_until(source, lambda: "transaction is open" in caplog.text)
        with left_open(topics, topics.dead_letters, "two"):
            first.close()
            poll_until(source, lambda: len(starts_of(source, topics)) == 4)
    assert ends_of(records) == starts_of(source, topics)


def test_a_transaction_that_does_not_end_is_refused(
    topics: Topics, config: KafkaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After more than the longest transaction that a broker allows by default, nobody will end it."""
    monkeypatch.setattr(stable_ends, "OPEN_S", 1.0)
    with ExitStack() as opening:
        enrich_behind(left_open(topics, topics.output, "open"), topics, config, opening)
        source, _ = joined(config)
        with pytest.raises(SettingsError, match=r"transaction.*entities.*open for.*--reset-offsets"):
            poll_until(source, lambda: False)


def switch_on(topics: Topics, topic: str, **settings: object) -> None:
    """Change settings of a topic; underscores stand for dots."""
    alter(topics.bootstrap_servers, topic, {name.replace("_", "."): str(value) for name, value in settings.items()})


def deleted(raw: RawRecord) -> Ticket:
    """A ticket of an article, or of its deletion if the record has no value."""
    if raw.value is not None:
        return finished(raw)
    ticket = Ticket(raw, arrived_s=0.0)
    ticket.finish(Tombstone())
    return ticket


@pytest.fixture
def quick_cleaner(broker: Cluster, topics: Topics) -> Iterator[None]:
    """The broker's log cleaner looks for work ten times a second instead of every 15 s."""
    node = str(broker.nodes[0].node_id)
    alter(topics.bootstrap_servers, node, {"log.cleaner.backoff.ms": "100"}, ResourceType.BROKER)
    yield
    alter(topics.bootstrap_servers, node, {"log.cleaner.backoff.ms": None}, ResourceType.BROKER)


@pytest.mark.usefixtures("quick_cleaner")
def test_outputs_that_compaction_removed_are_not_written_again(topics: Topics) -> None:
    """The last outputs were deletions, which the cleaner removes in the end: the newest one left is only a lower bound."""
    switch_on(
        topics, topics.output, cleanup_policy="compact", segment_ms=100, min_cleanable_dirty_ratio=0.0,
        delete_retention_ms=0,
    )  # fmt: skip
    keys = [b"k%d" % number for number in range(20)]
    publish(topics.bootstrap_servers, topics.input, [Sent(key, b"v") for key in keys])
    publish(topics.bootstrap_servers, topics.input, [Sent(key, None) for key in keys[:10]])
    config = config_for(topics)
    source, sink = ends_for(config)
    sink.publish(release_of(records_of(source, 30), deleted))
    source.close()

    def cleaned() -> bool:
        for number in range(4):  # a segment ends with the next record
            publish_to(topics, number, 1, topics.output)
        return not {*keys[:10]}.intersection(
            message.key() for message in read_all(topics.bootstrap_servers, topics.output)
        )

    wait_until(cleaned, PATIENCE_S, "the cleaner has removed the deletions")
    delete_group(topics.bootstrap_servers, topics.group)
    with pytest.raises(SettingsError, match=r"compact.*--reset-offsets.*kafka\.start"):
        opened(config)


def test_a_compacted_topic_shows_where_to_resume_if_no_offset_is_missing_behind_the_newest_output(
    topics: Topics, config: KafkaConfig
) -> None:
    """Each offset there is a record of others or the end of our transaction: nothing of ours can have been removed."""
    switch_on(topics, topics.output, cleanup_policy="compact,delete")
    records = enrich(config, COUNT)
    for number in range(4):
        publish_to(topics, number, 100, topics.output)
    delete_group(topics.bootstrap_servers, topics.group)
    publish(topics.bootstrap_servers, topics.input, inputs(COUNT))
    source, _ = opened(config)
    assert ends_of(records) == starts_of(source, topics)


@pytest.mark.parametrize("role", ["output", "dead_letters"])
def test_offsets_without_a_record_mean_nothing_where_nothing_is_compacted(
    topics: Topics, config: KafkaConfig, role: str
) -> None:
    """There they are the ends of transactions and what was aborted."""
    records = enrich(config, COUNT)
    with left_open(topics, getattr(topics, role), "aborted"):
        pass
    delete_group(topics.bootstrap_servers, topics.group)
    publish(topics.bootstrap_servers, topics.input, inputs(COUNT))
    source, _ = opened(config)
    assert ends_of(records) == starts_of(source, topics)


def test_a_compacted_topic_with_missing_offsets_is_believed_at_the_end_of_the_input(
    topics: Topics, config: KafkaConfig
) -> None:
    """The newest output is that of the last input: there is nothing that could be written again."""
    switch_on(topics, topics.output, cleanup_policy="compact")
    records = enrich(config, COUNT)
    with left_open(topics, topics.output, "aborted"):
        pass
    delete_group(topics.bootstrap_servers, topics.group)
    source, _ = opened(config)
    assert ends_of(records) == starts_of(source, topics)


def test_a_compacted_topic_that_was_never_written_begins_at_the_beginning(topics: Topics, config: KafkaConfig) -> None:
    """The first start of all."""
    switch_on(topics, topics.output, cleanup_policy="compact")
    switch_on(topics, topics.dead_letters, cleanup_policy="compact")
    source, _ = opened(config)
    assert dict.fromkeys(range(4), 0) == starts_of(source, topics)


def test_missing_offsets_are_refused_while_it_is_unknown_whether_the_topic_is_compacted(
    topics: Topics, config: KafkaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without DESCRIBE_CONFIGS the broker does not say; the message names the right."""
    monkeypatch.setattr(tails, "settings_of", lambda *_: None)
    enrich(config, COUNT)
    with left_open(topics, topics.dead_letters, "aborted"):
        pass
    delete_group(topics.bootstrap_servers, topics.group)
    publish(topics.bootstrap_servers, topics.input, inputs(COUNT))
    with pytest.raises(BrokerError, match=r"DESCRIBE_CONFIGS.*dead-letters.*kafka\.start"):
        opened(config)
