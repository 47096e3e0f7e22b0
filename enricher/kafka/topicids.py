"""Kafka's id of a topic: a topic that is deleted and created again has the same name and another id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import TopicCollection, Uuid

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_NO_ID = 22 * "A"
"""16 bytes of zeros: what brokers before 2.8 answer, which have no ids."""


def topic_id_text(topic_id: Uuid | None) -> str | None:
    """The id as Kafka's own tools print it (URL-safe base64, 22 characters); None where the broker has none."""
    text = str(topic_id or _NO_ID).replace("+", "-").replace("/", "_").rstrip("=")
    return None if text == _NO_ID else text


def topic_id_of(admin: AdminClient, topic: str, timeout_s: float) -> str | None:
    """The id of a topic; None where the broker has none.

    Blocks for at most `timeout_s`. Raises the client's errors unmapped: UNKNOWN_TOPIC_OR_PART where there is no such topic.
    """
    description = admin.describe_topics(TopicCollection([topic]), request_timeout=timeout_s)[topic].result()
    return topic_id_text(description.topic_id)
