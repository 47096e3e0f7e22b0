"""Deletes a topic and creates it again: the same name, another topic id."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from enricher.worker.kafka.metadata import topic_id_of
from support.operating import admin_of
from support.patience import PATIENCE_S, wait_until
from support.topics import PARTITIONS


def topic_id(bootstrap_servers: str, topic: str) -> str | None:
    """The id of a topic as headers contain it; None if there is no such topic."""
    admin = admin_of(bootstrap_servers)
    try:
        return topic_id_of(admin, topic, PATIENCE_S)
    except KafkaException as exception:
        if exception.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        return None


def make_again(bootstrap_servers: str, topic: str) -> str:
    """Delete a topic and create it again, empty; returns the new id."""
    admin = admin_of(bootstrap_servers)
    before = topic_id(bootstrap_servers, topic)
    admin.delete_topics([topic])[topic].result(PATIENCE_S)
    again = NewTopic(topic, PARTITIONS, 1)
    wait_until(lambda: _created(admin, again), PATIENCE_S, f"{topic} is deleted, and can be created")
    found: list[str | None] = []

    def is_there() -> bool:
        found.append(topic_id(bootstrap_servers, topic))
        return found[-1] not in {None, before}

    wait_until(is_there, PATIENCE_S, f"{topic} is there again")
    assert found[-1] is not None
    return found[-1]


def _created(admin: AdminClient, topic: NewTopic) -> bool:
    """Whether the topic exists; a deletion takes a moment."""
    try:
        admin.create_topics([topic])[topic.topic].result(PATIENCE_S)
    except KafkaException as exception:
        if exception.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        return False
    return True
