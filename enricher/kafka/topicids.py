"""Kafka's id of a topic: a topic that is deleted and created again has the same name and another id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import TopicCollection

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_NO_ID = {"", "A" * 22}
"""16 bytes of zeros in base64: what brokers before 2.8 answer, which have no ids."""


def topic_id_of(admin: AdminClient, topic: str, timeout_s: float) -> str | None:
    """The id as the client writes it (base64 with `+` and `/`); None where the broker has none.

    Blocks for at most `timeout_s`. Raises the client's errors unmapped: UNKNOWN_TOPIC_OR_PART where there is no such topic.
    """
    description = admin.describe_topics(TopicCollection([topic]), request_timeout=timeout_s)[topic].result()
    topic_id = str(description.topic_id)
    return None if topic_id in _NO_ID else topic_id
