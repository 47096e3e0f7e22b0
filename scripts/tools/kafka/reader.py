"""Reads whole topics and offsets without joining a group, for the scripts and for the tests.

It is a plain client: what it says of a worker's outputs owes nothing to the worker's code.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from tools.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confluent_kafka import Message

_TIMEOUT_S = 120.0
_SILENCE_S = 20.0
"""A client that delivers nothing for this long is replaced."""
_CLIENTS = 4
_AT_ONCE = 1_000


class Reader:
    """Reads topics of one cluster. `group`: the group whose committed offsets are read."""

    def __init__(self, bootstrap_servers: str, group: str) -> None:
        self._common = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "log_level": 0,
        }

    def records(
        self, topic: str, isolation: str = "read_committed", begins: Mapping[int, int] | None = None
    ) -> Iterator[Message]:
        """Read all partitions to their ends, from `begins` or the beginning; raises TimeoutError if some cannot be."""
        nexts: dict[int, int] = {}
        for attempt in range(_CLIENTS):  # on a busy machine a client was seen that delivers nothing at all
            with closing(Consumer({**self._common, "isolation.level": isolation})) as consumer:
                # A client that has asked for the partitions knows their leaders and begins at once, not after half a second.
                partitions = self._partitions(consumer, topic)
                if attempt == 0:
                    nexts = dict.fromkeys(partitions, OFFSET_BEGINNING) | dict(begins or {})
                consumer.assign([TopicPartition(topic, number, offset) for number, offset in nexts.items()])
                yield from _read_on(consumer, nexts)
            if not nexts:
                return
        raise TimeoutError(f"{topic}: the partitions {sorted(nexts)} deliver nothing more, short of their ends")

    def count(self, topic: str, isolation: str) -> int:
        return sum(1 for _ in self.records(topic, isolation))

    def committed_and_ends(self, topic: str) -> dict[int, tuple[int, int]]:
        """Committed offset (below 0 if none) and end offset, by partition."""
        with closing(Consumer(self._common)) as consumer:
            asked = [TopicPartition(topic, number) for number in self._partitions(consumer, topic)]
            committed = self._committed_offsets(consumer, asked)
            return {each.partition: (each.offset, self._end(consumer, each)) for each in committed}

    def lag(self, topic: str) -> int:
        """How many offsets the group has not committed yet."""
        # The committed offset of a topic that was deleted may lie beyond the end of the present one.
        return sum(max(0, end - max(0, committed)) for committed, end in self.committed_and_ends(topic).values())

    def stable_and_ends(self, topic: str) -> dict[int, tuple[int, int]]:
        """Last stable offset and end offset, by partition."""
        with (
            closing(Consumer({**self._common, "isolation.level": "read_committed"})) as stable,
            closing(Consumer({**self._common, "isolation.level": "read_uncommitted"})) as every,
        ):
            asked = [TopicPartition(topic, number) for number in self._partitions(stable, topic)]
            return {each.partition: (self._end(stable, each), self._end(every, each)) for each in asked}

    def _committed_offsets(self, consumer: Consumer, asked: list[TopicPartition]) -> list[TopicPartition]:
        """The group's offsets; waits for its coordinator, which a fresh broker has to find first."""
        committed: list[TopicPartition] = []

        def answered() -> bool:
            try:
                committed[:] = consumer.committed(asked, timeout=_TIMEOUT_S)
            except KafkaException as exception:
                error = exception.args[0]
                if not error.retriable() and error.code() != KafkaError.NOT_COORDINATOR:
                    raise
                return False
            return True

        if not wait_until(answered, _TIMEOUT_S, 0.2):
            raise TimeoutError(f"the group's coordinator does not answer within {_TIMEOUT_S:g} s")
        return committed

    def _end(self, consumer: Consumer, partition: TopicPartition) -> int:
        bounds = consumer.get_watermark_offsets(
            TopicPartition(partition.topic, partition.partition), timeout=_TIMEOUT_S
        )
        assert bounds is not None, "it raises when it has no answer"
        return bounds[1]

    def _partitions(self, consumer: Consumer, topic: str) -> list[int]:
        return list(consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions)


def _read_on(consumer: Consumer, nexts: dict[int, int]) -> Iterator[Message]:
    """Read until the client delivers nothing more; remove finished partitions from `nexts`, and note the others' places."""
    # consume() waits until it has as many messages as asked for, so with a timeout it is asked for one.
    while nexts and (messages := consumer.consume(_AT_ONCE, 0) or consumer.consume(1, _SILENCE_S)):
        for message in messages:
            error, number = message.error(), message.partition() or 0
            if error is None:
                nexts[number] = (message.offset() or 0) + 1
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  the client's name
                nexts.pop(number, None)
