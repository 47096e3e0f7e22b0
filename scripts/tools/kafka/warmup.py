"""Creates a fresh broker's internal topics and coordinators before anything is measured or waited for.

Without it the first `init_transactions` takes about 1 s ("coordinator load in progress") and the first group 3 s.
"""

from __future__ import annotations

import time
import uuid

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from tools.kafka.errors import ClusterError
from tools.kafka.node import quiet_admin

_TIMEOUT_S = 120.0


def warm_up(bootstrap_servers: str) -> None:
    """Run one transaction that commits an offset of one group; deletes its topic and group afterwards."""
    name = f"warm-up-{uuid.uuid4().hex}"
    client = quiet_admin(bootstrap_servers)
    try:
        client.create_topics([NewTopic(name, num_partitions=1)])[name].result(_TIMEOUT_S)
        _one_transaction(bootstrap_servers, name)
        client.delete_consumer_groups([name])[name].result(_TIMEOUT_S)
        client.delete_topics([name])[name].result(_TIMEOUT_S)
    except KafkaException as error:
        raise ClusterError(f"Kafka starts but does not serve: {error}") from error


def _one_transaction(bootstrap_servers: str, name: str) -> None:
    common = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
    consumer = Consumer({**common, "group.id": name, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    try:
        producer = Producer({**common, "transactional.id": name})
        producer.init_transactions(_TIMEOUT_S)
        producer.begin_transaction()
        producer.produce(name, b"warm")
        producer.commit_transaction(_TIMEOUT_S)
        consumer.subscribe([name])
        message = _first_message(consumer)
        producer.begin_transaction()
        offset = TopicPartition(name, 0, (message.offset() or 0) + 1)
        producer.send_offsets_to_transaction([offset], consumer.consumer_group_metadata(), _TIMEOUT_S)
        producer.commit_transaction(_TIMEOUT_S)
    finally:
        consumer.close()


def _first_message(consumer: Consumer) -> Message:
    deadline_s = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline_s:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            return message
    raise ClusterError("Kafka starts but no group gets a partition")
