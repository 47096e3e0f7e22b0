"""Questions about topics that all Kafka clients ask, and how a message is read. Raises the client's errors unmapped."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from functools import lru_cache
from operator import methodcaller
from typing import Final, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
    Uuid,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from enricher.errors import BrokerError, MissingTopic
from enricher.worker.kafka.errors import DENIED
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.records import Headers, OmittedHeaders, Partition, RawRecord
from enricher.worker.runtime.deadlines import Deadline

log = logging.getLogger(__name__)

_ASK_AGAIN_S = 0.1
# Temporary states of a broker that the client does not mark as retriable: during an election a partition has no leader.
_TEMPORARY = {
    KafkaError._NOENT,  # noqa: SLF001  the client's name: "No leaders found", of none of the partitions that it was asked for
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}
_Answer = TypeVar("_Answer")
COORDINATOR_LIMIT_S: Final = 3_600.0
"""The time limit to give an AdminClient's request to the coordinator of a group: the longest that the client takes.

Wait for its answer as short as you like, and drop the client then. If its limit passes before the coordinator is found, and
the coordinator is found later, an assertion in rdkafka_queue.h aborts the process (librdkafka issue 4605, seen in 2.16).
"""
_NO_ID = 22 * "A"
"""The text of 16 zero bytes, which means that there is no id: taken for an id, all topics would have the same one."""
# Not `message.headers()`: the client sets both a result and an exception, and a call that the interpreter has specialised
# does not check for the exception. It would be raised by whatever is called next.
_read_headers = methodcaller("headers")
EARLIEST_S = 946_684_800.0
"""2000-01-01. Older than Kafka, so archives that are published with the times of their articles are mostly believed. Seconds
that were written as milliseconds give January 1970."""
AHEAD_S = 86_400.0
"""Tolerance for wrong clocks and time zones. Microseconds written as milliseconds are millennia ahead."""
_TIMEOUT_S = 3.0  # it delays the start
_SETTING = "max.message.bytes"


def answer_to(question: Callable[[float], _Answer], deadline: Deadline, later: Collection[int] = ()) -> _Answer:
    """Ask again on temporary errors and on errors in `later`. The question is given the seconds left."""
    while True:
        try:
            return question(max(_ASK_AGAIN_S, deadline.left_s()))
        except KafkaException as exception:
            error = exception.args[0]
            temporary = error.retriable() or error.code() in _TEMPORARY or error.code() in later
            if not temporary or deadline.left_s() < _ASK_AGAIN_S:
                raise
        time.sleep(_ASK_AGAIN_S)


def partitions_of(client: Consumer | Producer, topic: str, timeout_s: float) -> list[Partition]:
    """The partitions of a topic, in order. Raises MissingTopic if there is no such topic."""
    metadata = client.list_topics(topic, timeout=timeout_s).topics[topic]
    if metadata.error:
        if metadata.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise MissingTopic(no_such_topic(topic))
        # The client's own error does not name the topic.
        raise KafkaException(KafkaError(metadata.error.code(), f"the topic '{topic}': {metadata.error.str()}"))
    return [Partition(topic, number) for number in sorted(metadata.partitions)]


def no_such_topic(topic: str) -> str:
    """The message for a topic that the broker does not know, with the command that creates it."""
    return f"there is no topic '{topic}': create it ('enricher topics create') or name the right one"


def bounds_of(consumer: Consumer, partition: Partition, timeout_s: float) -> tuple[int, int]:
    """The first offset, and the end of what a consumer with this isolation level may see.

    Waits for a leader, which a new topic does not have at once.
    """

    def ask(left_s: float) -> tuple[int, int]:
        bounds = consumer.get_watermark_offsets(foreign(partition), timeout=left_s, cached=False)
        assert bounds is not None, "it raises when it has no answer"
        return bounds

    return answer_to(ask, Deadline(timeout_s))


def offsets_at_time(
    consumer: Consumer, topic: str, numbers: Sequence[int], time_s: float, timeout_s: float
) -> dict[int, int | None]:
    """The offset of the first record with this timestamp or a later one; None if the partition has none.

    `time_s`: seconds since the epoch.
    """
    time_ms = max(0, int(time_s * 1000))  # those below 0 mean something else to the broker, such as the end
    asked = [TopicPartition(topic, number, time_ms) for number in numbers]
    found = without_errors(consumer.offsets_for_times(asked, timeout=timeout_s))
    return {each.partition: each.offset if each.offset >= 0 else None for each in found}


def listed_offsets(
    admin: AdminClient, wanted: Mapping[TopicPartition, OffsetSpec], isolation: IsolationLevel, timeout_s: float
) -> dict[Partition, int]:
    """The offset of each partition for its spec. Raises KafkaException: LEADER_NOT_AVAILABLE if a partition has no leader.

    For a partition without a leader the client returns an offset below 0, and no error.
    """
    futures = admin.list_offsets(dict(wanted), isolation_level=isolation, request_timeout=timeout_s)
    offsets = {ours(tp): result_of(future, timeout_s).offset for tp, future in futures.items()}
    if unknown := [partition.number for partition, offset in offsets.items() if offset < 0]:
        names = ", ".join(map(str, unknown))
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, f"no answer from partitions {names}"))
    return offsets


def result_of(answer: Future[_Answer], timeout_s: float) -> _Answer:
    """The answer to a question of an admin client, which was given that time. Raises the client's errors.

    Waits at most twice that long, because the client does not always keep its own bound.
    """
    try:
        return answer.result(2 * timeout_s)
    except TimeoutError as error:
        message = f"no answer within {2 * timeout_s:g} s"
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, message)) from error  # noqa: SLF001  the client's name


def settings_of(admin: AdminClient, topic: str, timeout_s: float) -> dict[str, str] | None:
    """Kafka's settings of a topic; None without the right DescribeConfigs."""
    [answer] = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)], request_timeout=timeout_s).values()
    try:
        entries = result_of(answer, timeout_s)
    except KafkaException as exception:
        if exception.args[0].code() in DENIED:
            return None
        raise
    return {entry.name: entry.value for entry in entries.values() if entry.value is not None}


def message_limits(client: AdminClient, config: KafkaConfig) -> Mapping[str, int]:
    """`max.message.bytes` of the output topics; unknown ones are left out. Blocks for at most 6 s each; raises nothing.

    Asked once, when the worker starts: without an answer the settings apply. A limit that is lowered later shows when a
    batch is refused, and a restart asks again.
    """
    found: dict[str, int] = {}
    timeout_s = min(_TIMEOUT_S, config.request_timeout_s)
    for topic in dict.fromkeys((config.output_topic, config.dead_letter_topic)):
        try:
            settings = settings_of(client, topic, timeout_s)
        except KafkaException as exception:
            log.warning("no answer about %s of '%s': %s", _SETTING, topic, exception.args[0].str())
            continue
        if settings is not None:
            found[topic] = int(settings[_SETTING])
        else:
            log.info(
                "not allowed to read %s of '%s' (that needs DESCRIBE_CONFIGS): using articles.max_record_bytes and "
                "articles.max_dead_letter_bytes",
                _SETTING, topic,
            )  # fmt: skip
    return found


def without_errors(tps: list[TopicPartition]) -> list[TopicPartition]:
    """The client's answer for several partitions. Raises KafkaException if it holds an error for one of them."""
    if error := next((tp.error for tp in tps if tp.error), None):
        raise KafkaException(error)
    return tps


def topic_id_text(topic_id: Uuid | None) -> str:
    """A topic's id as Kafka's own tools print it: URL-safe base64, 22 characters. Raises BrokerError if it has none.

    A topic that is deleted and created again has the same name and another id.
    """
    text = str(topic_id or _NO_ID).replace("+", "-").replace("/", "_").rstrip("=")
    if text == _NO_ID:
        raise BrokerError("the brokers give topics no ids: Apache Kafka 3.7 or newer is needed")
    return text


def topic_id_of(admin: AdminClient, topic: str, timeout_s: float) -> str:
    """The id of a topic. Raises UNKNOWN_TOPIC_OR_PART if there is no such topic, BrokerError if it has no id."""
    answer = admin.describe_topics(TopicCollection([topic]), request_timeout=timeout_s)[topic]
    return topic_id_text(result_of(answer, timeout_s).topic_id)


def raw_record(message: Message, topic_id: str | None = None, *, max_headers: int | None = None) -> RawRecord:
    """The message as a record of the topic with that id. If it has more than `max_headers` headers, none is kept."""
    offset = message.offset()
    assert offset is not None
    headers, omitted = headers_of(message), None
    if max_headers is not None and len(headers) > max_headers:
        size_bytes = sum([len(name.encode()) + len(value or b"") for name, value in headers])
        headers, omitted = (), OmittedHeaders(len(headers), size_bytes)
        message.set_headers([])  # the message lives as long as the others of its poll, and would keep them in memory
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
    """The publication time. Publishers without a clock write -1, which the client returns as a time."""
    kind, timestamp_ms = message.timestamp()
    return plausible_timestamp_s(timestamp_ms / 1000, time.time()) if kind else None


def headers_of(message: Message) -> Headers:
    """The headers in order; none if a name is not UTF-8, for which the client fails with an odd error.

    Also none if there are more than 100,000: librdkafka then returns a message without headers and without an error, as if
    it had never had any.
    """
    try:
        # The stub allows dicts as headers, the client gives pairs.
        return tuple(_read_headers(message) or ())
    except (SystemError, UnicodeDecodeError):
        where = f"{message.topic()}[{message.partition()}] offset {message.offset()}"
        log.warning("%s: its headers are left out, the name of one is not UTF-8", where)
        return ()


def partition_of(message: Message) -> Partition:
    """The partition of a message or event; an event about no partition has the topic `""` and the number 0."""
    return _partition(message.topic() or "", message.partition() or 0)


@lru_cache(maxsize=1024)
def _partition(topic: str, number: int) -> Partition:
    """The partition, as one object for all of its records."""
    return Partition(topic, number)


def ours(tp: TopicPartition) -> Partition:
    """The client's partition type as ours."""
    return Partition(tp.topic, tp.partition)


def foreign(partition: Partition) -> TopicPartition:
    """Our partition type as the client's."""
    return TopicPartition(partition.topic, partition.number)


def plausible_timestamp_s(timestamp_s: float, now_s: float) -> float | None:
    """The timestamp, in seconds since the epoch as `now_s` is; None if the publisher cannot have meant it.

    Publishers write 0, seconds instead of milliseconds, or the time of a clock that was never set. The age of such a record
    would be decades, or negative for ever, and autoscaling and alerts would be wrong. So its age is unknown.
    """
    return timestamp_s if EARLIEST_S <= timestamp_s <= now_s + AHEAD_S else None
