"""Writes articles to the input topic: what `enricher publish` needs of Kafka. The worker writes through `sink` alone.

Counts what the broker acknowledges and what it refuses; never decides what an article is.
"""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from enricher.errors import BrokerError
from enricher.kafka.client import KafkaConfig
from enricher.kafka.errors import constructing
from enricher.kafka.quiet import ClientLog, Complaint, broker_errors, silenced

# A load tool fills batches: a little lingering, and a queue that holds no more than this much memory.
# What Java clients use as partitioner, so that a key stays on its partition whoever writes it.
_BULK = {
    "compression.type": "lz4",
    "linger.ms": 20,
    "partitioner": "murmur2_random",
    "queue.buffering.max.kbytes": 65_536,
}
_LOST_AFTER_MS = 60_000  # the client's own 5 minutes are long for somebody who waits at a terminal


class Publisher:
    """An idempotent producer for `topic` with acks=all, or a transactional one where an id is given.

    `delivered`, `delivered_bytes` (of values): what the broker acknowledged. `failures`: how often it, or the
    client, gave which reason. Raises SettingsError where librdkafka does not take the properties.
    """

    def __init__(self, config: KafkaConfig, topic: str, *, transactional_id: str | None = None) -> None:
        self._topic = topic
        self._request_timeout_s = config.request_timeout_s
        self._transaction_timeout_s = config.transaction_timeout_s
        self._transactional = transactional_id is not None
        self._complaint = Complaint()
        with constructing():
            properties = _properties(config, transactional_id)
            self._producer = Producer(silenced(properties, self._complaint), logger=ClientLog().logger)
        self.delivered = 0
        self.delivered_bytes = 0
        self.failures: Counter[str] = Counter()

    def open(self) -> None:
        """Begin. Raises BrokerError where the broker, the topic or a right is missing."""
        with self._asking("opening a producer"):
            # All topics: to ask for one by name may create it.
            topics = self._producer.list_topics(timeout=self._request_timeout_s).topics
            if self._topic not in topics:
                message = (
                    f"there is no topic '{self._topic}': create it ('enricher topics create') or name the right one"
                )
                raise BrokerError(message)
            if self._transactional:
                self._producer.init_transactions(2 * self._transaction_timeout_s)
                self._producer.begin_transaction()

    def send(self, key: bytes | None, value: bytes) -> None:
        """Hand a record to the client; blocks while its queue is full. A refusal is counted, not raised."""
        while True:
            try:
                self._producer.produce(self._topic, value, key, on_delivery=self._note)
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as exception:
                self._fail(exception.args[0])
                return
            else:
                self._producer.poll(0)
                return

    def wait(self, seconds: float) -> None:
        """Let time pass for at most `seconds`, while the client works."""
        self._producer.poll(seconds)

    def commit(self) -> None:
        """End the transaction and begin the next one. Raises BrokerError; then nothing of it is visible."""
        with self._asking("committing a transaction"):
            self._producer.commit_transaction(2 * self._transaction_timeout_s)
            self._producer.begin_transaction()

    def drain(self, timeout_s: float) -> int:
        """Wait for acknowledgements; returns how many records still have no answer."""
        return self._producer.flush(timeout_s)

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._fail(error)
            return
        self.delivered += 1
        self.delivered_bytes += len(message.value() or b"")

    def _fail(self, error: KafkaError) -> None:
        self.failures[self._complaint.explain(error)] += 1

    def _asking(self, doing: str) -> AbstractContextManager[None]:
        return broker_errors(self._producer, doing, self._complaint)


def _properties(config: KafkaConfig, transactional_id: str | None) -> dict[str, Any]:
    """The user's own win over what makes bulk sending comfortable. Never the worker's id: that would fence a worker."""
    settings = {
        **_BULK,
        "message.max.bytes": config.max_message_bytes,
        **config.client("producer"),
        "acks": "all",
        "enable.idempotence": True,
    }
    if transactional_id is None:
        return {"message.timeout.ms": _LOST_AFTER_MS, **settings}
    timeout_ms = int(config.transaction_timeout_s * 1000)
    return settings | {"transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms}
