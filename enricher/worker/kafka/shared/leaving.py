"""Leaving a group."""

from __future__ import annotations

from contextlib import suppress

from confluent_kafka import Consumer


def leave(consumer: Consumer) -> None:
    """Close a member of a group, once it has heard of the rebalances that wait for it. Raises KafkaException.

    Of about 50 members that were closed while one waited, one never returned, and held the interpreter's lock meanwhile: the
    client asks librdkafka to take the assignment, whose group is over by then, and gets no answer (confluent-kafka 2.16.1,
    `rd_kafka_assign0` within `rd_kafka_consumer_close`).
    """
    with suppress(RuntimeError):  # it is closed already
        consumer.poll(0)
    consumer.close()
