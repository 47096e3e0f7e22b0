"""Batches that are whole, by their checksum, and that the client cannot unpack: which offsets they span.

Anybody who may publish can write one (seen: one record of 100 MB, 3 KB of zstd; the client unpacks no zstd batch beyond
its `receive.message.max.bytes`). The client stays in front of it, and says nothing but the offset at which it begins. So
where it ends is found by reading from behind it: inside, the broker sends the same batch again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Self

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from enricher.errors import BrokerError, TransactionTrouble
from enricher.kafka.client import KafkaConfig, LastWord
from enricher.kafka.errors import border, constructing, mapped
from enricher.records import Partition, RawRecord, Unreadable

log = logging.getLogger(__name__)

UNREADABLE = KafkaError._BAD_COMPRESSION  # noqa: SLF001  the client's name
"""With `check.crcs`, which nobody may switch off, the checksum was right: a second look finds the same."""
_ZSTD = "(codec 0x4)"
"""As the client's message has it. Only the present record format (version 2) knows this codec."""
_END = KafkaError._PARTITION_EOF  # noqa: SLF001
_OUTSIDE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}  # noqa: SLF001
_LOOK_S = 10.0
"""For all looks at one batch: two where it holds one record, forty where it holds a million. Each takes some 20 ms, inside
of a batch of a hundred megabytes 200."""
_POLL_S = 0.1
_ONE_BATCH = {
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    # The broker sends one batch, however large: what stands behind it is not unpacked as well.
    "fetch.message.max.bytes": 1,
    "fetch.wait.max.ms": 10,
    "fetch.error.backoff.ms": 10,
}


class UnreadableBatches:
    """Says which offsets are lost to batches that cannot be unpacked. Remembers the last one of each partition."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._known: dict[Partition, tuple[range, Unreadable]] = {}

    def span(self, partition: Partition, expected: int, error: KafkaError, begins: int) -> range:
        """The offsets of the batch that the client does not get past at `expected`: those before are dealt with.

        `error` and `begins` are what the client said of it. Blocks for some looks. Raises BrokerError where it cannot be
        told which offsets these are, TransactionTrouble where nobody answers.
        """
        known, why = self._known.get(partition, (range(0), None))
        # From its beginning a batch is looked at anew: the topic may be another one by now, or was cut off.
        if expected not in known[1:] or why is None or why.batch_offset != begins:
            known = self._looked_for(partition, expected, error, begins)
            self._known[partition] = known, Unreadable(begins, error.str())
        return range(max(expected, known.start), known.stop)

    def stand_ins(self, partition: Partition, offsets: range, topic_id: str | None) -> list[RawRecord]:
        """What is delivered for these offsets of the batch whose `span` was asked for last."""
        _, why = self._known[partition]
        return [RawRecord(partition, each, None, None, topic_id=topic_id, unreadable=why) for each in offsets]

    def _looked_for(self, partition: Partition, expected: int, error: KafkaError, begins: int) -> range:
        # The older formats name the last offset of a batch, and nothing tells where it begins.
        if begins > expected and _ZSTD not in error.str():
            raise _untold(partition, expected, begins, error)
        first = max(expected, begins)
        with _Looker(self._config, partition, begins) as looker:
            found = range(first, looker.end(first))
        log.error(
            "%s[%d] offsets %d to %d cannot be read, they become dead letters without a value: %s",
            *partition, found.start, found.stop - 1, error.str(),
        )  # fmt: skip
        return found


class _Looker:
    """A client of its own: the worker's would have to throw away what it has prefetched, for each look."""

    def __init__(self, config: KafkaConfig, partition: Partition, begins: int) -> None:
        self._partition = partition
        self._begins = begins
        self._last_word = LastWord(config)
        self._give_up_s = time.monotonic() + _LOOK_S
        properties = config.consumer() | {"error_cb": self._last_word} | _ONE_BATCH
        with constructing():
            self._consumer = Consumer(properties, logger=self._last_word.logger)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def end(self, first: int) -> int:
        """The first offset behind the batch: twice as far until one is outside, then halves.

        Where the time is over before that, behind what is known to be inside: the next look begins there.
        """
        inside, outside = first, None
        try:
            while outside is None or outside - inside > 1:
                offset = 2 * inside - first + 1 if outside is None else (inside + outside) // 2
                if self._is_inside(offset):
                    inside = offset
                else:
                    outside = offset
        except TransactionTrouble:
            if inside == first:
                raise
        return inside + 1

    def _is_inside(self, offset: int) -> bool:
        """Whether reading from `offset` on meets the same batch."""
        doing = f"looking for the end of a batch of {self._partition.topic}[{self._partition.number}]"
        with border(doing, self._last_word):
            self._consumer.assign([TopicPartition(self._partition.topic, self._partition.number, offset)])
            for message in self._messages(doing):
                error = message.error()
                if error is None or error.code() == _END or error.code() in _OUTSIDE:
                    return False
                if error.code() == UNREADABLE:
                    return message.offset() == self._begins
                self._raise_final(error, doing)
        raise AssertionError("the messages end with an exception")

    def _messages(self, doing: str) -> Iterator[Message]:
        while time.monotonic() < self._give_up_s:
            if (message := self._consumer.poll(_POLL_S)) is not None:
                yield message
        raise TransactionTrouble(f"{doing}: no answer within {_LOOK_S:g} s")

    def _raise_final(self, error: KafkaError, doing: str) -> None:
        trouble = mapped(error, doing, self._last_word)
        if error.fatal() or isinstance(trouble, BrokerError):
            raise trouble


def _untold(partition: Partition, expected: int, begins: int, error: KafkaError) -> BrokerError:
    return BrokerError(
        f"the client cannot unpack a batch of {partition.topic}[{partition.number}] at offset {begins} ({error.str()}), and "
        f"it cannot be told whether it holds the records from {expected} on as well. Set the group's offset behind it "
        "(kafka-consumer-groups --reset-offsets): its records are lost"
    )
