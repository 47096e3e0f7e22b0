"""Writes articles to the input topic for `enricher publish`. The worker itself writes only through `sink`.

Counts acknowledged and refused records. Does not know what an article is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from enricher.errors import BrokerError
from enricher.worker.kafka.errors import Complaint, broker_errors, mapping_errors, new_client, without_recovery
from enricher.worker.kafka.metadata import no_such_topic
from enricher.worker.kafka.producers import opened_producer
from enricher.worker.kafka.properties import KafkaConfig

# For throughput: some lingering to fill batches, and a queue of bounded memory. The partitioner is the Java clients'
# default, so a key stays on its partition whichever client writes it.
_BULK = {
    "compression.type": "lz4",
    "linger.ms": 20,
    "partitioner": "murmur2_random",
    "queue.buffering.max.kbytes": 65_536,
}
_LOST_AFTER_MS = 60_000  # the client's default of 5 minutes is long for a person at a terminal


class Publisher:
    """An idempotent producer for `topic` with acks=all, or a transactional one where an id is given.

    `delivered`, `delivered_bytes` (of values): what the broker acknowledged. `failures`: refusals of the broker or the
    client, by reason. The constructor connects: it raises BrokerError if the broker does not answer, or the topic or a right
    is missing, and SettingsError if librdkafka does not accept the properties.
    """

    def __init__(self, config: KafkaConfig, topic: str, *, transactional_id: str | None = None) -> None:
        self._topic = topic
        self._request_timeout_s = config.request_timeout_s
        self._transaction_timeout_s = config.transaction_timeout_s
        self._complaint = Complaint()
        properties = _properties(config, transactional_id)
        with without_recovery():
            self._producer = (
                self._open(properties) if transactional_id is None else self._opened_for_transactions(properties)
            )
        self.delivered = 0
        self.delivered_bytes = 0
        self.failures: Counter[str] = Counter()

    def send(self, key: bytes | None, value: bytes | None) -> None:
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
        """Wait for at most `seconds`, while the client delivers reports."""
        self._producer.poll(seconds)

    def commit(self) -> None:
        """Commit the transaction and begin the next one. Raises BrokerError, and then nothing of it is visible."""
        with broker_errors(self._producer, "committing a transaction", self._complaint):
            self._producer.commit_transaction(2 * self._transaction_timeout_s)
            self._producer.begin_transaction()

    def drain(self, timeout_s: float) -> int:
        """Wait for acknowledgements; returns how many records have none."""
        return self._producer.flush(timeout_s)

    def _open(self, properties: Mapping[str, Any]) -> Producer:
        producer = new_client(Producer, properties, self._complaint)
        with mapping_errors("opening a producer", self._complaint, producer):
            self._require_topic(producer)
        return producer

    def _opened_for_transactions(self, properties: Mapping[str, Any]) -> Producer:
        timeout_s = 2 * self._transaction_timeout_s
        producer = opened_producer(properties, self._complaint, timeout_s, learn=self._require_topic)
        with mapping_errors("beginning a transaction", self._complaint, producer):
            producer.begin_transaction()
        return producer

    def _require_topic(self, producer: Producer) -> None:
        # All topics, since a request for one by name may create it.
        if self._topic not in producer.list_topics(timeout=self._request_timeout_s).topics:
            raise BrokerError(no_such_topic(self._topic))

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._fail(error)
            return
        self.delivered += 1
        self.delivered_bytes += len(message.value() or b"")

    def _fail(self, error: KafkaError) -> None:
        self.failures[self._complaint.explain(error)] += 1


def _properties(config: KafkaConfig, transactional_id: str | None) -> dict[str, Any]:
    """The user's properties override the bulk ones. Never uses the worker's transactional id, which would fence a worker."""
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
