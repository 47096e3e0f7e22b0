"""What a plain consumer finds in topics: records, committed offsets, ends."""

from __future__ import annotations

from contextlib import closing

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from support.patience import PATIENCE_S, wait_until
from tools.reading import Reader

Positions = dict[int, tuple[int, int]]


def read_all(bootstrap_servers: str, topic: str, isolation: str = "read_committed") -> list[Message]:
    """Everything that a consumer delivers of a topic, from its beginning to its end."""
    return list(Reader(bootstrap_servers, "reads-everything").records(topic, isolation))


def committed_and_ends(bootstrap_servers: str, group: str, topic: str) -> Positions:
    """By partition: the group's committed offset, below 0 if there is none, and the topic's end."""
    reader, found = Reader(bootstrap_servers, group), Positions()

    def answered() -> bool:
        try:
            found.update(reader.committed_and_ends(topic))
        except KafkaException as exception:
            if exception.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION:
                raise
            return False  # a fresh topic, whose leader does not know it yet
        return True

    wait_until(answered, PATIENCE_S, f"{topic} has leaders")
    return found


def commit_of(bootstrap_servers: str, group: str, topic: str, number: int) -> TopicPartition:
    """The commit of a group for a partition: offset, leader's epoch and metadata."""
    with closing(Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group, "log_level": 0})) as consumer:
        [committed] = consumer.committed([TopicPartition(topic, number)], timeout=PATIENCE_S)
    return committed
