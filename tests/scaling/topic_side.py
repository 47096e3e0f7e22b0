"""Writes records of a given age to the input topic, and commits offsets, as publishers and workers would."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from support.topics import Topics


@contextmanager
def transaction(topics: Topics, *, commit: bool = True, end: bool = True) -> Iterator[Producer]:
    """A transaction on the input topic; with `end` false it stays open, until the producer's id is used again."""
    producer = Producer({"bootstrap.servers": topics.bootstrap_servers, "transactional.id": f"{topics.group}-upstream"})
    producer.init_transactions(30)
    producer.begin_transaction()
    yield producer
    assert producer.flush(20) == 0
    if end:
        (producer.commit_transaction if commit else producer.abort_transaction)(30)


def write(topics: Topics, partition: int, *ages_s: float) -> None:
    """Committed records of these ages, in one transaction."""
    now_s = time.time()
    with transaction(topics) as producer:
        for age_s in ages_s:
            producer.produce(topics.input, b"{}", partition=partition, timestamp=int(1000 * (now_s - age_s)))


def commit(topics: Topics, offsets: dict[int, int]) -> None:
    """Commit offsets for the group."""
    consumer = Consumer({"bootstrap.servers": topics.bootstrap_servers, "group.id": topics.group})
    tps = [TopicPartition(topics.input, partition, offset) for partition, offset in offsets.items()]
    give_up_s = time.monotonic() + 60
    while True:
        try:
            consumer.commit(offsets=tps, asynchronous=False)
        except KafkaException:  # the coordinator of a new group is not there at once
            if time.monotonic() > give_up_s:
                raise
        else:
            break
    consumer.close()
