"""Writes records to the input topic, each batch in one transaction with offsets of the dead-letter topic.

All redrives of a group share one transactional id, so a newer one fences an older one, and the offsets need no member of the
group to guard them. A transaction of unknown outcome ends the run: the next one has a new producer, which ends the
transaction first, and then finds in the input what it sent.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from enricher.errors import BrokerError, EnricherError, Fenced, ProducerFenced, RecoveryExhausted, TransactionTrouble
from enricher.worker.kafka.errors import Complaint, mapping_errors, new_client
from enricher.worker.kafka.metadata import topic_id_of
from enricher.worker.kafka.partition_reader import lone_consumer
from enricher.worker.kafka.producers import CLOSE_WAIT_S, UnfencedProducer, close_in_background, opened_producer
from enricher.worker.kafka.properties import KafkaConfig, transactional_id
from enricher.worker.kafka.sink import MARKERS_S
from enricher.worker.kafka.transaction import Stopwatch
from enricher.worker.rules.commit_metadata import CommitMetadata
from enricher.worker.runtime.watchdog import Guard

log = logging.getLogger(__name__)

_QUEUE_FULL_WAIT_S = 0.05
_REFUSALS = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_RECORD}
"""The errors by which the broker refuses a record, or a batch of records, for good."""


@dataclass(frozen=True, slots=True, eq=False)
class Outgoing:
    """A record for a partition of the input topic."""

    number: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]]


class RefusedRecords(TransactionTrouble):
    """The broker refuses one of the records for good; it does not always say which."""


Check = Callable[[Mapping[int, int]], None]
"""Called inside a transaction with the offset of our first record in each partition. May raise TransactionTrouble."""


class Sender:
    """Makes the transactions. `group_id`: of the redrive; its offsets are those of the dead-letter topic.

    `topic_ids`: of the input and of the dead-letter topic, when they were read. `guard`: ends the process if a transaction
    hangs.
    """

    def __init__(
        self,
        config: KafkaConfig,
        group_id: str,
        *,
        topic_ids: Mapping[str, str | None],
        guard: Guard,
        producer_class: type[Producer] = Producer,
    ) -> None:
        self._config = config
        self._group_id = group_id
        self._topic_ids = topic_ids
        self._guard = guard
        self._producer_class = producer_class
        self._complaint = Complaint()
        group = replace(config, group_id=group_id)
        self._consumer = lone_consumer(group, self._complaint, {})
        self._admin = new_client(AdminClient, config.client("admin"), self._complaint)
        self._producer: Producer | None = None
        self._ended_s = -math.inf
        self._unfenced = UnfencedProducer()

    def open(self) -> None:
        """End the transaction of an earlier redrive, and fence it. Raises TransactionTrouble, BrokerError."""
        self._producer = self._new_producer()

    def send(self, batch: Sequence[Outgoing], offsets: Mapping[int, int], check: Check) -> None:
        """Write the batch and commit the offsets, all or nothing.

        `check` raises a TransactionTrouble to have nothing written. Raises Overtaken and RefusedRecords, after which nothing
        is written, and it may be called again; Fenced, BrokerError, and RecoveryExhausted for any other failure.
        """
        try:
            if self._producer is None:
                self.open()
            with self._guard("a redrive's transaction", 4 * self._config.transaction_timeout_s):
                self._run(batch, offsets, check)
        except (RefusedRecords, Overtaken):
            raise
        except ProducerFenced as fenced:
            raise Fenced(
                f"another redrive of the group '{self._group_id}' has begun, and goes on, or the broker has ended a slow "
                "transaction. This one ends; nothing is lost or doubled. If no other is running, run it again"
            ) from fenced
        except TransactionTrouble as trouble:
            message = f"a transaction failed: {trouble}. Run it again: it goes on, and nothing is lost or doubled"
            raise RecoveryExhausted(message) from trouble

    def close(self) -> None:
        """Close the clients, within a bound. An open transaction is aborted, or readers would wait for its timeout."""
        closing = threading.Thread(target=self._close, name="close-sender", daemon=True)
        closing.start()
        closing.join(CLOSE_WAIT_S)

    def _new_producer(self) -> Producer:
        own = {
            "transactional.id": transactional_id(self._config.group_id, "dead-letters", "redrive"),
            # The reports say at which offsets the records are.
            "delivery.report.only.error": False,
            # Nothing is sent before `flush`, so a partition's records are one batch, without those of others between them.
            "linger.ms": int(self._config.transaction_timeout_s * 500),
            "batch.size": 1_000_000,
            "message.max.bytes": 1_000_000_000,  # the broker decides how large a record may be
        }
        with self._unfenced.fenced_by_a_new_one():
            return opened_producer(
                self._config.producer() | own,
                self._complaint,
                2 * self._config.transaction_timeout_s,
                learn=lambda opened: opened.list_topics(timeout=self._config.request_timeout_s),
                kind=self._producer_class,
            )

    def _run(self, batch: Sequence[Outgoing], offsets: Mapping[int, int], check: Check) -> None:
        """One transaction. Whatever it raises, only a new producer ends the transaction."""
        producer, self._producer = self._producer, None
        assert producer is not None, "opened before"
        if not batch:
            time.sleep(max(0.0, self._ended_s + MARKERS_S - time.monotonic()))
        try:
            with mapping_errors(f"a transaction on '{self._config.input_topic}'", self._complaint, producer):
                slow = self._transaction(producer, batch, offsets, check)
        except BaseException:
            self._unfenced.put(producer)
            raise
        self._ended_s = time.monotonic()
        if slow:  # a late repeat of one of its requests must meet a newer epoch
            log.info("%s: continuing with a new producer", slow)
            self._unfenced.put(producer)
        else:
            self._producer = producer

    def _transaction(
        self, producer: Producer, batch: Sequence[Outgoing], offsets: Mapping[int, int], check: Check
    ) -> str | None:
        """Begin, produce, flush, check, send offsets, commit. Returns a step that was too slow, if one was."""
        timeout_s, steps = self._config.transaction_timeout_s, Stopwatch(self._config.retry_pause_s)
        producer.begin_transaction()
        if batch:
            try:
                firsts = self._produce(producer, batch)
            except KafkaException as exception:
                if exception.args[0].code() == KafkaError._PURGE_QUEUE:  # noqa: SLF001  the client's name
                    self._send_offsets(producer, offsets)  # raises why the client has given the records up
                raise
            steps.done("produce")
            check(firsts)
            for topic, known in self._topic_ids.items():
                if topic_id_of(self._admin, topic, timeout_s / 4) != known:
                    raise BrokerError(f"the topic '{topic}' was deleted and created again meanwhile: redrive once more")
            steps.restart()
        self._send_offsets(producer, offsets)
        steps.done("send_offsets")
        producer.commit_transaction(timeout_s)
        steps.done("commit")
        return steps.slow

    def _send_offsets(self, producer: Producer, offsets: Mapping[int, int]) -> None:
        topic = self._config.dead_letter_topic
        beside = CommitMetadata(self._topic_ids[topic]).encode()
        tps = [TopicPartition(topic, number, at, metadata=beside) for number, at in offsets.items()]
        metadata, timeout_s = self._consumer.consumer_group_metadata(), self._config.transaction_timeout_s
        producer.send_offsets_to_transaction(tps, metadata, timeout_s)

    def _produce(self, producer: Producer, batch: Sequence[Outgoing]) -> dict[int, int]:
        """Write the records; returns the offset of the first in each partition."""
        reports, waiting, topic = _Reports(), deque(batch), self._config.input_topic
        unacknowledged = len(batch)
        try:
            while waiting:
                record = waiting[0]
                headers, number = record.headers, record.number
                try:
                    producer.produce(
                        topic, record.value, record.key, headers=headers, partition=number, on_delivery=reports
                    )
                    waiting.popleft()
                except BufferError:  # the client's queue is full
                    producer.poll(_QUEUE_FULL_WAIT_S)
            unacknowledged = producer.flush(self._config.transaction_timeout_s)
        except SystemError as error:  # seen with a producer that was fenced meanwhile: its next call says why
            producer.begin_transaction()
            raise TransactionTrouble("the client lost the reason why it could not write") from error
        except KafkaException as exception:
            reports.errors.append(exception.args[0])
        if refused := [error for error in reports.errors if error.code() in _REFUSALS]:
            raise RefusedRecords(self._complaint.explain(refused[0]))
        if reports.errors:
            raise KafkaException(reports.errors[0])
        if unacknowledged:
            raise TransactionTrouble(f"{unacknowledged} of {len(batch)} records were not acknowledged in time")
        return reports.firsts()

    def _close(self) -> None:
        if self._unfenced:
            with suppress(EnricherError):  # then the next redrive ends the transaction, or its timeout does
                self.open()
        if self._producer is not None:
            close_in_background(self._producer).join()
        self._consumer.close()


class Overtaken(TransactionTrouble):
    """A newer record of a key came between the last look at the input and our record."""


class _Reports:
    """Takes the delivery reports of one transaction."""

    def __init__(self) -> None:
        self.errors: list[KafkaError] = []
        self._offsets: dict[int, list[int]] = {}

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self._offsets.setdefault(message.partition() or 0, []).append(message.offset() or 0)

    def firsts(self) -> dict[int, int]:
        """The first offset in each partition. Raises TransactionTrouble if others wrote between our records."""
        for number, offsets in self._offsets.items():
            if max(offsets) - min(offsets) + 1 != len(offsets):
                raise TransactionTrouble(f"others wrote between our records in partition {number}")
        return {number: min(offsets) for number, offsets in self._offsets.items()}
