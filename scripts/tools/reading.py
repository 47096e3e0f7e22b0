"""Reads topics past the workers, without joining a group: whole, or followed in a thread; and which input an output names.

Plain clients: what they say of a worker's outputs owes nothing to the worker's code.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from types import MappingProxyType
from typing import NamedTuple, cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from tools.waiting import Closing, wait_until

STAGE = "enricher.dlq.stage"
_TOPIC_ID, _PARTITION, _OFFSET = "source.topic.id", "source.partition", "source.offset"


class InputId(NamedTuple):
    """Identifies an input. A recreated topic has another id, and the same partitions and offsets."""

    topic_id: str
    """It is empty if the output does not name it."""
    partition: int
    offset: int


def headers_of(message: Message) -> dict[str, bytes]:
    """A message's headers by name; of several with one name the last wins."""
    return dict(cast("list[tuple[str, bytes]]", message.headers() or []))


def source_of(message: Message) -> InputId:
    """The input that an output was made from."""
    headers = headers_of(message)
    prefix = "enricher.dlq" if STAGE in headers else "enricher"
    return InputId(
        headers.get(f"{prefix}.{_TOPIC_ID}", b"").decode(),
        int(headers[f"{prefix}.{_PARTITION}"]),
        int(headers[f"{prefix}.{_OFFSET}"]),
    )


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


_ASK_S, _WAIT_S = 10.0, 0.1


class Follower(Closing):
    """Reads all partitions of `topics` from their beginnings, and calls `note` in its thread with each record.

    `name`: of its group, client and thread. `look_every_s`: how often it looks for further partitions; None: never.
    `properties`: of the client, besides.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topics: Sequence[str],
        note: Callable[[Message], None],
        *,
        name: str,
        look_every_s: float | None = None,
        properties: Mapping[str, str | bool] = MappingProxyType({}),
    ) -> None:
        self.ends: dict[tuple[str, int], int] = {}
        """The end of each partition, once it was reached; only with the property `enable.partition.eof`."""
        self._topics = topics
        self._note = note
        self._look_every_s = look_every_s
        self._assigned: set[tuple[str, int]] = set()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": name,
                "client.id": name,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 1_000,
                "log_level": 0,
                **properties,
            }
        )
        self._take_new_partitions(_ASK_S)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._consumer.close()

    def _follow(self) -> None:
        looked_s = time.monotonic()
        while not self._over.is_set():
            if self._look_every_s is not None and time.monotonic() > looked_s + self._look_every_s:
                looked_s = time.monotonic()
                with suppress(KafkaException):
                    self._take_new_partitions(1.0)
            # consume() waits until it has as many records as asked for, so with a timeout it is asked for one.
            for message in [*self._consumer.consume(1, _WAIT_S), *self._consumer.consume(500, 0)]:
                error = message.error()
                if error is None:
                    self._note(message)
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  the client's name
                    self.ends[message.topic() or "", message.partition() or 0] = message.offset() or 0

    def _take_new_partitions(self, timeout_s: float) -> None:
        topics = self._consumer.list_topics(timeout=timeout_s).topics
        there = {(name, number) for name in self._topics if name in topics for number in topics[name].partitions}
        if new := there - self._assigned:
            self._consumer.incremental_assign([TopicPartition(*each, OFFSET_BEGINNING) for each in new])
            self._assigned |= new
