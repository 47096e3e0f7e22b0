"""Writes records of a given age to the input topic, and commits offsets, as publishers and workers would."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaException, TopicPartition
from kafka.harness import transaction
from support.patience import PATIENCE_S
from support.topics import Topics


def write(topics: Topics, partition: int, *ages_s: float) -> None:
    """Committed records of these ages, in one transaction."""
    now_s = time.time()
    with transaction(topics.bootstrap_servers, f"{topics.group}-upstream") as producer:
        for age_s in ages_s:
            producer.produce(topics.input, b"{}", partition=partition, timestamp=int(1000 * (now_s - age_s)))


def commit(topics: Topics, offsets: dict[int, int]) -> None:
    """Commit offsets for the group."""
    consumer = Consumer({"bootstrap.servers": topics.bootstrap_servers, "group.id": topics.group})
    tps = [TopicPartition(topics.input, partition, offset) for partition, offset in offsets.items()]
    give_up_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            consumer.commit(offsets=tps, asynchronous=False)
        except KafkaException:  # the coordinator of a new group is not there at once
            if time.monotonic() > give_up_s:
                raise
        else:
            break
    consumer.close()
