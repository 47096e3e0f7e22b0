"""A fake admin client, for answers that a real cluster gives only at the wrong moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from types import SimpleNamespace

from confluent_kafka import TopicCollection, TopicPartition, Uuid


class Administrator:
    """Answers like the client: for a partition without a leader it returns an invalid offset, and no error."""

    def __init__(self, offsets: Iterator[int]) -> None:
        self._offsets = offsets

    def list_offsets(
        self, wanted: Mapping[TopicPartition, object], **_named: object
    ) -> dict[TopicPartition, Future[SimpleNamespace]]:
        """The next offset, for every partition."""
        answer = Future[SimpleNamespace]()
        answer.set_result(SimpleNamespace(offset=next(self._offsets)))
        return dict.fromkeys(wanted, answer)

    def describe_topics(self, wanted: TopicCollection, **_named: object) -> dict[str, Future[SimpleNamespace]]:
        """The id that brokers without ids answer: 16 bytes of zeros."""
        answer = Future[SimpleNamespace]()
        answer.set_result(SimpleNamespace(topic_id=Uuid(0, 0)))
        return dict.fromkeys(wanted.topic_names, answer)

    def poll(self, _timeout_s: float) -> int:
        """Nothing to serve."""
        return 0
