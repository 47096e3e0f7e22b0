"""Names the demonstration's topics, and deletes them afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from enricher.worker.settings import IndexSettings
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


def letters_of_the_index(topics: Topics) -> str:
    return IndexSettings().dead_letters_of(topics.output)


def _delete(topics: Topics) -> None:
    """Delete topics and groups; errors are ignored: some are not there, and the cluster may be going down."""
    admin = AdminClient({"bootstrap.servers": topics.bootstrap_servers, "log_level": 0})
    futures = [
        *admin.delete_topics([*topics.all, letters_of_the_index(topics)], operation_timeout=_DELETE_S).values(),
        *admin.delete_consumer_groups([topics.group, f"{topics.group}.index"]).values(),
    ]
    for future in futures:
        with contextlib.suppress(KafkaException):
            future.result(_DELETE_S)
