"""Consumers that join no group: one loop that reads ranges of a topic. Only the source reads topics without it.

The caller decides what an error means: a command ends by it, a worker recovers. So the client's errors are raised
unmapped, and a `judge` is asked about errors that come as messages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, suppress
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from enricher.errors import FatalError
from enricher.worker.kafka.errors import ClientErrors, Complaint, broker_errors, new_client
from enricher.worker.kafka.metadata import answer_to, without_errors
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.runtime.deadlines import Deadline

Ranges = Mapping[int, tuple[int, int]]
"""Per partition the half-open range of offsets to read."""

Judge = Callable[[KafkaError], bool]
"""Judges an error among the messages. True: the caller gets it. False: it passes by itself. May raise."""

NO_END: Final = 2**63 - 1
"""The end of a range that is to be read for ever: more than any topic holds."""
END_OF_PARTITION = KafkaError._PARTITION_EOF  # noqa: SLF001  the client's name
POLL_S = 0.05
"""The longest time between two looks at a caller's bound."""
_LEADERS_S = 1.0
_LIMIT = 500
# The client looks up the group's coordinator although this consumer never joins: no right on the group is needed here.
_IGNORED = {KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.COORDINATOR_NOT_AVAILABLE}
_PROPERTIES = {
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    # Off by default in the client: a damaged batch that is not compressed would pass as data.
    "check.crcs": True,
    # If retention is faster than we read, continue with what is left.
    "auto.offset.reset": "earliest",
    # These count compressed bytes, which may decompress to thirty thousand times as much, so fetches are small.
    "fetch.message.max.bytes": 16_384,
    "fetch.max.bytes": 1_048_576,
    # 16 MiB per partition.
    "queued.max.messages.kbytes": 16_384,
    "fetch.queue.backoff.ms": 20,
    # An end is noticed when a fetch comes back empty, so an empty fetch must not wait long.
    "fetch.wait.max.ms": 50,
}


class PartitionReader:
    """Reads ranges of one topic at a time, each partition in order. For one thread. Raises the client's errors unmapped.

    `properties`: all of the client's, with `enable.partition.eof`. The constructor raises SettingsError if librdkafka
    rejects them. `left`: the end of each partition that is not finished. `positions`: the next offset of each partition.
    """

    def __init__(self, properties: Mapping[str, Any], client_errors: ClientErrors) -> None:
        self.consumer = new_client(Consumer, properties, client_errors)
        """The client, for questions about the topic, and for the errors that explain other errors."""
        self.left: dict[int, int] = {}
        self.positions: dict[int, int] = {}
        self._topic = ""
        self._sought: set[int] = set()

    def close(self) -> None:
        """Close the connection."""
        self.consumer.close()

    def read(
        self, topic: str, ranges: Ranges, judge: Judge, *, deadline: Deadline | None = None, limit: int = _LIMIT
    ) -> Iterator[Message | None]:
        """The records in `ranges`, ends of partitions, and errors that `judge` takes. None after each poll, for bounds.

        Ends when every partition has reached the end of its range or was finished by the caller, and at the deadline: then
        `left` is not empty. At most `limit` messages come between two polls, which block for `POLL_S` at most. A new read
        ends the one before.
        """
        self.left = {number: end for number, (start, end) in ranges.items() if start < end}
        self.positions = {number: start for number, (start, _) in ranges.items()}
        if not self.left:
            return
        if topic != self._topic:
            self._topic = topic
            # A client that knows the leaders reads at once; others look for them half a second later. If nobody answers,
            # what the client reports meets the caller's bounds.
            with suppress(KafkaException):
                self.consumer.list_topics(topic, _LEADERS_S if deadline is None else min(_LEADERS_S, deadline.left_s()))
        self.consumer.assign([TopicPartition(topic, number, self.positions[number]) for number in self.left])
        while self.left and not (deadline and deadline.over):
            self._sought.clear()
            for message in self._poll(limit, deadline):
                number, error = message.partition() or 0, message.error()
                if number in self._sought or self._is_finished(number):
                    continue  # the client had fetched it before
                at_end = error is not None and error.code() == END_OF_PARTITION
                if not (error is None or at_end or judge(error)) or number not in self.left:
                    continue
                offset = message.offset() or 0
                if error is not None or offset < self.left[number]:
                    yield message
                # Transaction markers occupy offsets, so the end may lie behind the last record: the client reports it.
                if (error is None or at_end) and number in self.left and number not in self._sought:
                    self._note_position(number, offset + (error is None))
            yield None
        self.consumer.unassign()

    def skip_to(self, number: int, offset: int) -> None:
        """Continue a partition at this offset."""
        self._sought.add(number)
        self._note_position(number, offset)
        if number in self.left:
            self.consumer.seek(TopicPartition(self._topic, number, offset))

    def finish(self, number: int) -> None:
        """Stop reading a partition: a live topic always has more."""
        if self.left.pop(number, None) is not None:
            self.consumer.incremental_unassign([TopicPartition(self._topic, number)])

    def _is_finished(self, number: int) -> bool:
        """Whether the number is that of a finished partition, rather than of an error about no partition."""
        return number in self.positions and number not in self.left

    def _note_position(self, number: int, position: int) -> None:
        self.positions[number] = position
        if position >= self.left[number]:
            self.finish(number)

    def _poll(self, limit: int, deadline: Deadline | None) -> list[Message]:
        """The next messages; waits for the first one only."""
        messages = self.consumer.consume(1, POLL_S if deadline is None else min(POLL_S, deadline.left_s()))
        if messages and limit > 1:
            messages += self.consumer.consume(limit - 1, 0)
        return messages


def lone_consumer(config: KafkaConfig, complaint: Complaint, properties: Mapping[str, Any]) -> Consumer:
    """A consumer that never commits by itself. Raises SettingsError if librdkafka rejects the properties."""
    return new_client(Consumer, _never_committing(config) | dict(properties), complaint)


def lone_reader(config: KafkaConfig, complaint: Complaint, properties: Mapping[str, Any]) -> PartitionReader:
    """Reads committed records only, unless `properties` say otherwise. Raises SettingsError as `lone_consumer` does."""
    return PartitionReader(_never_committing(config) | _PROPERTIES | dict(properties), complaint)


def committed_offsets(consumer: Consumer, tps: list[TopicPartition], timeout_s: float) -> list[TopicPartition]:
    """The offsets that the consumer's group has committed. Raises KafkaException, also for a missing right on the group.

    The client reports such a right only among the consumer's messages, and the call itself times out.
    """
    try:
        return without_errors(consumer.committed(tps, timeout=timeout_s))
    except KafkaException as exception:
        errors = [message.error() for message in consumer.consume(10, 0.1)]
        refused = (each for each in errors if each and each.code() == KafkaError.GROUP_AUTHORIZATION_FAILED)
        raise KafkaException(next(refused, exception.args[0])) from exception


def commit_as_outsider(config: KafkaConfig, complaint: Complaint, tps: list[TopicPartition]) -> None:
    """Commit offsets for a group without being a member of it, which the broker refuses as soon as it has some.

    Blocks for the request timeout at most. Raises FatalError if the group has members, BrokerError.
    """
    with (
        closing(lone_consumer(config, complaint, {})) as outsider,
        broker_errors(outsider, f"committing offsets of the group '{config.group_id}'", complaint),
    ):
        try:
            # The coordinator of a new group is not there at once.
            answer_to(lambda _: outsider.commit(offsets=tps, asynchronous=False), Deadline(config.request_timeout_s))
        except KafkaException as exception:
            if exception.args[0].code() != KafkaError.UNKNOWN_MEMBER_ID:
                raise
            message = (
                f"the group '{config.group_id}' has members: stop its workers (scale them to 0, or wait for a pause between "
                "two restarts; one that was killed leaves after kafka.session_timeout_s), then run this again"
            )
            raise FatalError(message) from exception


def may_pass(error: KafkaError, taken: Collection[int] = ()) -> bool:
    """The judge of a command's `PartitionReader`: takes the errors in `taken`, and passes over those that may go away.

    Raises KafkaException for an error that retrying cannot fix.
    """
    if error.code() in taken:
        return True
    if error.code() not in _IGNORED and (error.fatal() or not error.retriable()):
        raise KafkaException(error)
    return False


def _never_committing(config: KafkaConfig) -> dict[str, Any]:
    return config.client("consumer") | {"group.id": config.group_id, "enable.auto.commit": False}
