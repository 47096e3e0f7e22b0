"""A partition that the client lost is detected, read by a new client, and then the process ends."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition
from kafka.clients import config_for, opened, poll_until, records_of
from kafka.harness import Sent, publish
from support.topics import Topics

from enricher.errors import Stalled, TransactionTrouble
from enricher.kafka.source import KafkaSource
from enricher.records import Partition

pytestmark = pytest.mark.broker


def lose(source: KafkaSource, topics: Topics) -> None:
    """Stop the client from fetching without the source's knowledge, as librdkafka 5586, 5591 and 2190 do."""
    source.pause()  # else records may come meanwhile
    places = [Partition(topics.input, number) for number in range(4)]
    poll_until(source, lambda: all(source.start_of(place) for place in places))
    source.resume()
    source._consumer.pause([TopicPartition(topics.input, number) for number in range(4)])


def test_a_lost_partition_is_noticed_and_read_by_a_new_client(topics: Topics) -> None:
    """No other sign exists: it is assigned, the group is stable, and the client logs nothing."""
    source, _ = opened(config_for(topics, partition_timeout_s=6))
    lose(source, topics)
    publish(topics.bootstrap_servers, topics.input, [Sent(f"k{number}".encode(), b"v") for number in range(20)])
    with pytest.raises(TransactionTrouble, match="it has more records"):
        poll_until(source, lambda: False, timeout_s=60)
    assert source.connection().silent_s > 0
    source.rewind()
    assert 20 == len(records_of(source, 20))
    assert 0.0 == source.connection().silent_s


def test_a_partition_that_a_new_client_does_not_bring_back_ends_the_process(topics: Topics) -> None:
    """A new process has a client that knows nothing of it."""
    source, _ = opened(config_for(topics, partition_timeout_s=6))
    lose(source, topics)
    publish(topics.bootstrap_servers, topics.input, [Sent(b"k", b"v")] * 20)
    with pytest.raises(TransactionTrouble):
        poll_until(source, lambda: False, timeout_s=60)
    source.rewind()
    lose(source, topics)
    with pytest.raises(Stalled, match="a new client has not helped"):
        poll_until(source, lambda: False, timeout_s=60)


def test_idle_partitions_are_no_trouble(topics: Topics) -> None:
    """Nothing is published for longer than the bound, and no error is raised."""
    source, _ = opened(config_for(topics, partition_timeout_s=4))
    for _ in range(120):
        assert [] == source.poll(10, 0.1)
    publish(topics.bootstrap_servers, topics.input, [Sent(b"k", b"v")])
    assert 1 == len(records_of(source, 1))
