"""The clients of one trial: configured like the worker's, with their own partition, group and transactional ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from enricher.errors import BrokerError
from enricher.worker.kafka.errors import Complaint, new_client
from enricher.worker.kafka.metadata import without_errors
from enricher.worker.kafka.producers import short_lived_producer
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.runtime.deadlines import Deadline

CALL_S = 15.0
"""Timeout of one call of a client."""
OPEN_S = 30.0
"""Timeout of transactions that a trial ends itself: long enough for it, and short if the process dies."""
_SESSION_MS = 10_000
_POLL_S = 0.05
METADATA = "enricher/1 topic-id=AAAAAAAAAAAAAAAAAAAAAQ attempts=2 alone=1 " + "x" * 160
"""A text as a worker commits with an offset, with room for longer ones."""
LEADER_EPOCH = 0
_KEY = b"enricher-doctor"  # a cluster may refuse records without a key


@dataclass(frozen=True, slots=True)
class Outcome:
    """Tells what was seen, and whether the promise holds; None if it could not be tried."""

    holds: bool | None
    seen: str


@dataclass
class Clients:
    """Creates clients and uses them. Raises the client's errors unmapped, and blocks for at most `CALL_S` unless told else.

    `topic` to `ids`: a trial's own partition, group, and prefix of transactional ids.
    """

    config: KafkaConfig
    topic: str
    number: int
    group: str
    ids: str
    complaint: Complaint = field(default_factory=Complaint)

    @contextmanager
    def producer(self, name: str = "first", timeout_s: float = OPEN_S) -> Iterator[Producer]:
        """An initialised transactional producer. It fences the previous one of the same name. Raises our errors."""
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
        properties = self.config.consumer() | {
            "group.id": self.group,
            "session.timeout.ms": _SESSION_MS,
            "isolation.level": isolation,
            "allow.auto.create.topics": False,
        }
        with closing(new_client(Consumer, properties, self.complaint)) as consumer:
            yield consumer

    def partition(self, offset: int = -1001) -> TopicPartition:
        """The trial's partition, as the client's type."""
        return TopicPartition(self.topic, self.number, offset)

    def values(self, until: str, *, limit_s: float = CALL_S, stay_s: float = 0) -> list[str]:
        """The partition's committed records from its beginning until this value, and those that come `stay_s` later."""
        found: list[str] = []
        with self.consumer() as consumer:
            consumer.assign([self.partition(0)])

            def read() -> bool:
                while message := consumer.poll(_POLL_S):
                    if not (error := message.error()):
                        found.append((message.value() or b"").decode(errors="replace"))
                    else:
                        _raise_if_lasting(error)  # reading needs no right on the group
                return until in found

            if self.wait(read, limit_s) and stay_s:
                self.wait(lambda: not read(), stay_s)
        return found

    def write(self, producer: Producer, *values: str) -> None:
        """Write records in the open transaction, and wait for the acknowledgements."""
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
            raise BrokerError(f"a record was not acknowledged within {CALL_S:.0f} s")

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
        proof = self.no_member() if membership is None else membership
        sent = TopicPartition(self.topic, self.number, offset, METADATA, LEADER_EPOCH)
        producer.send_offsets_to_transaction([sent], proof, CALL_S)

    def no_member(self) -> bytes:
        """Group metadata of a consumer that has not joined, so that the broker checks no generation."""
        with self.consumer() as consumer:
            return membership_of(consumer)

    def committed_offset(self, consumer: Consumer, timeout_s: float = CALL_S) -> TopicPartition:
        """The committed offset of the trial's group. A `read_committed` consumer waits for open transactions."""
        [found] = without_errors(consumer.committed([self.partition()], timeout=timeout_s))
        return found

    def wait(self, done: Callable[[], bool], timeout_s: float, consumers: Sequence[Consumer] = ()) -> bool:
        """Poll the consumers in turn until `done`; False after `timeout_s`."""
        deadline = Deadline(timeout_s)
        while not done():
            if deadline.over:
                return False
            for consumer in consumers:
                if (message := consumer.poll(_POLL_S)) and (error := message.error()):
                    _raise_if_lasting(error, KafkaError.GROUP_AUTHORIZATION_FAILED)
        return True


def membership_of(consumer: Consumer) -> bytes:
    """The consumer's current group metadata, with member id and generation."""
    metadata: bytes = consumer.consumer_group_metadata()
    return metadata


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


def _raise_if_lasting(error: KafkaError, *refusals: int) -> None:
    """Raise errors about rights and fatal ones; the consumer retries after all others."""
    if error.fatal() or error.code() in {KafkaError.TOPIC_AUTHORIZATION_FAILED, *refusals}:
        raise KafkaException(error)
