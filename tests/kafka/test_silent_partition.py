"""A partition that the client lost is detected and ends the process; a healthy one beside a backlog does not."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition
from kafka.clients import (
    begun,
    client_of,
    config_for,
    ends_for,
    inputs,
    poll_until,
    records_of,
    release_of,
)
from kafka.harness import assert_all_is_there_once, publish
from support.topics import Topics

from enricher.errors import Stalled
from enricher.worker.kafka.source import KafkaSource
from enricher.worker.records import Partition

pytestmark = pytest.mark.broker

BOUND_S = 2
"""Enough for a partition that is read: one that is late because the machine is busy is read alone, and delivers."""


def lose(source: KafkaSource, topics: Topics) -> None:
    """Stop the client from fetching without the source's knowledge, as librdkafka 5586, 5591 and 2190 do."""
    source.pause()  # else records may come meanwhile
    places = [Partition(topics.input, number) for number in range(4)]
    poll_until(source, lambda: all(source.start_of(place) for place in places))
    source.resume()
    client_of(source).pause([TopicPartition(topics.input, number) for number in range(4)])


def read_on(source: KafkaSource) -> None:
    """Poll for ever, as the loop does."""

    def hold_nothing() -> bool:
        source.hold(())
        return False

    poll_until(source, hold_nothing)


def test_a_lost_partition_ends_the_process_and_a_restart_reads_it(topics: Topics) -> None:
    """No other sign exists: it is assigned, the group is stable, and the client logs nothing."""
    config = config_for(topics, partition_timeout_s=BOUND_S)
    source, sink, diary = begun(config)
    places = publish(topics.bootstrap_servers, topics.input, inputs(20))
    sink.publish(release_of(records_of(source, 20)))
    lose(source, topics)
    places |= publish(topics.bootstrap_servers, topics.input, inputs(20))
    diary.events.clear()
    with pytest.raises(Stalled, match=r"it has more records.*a restart reads") as end:
        read_on(source)
    assert end.value.undelivered
    assert source.connection().silent_s > 0
    assert [] == diary.events, "attempts can be taken back: nothing was given up"
    source.close()
    sink.close()
    restarted, again = ends_for(config)
    again.publish(release_of(records_of(restarted, 20)))
    assert 0.0 == restarted.connection().silent_s
    assert_all_is_there_once(topics, places)
