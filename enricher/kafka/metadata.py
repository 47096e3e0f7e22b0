"""What every client of this room asks about topics, and how it reads a message. Raises the client's errors unmapped."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from functools import lru_cache
from operator import methodcaller
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, Producer, TopicPartition

from enricher.errors import MissingTopic
from enricher.kafka.timestamps import plausible_timestamp_s
from enricher.records import Headers, OmittedHeaders, Partition, RawRecord

if TYPE_CHECKING:  # the worker asks no administrator's questions
    from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, OffsetSpec, TopicDescription

log = logging.getLogger(__name__)

NO_LEADER_YET = {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE}
"""A partition that changes its leader has none for a moment."""
_LOOK_AGAIN_S = 0.05


def partitions_of(client: Consumer | Producer, topic: str, timeout_s: float) -> list[Partition]:
    """The partitions of a topic, in order. Raises MissingTopic where there is none of that name."""
    metadata = client.list_topics(topic, timeout=timeout_s).topics[topic]
    if metadata.error:
        if metadata.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise MissingTopic(no_such_topic(topic))
        # The client's own error does not say which topic.
        raise KafkaException(KafkaError(metadata.error.code(), f"the topic '{topic}': {metadata.error.str()}"))
    return [Partition(topic, number) for number in sorted(metadata.partitions)]


def no_such_topic(topic: str) -> str:
    """What to say where the broker knows no such topic."""
    return f"there is no topic '{topic}': create it ('enricher topics create') or name the right one"


def bounds_of(consumer: Consumer, partition: Partition, timeout_s: float) -> tuple[int, int]:
    """First offset and end of what a consumer with this isolation level may see.

    Waits for a leader: a new topic has none for a moment, and neither has one whose broker stops. Only for consumers
    that are not reading yet.
    """
    give_up_s = time.monotonic() + timeout_s
    while True:
        try:
            bounds = consumer.get_watermark_offsets(foreign(partition), timeout=timeout_s, cached=False)
        except KafkaException as exception:
            if exception.args[0].code() not in NO_LEADER_YET or time.monotonic() > give_up_s:
                raise
            consumer.poll(_LOOK_AGAIN_S)
        else:
            assert bounds is not None, "it raises when it has no answer"
            return bounds


def listed_offsets(
    admin: AdminClient, wanted: Mapping[TopicPartition, OffsetSpec], isolation: IsolationLevel, timeout_s: float
) -> dict[int, int]:
    """The offset that each partition of one topic has for its spec. Raises LEADER_NOT_AVAILABLE where one has no leader.

    Of such a partition the client gives an offset below 0, and no error.
    """
    futures = admin.list_offsets(dict(wanted), isolation_level=isolation, request_timeout=timeout_s)
    offsets = {tp.partition: future.result().offset for tp, future in futures.items()}
    if unknown := [number for number, offset in offsets.items() if offset < 0]:
        names = ", ".join(map(str, unknown))
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, f"no answer from partitions {names}"))
    return offsets


def raw_record(message: Message, topic_id: str | None = None, *, max_headers: int | None = None) -> RawRecord:
    """The message as a record of ours, of the topic with that id. Of more than `max_headers` headers none is kept."""
    offset = message.offset()
    assert offset is not None
    headers, omitted = headers_of(message), None
    if max_headers is not None and len(headers) > max_headers:
        size_bytes = sum([len(name.encode()) + len(value or b"") for name, value in headers])
        headers, omitted = (), OmittedHeaders(len(headers), size_bytes)
        message.set_headers([])  # the message lives as long as its neighbours of one poll, and would keep them
    return RawRecord(
        partition_of(message),
        offset,
        message.key(),
        message.value(),
        headers,
        _timestamp_s(message),
        topic_id,
        message.leader_epoch(),
        omitted_headers=omitted,
    )


def _timestamp_s(message: Message) -> float | None:
    """When it was published. Publishers without a clock write -1, which the client hands on as a time."""
    kind, timestamp_ms = message.timestamp()
    return plausible_timestamp_s(timestamp_ms / 1000, time.time()) if kind else None


def headers_of(message: Message) -> Headers:
    """As they came; none where a name is not UTF-8, which the client cannot give: it fails in an odd way.

    None either where there are more than 100,000: librdkafka then gives a message without headers, and no error, so that
    nothing tells it from one that never had any.
    """
    try:
        # The stub allows dicts as headers, the client gives pairs.
        return tuple(_read_headers(message) or ())
    except (SystemError, UnicodeDecodeError):
        where = f"{message.topic()}[{message.partition()}] offset {message.offset()}"
        log.warning("%s: its headers are left out, the name of one is not UTF-8", where)
        return ()


# Not `message.headers()`: the client gives a result and an exception at once, and a call that the interpreter has made fast
# for this place does not look for one. It would come up at whatever is called next.
_read_headers = methodcaller("headers")


def partition_of(message: Message) -> Partition:
    """Where a message or an event of the client's belongs; an event about everything belongs nowhere."""
    return _partition(message.topic() or "", message.partition() or 0)


@lru_cache(maxsize=1024)
def _partition(topic: str, number: int) -> Partition:
    """One object for all the records of a partition."""
    return Partition(topic, number)


def ours(tp: TopicPartition) -> Partition:
    """The client's partition as one of ours."""
    return Partition(tp.topic, tp.partition)


def foreign(partition: Partition) -> TopicPartition:
    """Our partition as one of the client's."""
    return TopicPartition(partition.topic, partition.number)


def operations_of(description: ConsumerGroupDescription | TopicDescription) -> frozenset[str] | None:
    """What the broker would let this client do (`WRITE`, `READ`, ...), where it was asked; None where it does not tell.

    One that shows a topic or group and allows nothing on it does not tell: to see it is a right, too.
    """
    return frozenset(operation.name for operation in description.authorized_operations or ()) or None
