"""Names the demonstration's topics, and deletes them afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tools.topics import Topics

_DELETE_S = 10.0


@contextlib.contextmanager
def own_topics(bootstrap_servers: str) -> Iterator[Topics]:
    """Names of topics and a group that nobody else has; deletes what exists of them at the end."""
    topics = Topics.fresh(bootstrap_servers, "enricher-demo")
    try:
        yield topics
    finally:
        _delete(topics)


def _delete(topics: Topics) -> None:
    """Delete topics and group; errors are ignored, because the cluster may be going down."""
    with contextlib.suppress(KafkaException):
        topics.delete(_DELETE_S)
    admin = AdminClient({"bootstrap.servers": topics.bootstrap_servers, "log_level": 0})
    for future in admin.delete_consumer_groups([topics.group]).values():
        with contextlib.suppress(KafkaException):
            future.result(_DELETE_S)
