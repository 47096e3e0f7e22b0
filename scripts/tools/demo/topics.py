"""Creates names for the demonstration's topics that collide with no others, and deletes the topics afterwards."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

_DELETE_S = 10.0


@contextlib.contextmanager
def own_topics(bootstrap_servers: str) -> Iterator[Mapping[str, str]]:
    """Environment variables that point `enricher` to this cluster and unique topics; deletes the topics at the end."""
    name = f"enricher-demo-{uuid.uuid4().hex[:8]}"
    topics = {"INPUT": f"{name}.articles", "OUTPUT": f"{name}.entities", "DEAD_LETTER": f"{name}.dead-letters"}
    try:
        yield {
            "ENRICHER_KAFKA__BOOTSTRAP_SERVERS": bootstrap_servers,
            "ENRICHER_KAFKA__GROUP_ID": name,
            "ENRICHER_KAFKA__INSTANCE": "demo-0",
            **{f"ENRICHER_KAFKA__{role}_TOPIC": topic for role, topic in topics.items()},
        }
    finally:
        _delete(AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0}), list(topics.values()), name)


def _delete(admin: AdminClient, topics: list[str], group: str) -> None:
    """Delete topics and group; errors are ignored, because the cluster may be going down."""
    with contextlib.suppress(KafkaException):
        for future in admin.delete_topics(topics, operation_timeout=_DELETE_S).values():
            with contextlib.suppress(KafkaException):
                future.result(_DELETE_S)
        for future in admin.delete_consumer_groups([group]).values():
            with contextlib.suppress(KafkaException):
                future.result(_DELETE_S)
