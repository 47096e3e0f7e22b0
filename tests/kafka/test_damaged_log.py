"""A batch that is damaged in the broker's log: told with its place, and the end; damage that passes is waited out."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from kafka.clients import config_for, opened, poll_until
from support.topics import Topics, make_topics

from broker import Cluster
from enricher.errors import BrokerError
from enricher.kafka.damage import DamageWatch
from enricher.records import Partition

PLACE = Partition("articles", 3)
DAMAGED = KafkaError(KafkaError._BAD_MSG, "MessageSet at offset 7 failed CRC32C check")


def test_damage_that_passes_is_waited_out() -> None:
    """A bit that fell over in the network is whole at the next look, and many looks take no time."""
    watch = DamageWatch()
    assert all(watch.noted(DAMAGED, PLACE, 7, now_s / 1_000) for now_s in range(5_000))
    watch.whole(PLACE)
    assert watch.noted(DAMAGED, PLACE, 7, 1_000.0)


def test_damage_at_another_offset_is_counted_by_itself() -> None:
    """A network that damages one batch and then another still gets through."""
    watch = DamageWatch()
    assert all(watch.noted(DAMAGED, PLACE, now_s, float(now_s)) for now_s in range(100))


def test_damage_that_stays_is_final_and_says_where() -> None:
    """Topic, partition and offset, and what to do."""
    watch = DamageWatch()
    assert all(watch.noted(DAMAGED, PLACE, 7, now_s / 10) for now_s in range(100))
    with pytest.raises(BrokerError, match=r"offset 7 of articles\[3\].*--reset-offsets"):
        watch.noted(DAMAGED, PLACE, 7, 10.0)


def test_other_errors_are_no_damage() -> None:
    """They are for others to judge."""
    assert not DamageWatch().noted(KafkaError(KafkaError._TRANSPORT), PLACE, 7, 0.0)


@pytest.fixture(params=["none", "lz4"])
def damaged(request: pytest.FixtureRequest) -> Iterator[Topics]:
    """A topic of three batches of which the second has a wrong byte on the broker's disk."""
    with Cluster(nodes=1) as cluster:
        topics = make_topics(cluster.bootstrap_servers, partitions=1)
        producer = Producer({"bootstrap.servers": topics.bootstrap_servers, "compression.type": request.param})
        for _ in range(3):
            for number in range(20):
                producer.produce(topics.input, os.urandom(20) * 20, f"k{number}".encode())
            producer.flush()
        [node] = cluster.nodes
        node.stop()
        break_batch(next((node.folder / "log").glob(f"{topics.input}-0/*0000.log")), 1)
        node.start()
        yield topics


def break_batch(segment: Path, number: int) -> None:
    """Turn one byte of a batch over."""
    content, at = bytearray(segment.read_bytes()), 0
    for _ in range(number):
        at += 12 + struct.unpack_from(">qi", content, at)[1]
    length = struct.unpack_from(">qi", content, at)[1]
    content[at + length - 40] ^= 0xFF
    segment.write_bytes(content)


@pytest.mark.broker
def test_a_damaged_batch_ends_the_worker_with_its_place(damaged: Topics) -> None:
    """It is neither read as data nor asked for for ever; compressed or not."""
    source, _ = opened(config_for(damaged))
    with pytest.raises(BrokerError, match=r"offset 20 of .*articles\[0\]"):
        poll_until(source, lambda: False, timeout_s=60)
    source.close()
