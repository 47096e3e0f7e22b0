"""A batch that is damaged in the broker's log ends the worker with its place; temporary damage is waited out."""

from __future__ import annotations

import os
import struct
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from kafka.clients import config_for, opened, poll_until
from support.topics import Topics, make_topics

from enricher.errors import BrokerError, TransactionTrouble
from enricher.worker.kafka import partition as rules
from enricher.worker.kafka.assignment import Fetching
from enricher.worker.kafka.errors import ClientErrors
from enricher.worker.kafka.partition import Damage
from enricher.worker.kafka.partitions import Partitions
from enricher.worker.kafka.ranges import RangeReader
from enricher.worker.records import Mark, Partition, Start
from tools.kafka import Cluster

PLACE = Partition("articles", 3)
DAMAGED = KafkaError(KafkaError._BAD_MSG, "MessageSet at offset 7 failed CRC32C check")
ENDED = KafkaError(KafkaError._PARTITION_EOF)


def test_damage_that_passes_is_waited_out() -> None:
    """A bit that flipped in the network is right in the next fetch, and many fetches take no time."""
    damage = Damage()
    assert all(damage.is_seen(DAMAGED, PLACE, 99, 7, now_s / 1_000) for now_s in range(5_000))
    damage.clear()
    assert damage.is_seen(DAMAGED, PLACE, 99, 7, 1_000.0)


def test_damage_at_another_offset_is_counted_by_itself() -> None:
    """A network that damages one batch and then another still delivers both."""
    damage = Damage()
    assert all(damage.is_seen(DAMAGED, PLACE, 99, now_s, float(now_s)) for now_s in range(100))


def test_damage_that_stays_is_final_and_says_where() -> None:
    """Topic, partition and offset, and what to do."""
    damage = Damage()
    assert all(damage.is_seen(DAMAGED, PLACE, 99, 7, now_s / 10) for now_s in range(100))
    with pytest.raises(BrokerError, match=r"offset 7 of articles\[3\].*--reset-offsets"):
        damage.is_seen(DAMAGED, PLACE, 99, 7, 10.0)


def test_where_damage_led_the_client_astray_it_looks_again() -> None:
    """Seen: a wrong next offset from the damaged batch, out of range, back at the beginning. A gap stays."""
    damage = Damage()
    assert not damage.is_seen(None, PLACE, 0, 7, 0.0), "no damage"
    damage.is_seen(DAMAGED, PLACE, 99, 7, 0.0)
    assert not damage.is_seen(None, PLACE, 7, 7, 0.0), "where it should go on"
    assert damage.is_seen(None, PLACE, 0, 7, 0.0)
    damage.is_seen(DAMAGED, PLACE, 99, 7, 1.0)
    looks = [damage.is_seen(None, PLACE, 0, 7, now_s) for now_s in (1.0, 1.1, 1.2)]
    assert [True] * 3 == looks, "too soon: this may have been under way"
    damage.is_seen(DAMAGED, PLACE, 99, 7, 2.0)
    assert damage.is_seen(None, PLACE, 0, 7, 3.5), "damaged between the looks"
    looks = [damage.is_seen(ENDED, PLACE, 60, 7, now_s) for now_s in (4.0, 5.0, 6.0)]
    assert [True, True, False] == looks, "an end may be a stray, too; after several looks it is where the log goes on"


def test_other_errors_are_no_damage() -> None:
    """Other errors are not counted as damage."""
    assert not Damage().is_seen(KafkaError(KafkaError._TRANSPORT), PLACE, 7, 7, 0.0)


@pytest.fixture(params=["none", "lz4"])
def damaged(request: pytest.FixtureRequest, broker: Cluster) -> Topics:
    """A topic of three batches, of one record each, of which the second has a wrong byte on the broker's disk."""
    topics = make_topics(broker.bootstrap_servers, partitions=1)
    producer = Producer({"bootstrap.servers": topics.bootstrap_servers, "compression.type": request.param})
    for number in range(3):  # a flush each: the client divides what it sends together into batches as it likes
        producer.produce(topics.input, os.urandom(20) * 400, f"k{number}".encode())
        producer.flush()
    break_batch(next((broker.nodes[0].folder / "log").glob(f"{topics.input}-0/*0000.log")), 1)
    return topics


def break_batch(segment: Path, number: int) -> None:
    """Invert one byte of a batch, under a broker that runs: it reads the file again for each fetch."""
    with segment.open("r+b") as file:
        content, at = file.read(), 0
        for _ in range(number):
            at += 12 + struct.unpack_from(">qi", content, at)[1]
        length = struct.unpack_from(">qi", content, at)[1]
        file.seek(at + length - 40)
        file.write(bytes([content[at + length - 40] ^ 0xFF]))


@pytest.mark.broker
def test_a_damaged_batch_ends_the_worker_with_its_place(damaged: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is neither read as data nor fetched for ever, compressed or not."""
    monkeypatch.setattr(rules, "_LASTS_S", 1.0)
    source, _ = opened(config_for(damaged))
    with pytest.raises(BrokerError, match=r"offset 1 of .*articles\[0\]"):
        poll_until(source, lambda: False)
    source.close()


@pytest.mark.broker
def test_a_reader_without_a_group_never_takes_a_damaged_batch_for_data(damaged: Topics) -> None:
    """`verify` and `tail` read like this; unless checksums are checked, a batch that is not compressed passes as data."""
    with (
        closing(RangeReader(config_for(damaged), committed_only=True, progress=lambda *_: None)) as reader,
        pytest.raises(BrokerError, match="reading"),
    ):
        list(reader.read(damaged.input, {0: (0, 3)}, "reading"))


@pytest.mark.broker
def test_a_client_that_does_not_go_back_is_trouble(topics: Topics) -> None:
    """Otherwise it would continue behind the damaged batch, and its records would be lost."""
    config = config_for(topics)
    consumer = Consumer(config.consumer())
    consumer.assign([TopicPartition(PLACE.topic, PLACE.number)])  # of a topic that is not there, so never begun
    partitions = Partitions(lambda _name: 10, bound_s=60, start_bound_s=80)
    partitions.add([PLACE], 0.0)
    partitions[PLACE].begin(Start(7, Mark()))
    with pytest.raises(TransactionTrouble, match=r"did not go back .*articles 3"):
        Fetching(consumer, partitions, ClientErrors(config)).go_back([PLACE])
    consumer.close()
