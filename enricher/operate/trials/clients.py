"""The clients of one trial: configured like the worker's, with their own partition, group and transactional ids."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from enricher.errors import BrokerError
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.kafka.shared.client_errors import Complaint, new_client
from enricher.worker.kafka.shared.metadata import bounds_of, ours, without_errors
from enricher.worker.kafka.shared.partition_reader import NO_END, PartitionReader
from enricher.worker.kafka.shared.producers import short_lived_producer
from enricher.worker.runtime.deadlines import Deadline

CALL_S = 15.0
"""Timeout of one call of a client."""
_OPEN_S = 30.0
"""Timeout of transactions that a trial ends itself: long enough for it, and short if the process dies."""
_SESSION_S = 10.0
"""A member that is stopped while it joins does not leave, and its group is deleted when its session has expired."""
_KEY = b"enricher-doctor"  # a cluster may refuse records without a key


@dataclass(frozen=True, slots=True)
class Outcome:
    """Tells what was seen, and whether the promise holds; None if it could not be tried."""

    holds: bool | None
    seen: str


@dataclass
class Clients:
    """Creates clients and uses them. Raises the client's errors unmapped, and blocks for at most `CALL_S`.

    After `stop` BrokerError is raised instead of anything that the broker would keep.

    `topic` to `ids`: a trial's own partition, group, and prefix of transactional ids. `stop`: set from outside when the
    trial's result is no longer needed.
    """

    config: KafkaConfig
    stop: threading.Event
    topic: str
    number: int
    group: str
    ids: str
    complaint: Complaint = field(default_factory=Complaint)

    @contextmanager
    def producer(self, name: str = "first", timeout_s: float = _OPEN_S) -> Iterator[Producer]:
        """An initialised transactional producer. It fences the previous one of the same name. Raises our errors."""
        self._go_on()
        timeout_ms = int(timeout_s * 1000)
        properties = self.config.producer() | {
            "transactional.id": f"{self.ids}-{name}",
            "transaction.timeout.ms": timeout_ms,
            # The client refuses to wait for longer than the transaction lasts.
            "message.timeout.ms": timeout_ms,
            "socket.timeout.ms": min(10_000, timeout_ms),
            # A deleted topic must not be created again.
            "allow.auto.create.topics": False,
        }
        with short_lived_producer(properties, self.complaint, CALL_S, metadata_timeout_s=CALL_S) as producer:
            yield producer

    @contextmanager
    def consumer(self, isolation: str = "read_committed") -> Iterator[Consumer]:
        """A consumer of the trial's group, which it joins only if it subscribes."""
        self._go_on()
        with closing(new_client(Consumer, self._consumer_properties(isolation), self.complaint)) as consumer:
            yield consumer

    @contextmanager
    def reader(self, isolation: str = "read_committed") -> Iterator[Reader]:
        """Reads the trial's partition from its beginning."""
        self._go_on()
        with closing(PartitionReader(self._consumer_properties(isolation), self.complaint)) as reader:
            yield Reader(self, reader)

    def partition(self, offset: int = -1001) -> TopicPartition:
        """The trial's partition, as the client's type."""
        return TopicPartition(self.topic, self.number, offset)

    def write(self, producer: Producer, *values: str) -> None:
        """Write records in the open transaction, and wait for the acknowledgements."""
        self._go_on()
        failed: list[KafkaError] = []

        def note(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failed.append(error)

        for value in values:
            producer.produce(self.topic, value.encode(), _KEY, partition=self.number, on_delivery=note)
        unsent = producer.flush(CALL_S)
        if failed:
            raise KafkaException(failed[0])
        if unsent:
            message = f"a record was not acknowledged within {CALL_S:.0f} s"
            raise BrokerError(message)

    def write_and_commit(
        self, producer: Producer, *values: str, offset: int | None = None, membership: bytes | None = None
    ) -> None:
        """One whole transaction: records, an offset (see `send_offset`), or both."""
        producer.begin_transaction()
        self.write(producer, *values)
        if offset is not None:
            self.send_offset(producer, offset, membership)
        producer.commit_transaction(CALL_S)

    def send_offset(self, producer: Producer, offset: int, membership: bytes | None = None) -> None:
        """Send an offset of the trial's group in the open transaction; without `membership`, not as a member."""
        self._go_on()
        proof = self.no_member() if membership is None else membership
        producer.send_offsets_to_transaction([self.partition(offset)], proof, CALL_S)

    def no_member(self) -> bytes:
        """Group metadata of a consumer that has not joined, so that the broker checks no generation."""
        with self.consumer() as consumer:
            return self.membership(consumer)

    def membership(self, consumer: Consumer) -> bytes:
        """The consumer's current group metadata, with member id and generation."""
        metadata: bytes = consumer.consumer_group_metadata()
        return metadata

    def committed_offset(self, consumer: Consumer, timeout_s: float = CALL_S) -> TopicPartition:
        """The committed offset of the trial's group. A `read_committed` consumer waits for open transactions."""
        [found] = without_errors(consumer.committed([self.partition()], timeout=timeout_s))
        return found

    def wait(self, done: Callable[[], bool], timeout_s: float, consumers: Sequence[Consumer] = ()) -> bool:
        """Poll the consumers in turn until `done`; False after `timeout_s`."""
        deadline = Deadline(timeout_s)
        while not done():
            self._go_on()
            if deadline.over:
                return False
            for consumer in consumers:
                if (message := consumer.poll(0.05)) and (error := message.error()):
                    _passes(error, KafkaError.GROUP_AUTHORIZATION_FAILED)
            if not consumers:
                time.sleep(0.05)
        return True

    def _consumer_properties(self, isolation: str) -> dict[str, Any]:
        return self.config.consumer() | {
            "group.id": self.group,
            "session.timeout.ms": int(_SESSION_S * 1000),
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
        }

    def _go_on(self) -> None:
        if self.stop.is_set():
            raise BrokerError("it was interrupted")


class Reader:
    """The records of a trial's partition, in order, as one consumer sees them."""

    def __init__(self, clients: Clients, reader: PartitionReader) -> None:
        self._clients = clients
        self._consumer = reader.consumer
        self._messages = reader.read(clients.topic, {clients.number: (0, NO_END)}, _passes)
        self._at_end = False
        self.values: list[str] = []

    @property
    def end(self) -> int:
        """The end for this consumer: the last stable offset if it is `read_committed`, else the end offset."""
        return bounds_of(self._consumer, ours(self._clients.partition()), CALL_S)[1]

    def read_until(self, value: str, timeout_s: float = CALL_S) -> bool:
        """Read until a record of this value has come; False after `timeout_s`."""
        return self._read(lambda: value in self.values, timeout_s)

    def read_to_end(self, and_for_s: float) -> None:
        """Read until the consumer reports the end, and for some seconds more to see whether records follow."""
        self._read(lambda: self._at_end, CALL_S)
        watched = Deadline(and_for_s)
        self._read(lambda: self._at_end and watched.over, and_for_s + CALL_S)

    def _read(self, enough: Callable[[], bool], timeout_s: float) -> bool:
        def done() -> bool:
            if message := next(self._messages):
                self._at_end = message.error() is not None
                if not self._at_end:
                    self.values.append((message.value() or b"").decode(errors="replace"))
            return enough()

        return self._clients.wait(done, timeout_s)


def refusal(call: Callable[[], object]) -> str | None:
    """The name of the error with which `call` was refused; None if it was accepted.

    Raises errors that are neither, because another attempt may succeed: timeouts above all.
    """
    try:
        call()
    except KafkaException as exception:
        error: KafkaError = exception.args[0]
        if error.retriable():
            raise
        return error.name()
    return None


def _passes(error: KafkaError, *refusals: int) -> bool:
    """Raise errors about rights and fatal ones; the consumer retries after all others."""
    if error.fatal() or error.code() in {KafkaError.TOPIC_AUTHORIZATION_FAILED, *refusals}:
        raise KafkaException(error)
    return False
