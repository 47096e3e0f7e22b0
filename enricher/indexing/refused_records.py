"""The indexer's own dead letters: records that the index refuses, with their key, their value and the reason.

They are written before the offsets of their records are committed, at least once: a restart may write one again, which
names the same place.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from enricher.errors import BrokerError, RecoveryExhausted
from enricher.indexing.bulk_writer import Refusal
from enricher.worker.articles.encoder import time_text
from enricher.worker.kafka.errors import ClientErrors, new_client, our_error
from enricher.worker.kafka.producers import CLOSE_WAIT_S, close_in_background
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.runtime.deadlines import Deadline

log = logging.getLogger(__name__)

PREFIX = "enricher.index"
_FLUSH_S = 0.5
_PORTION = 1_000
"""The most letters that are produced before a flush: far fewer than a client queues."""


class RefusedRecords:
    """Writes to the indexer's dead-letter topic. For one thread. `give_up_s`: for how long it waits for a broker."""

    def __init__(self, config: KafkaConfig, topic: str, index_name: str, *, give_up_s: float) -> None:
        self._topic = topic
        self._index_name = index_name
        self._give_up_s = give_up_s
        self._client_errors = ClientErrors(config)
        self._producer = new_client(
            Producer,
            config.client("producer")
            | {
                "enable.idempotence": True,
                "linger.ms": 5,
                "compression.type": "lz4",
                "message.max.bytes": config.max_message_bytes,
                "partitioner": "murmur2_random",
                "message.timeout.ms": int(give_up_s * 1000),
            },
            self._client_errors,
        )
        self._failed: list[tuple[Refusal, KafkaError]] = []

    def write(self, refusals: Sequence[Refusal]) -> None:
        """Write dead letters. Blocks until they are written. Raises BrokerError, and RecoveryExhausted at the bound."""
        for begin in range(0, len(refusals), _PORTION):
            self._write(refusals[begin : begin + _PORTION])

    def close(self) -> None:
        """Close the connection."""
        close_in_background(self._producer).join(CLOSE_WAIT_S)

    def _write(self, refusals: Sequence[Refusal]) -> None:
        for each in refusals:
            log.warning("%s[%d] offset %d is a dead letter: %s", *each.raw.partition, each.raw.offset, each.error_type)
            self._produce(each)
        self._flush()
        failed, self._failed = self._failed, []
        for refusal, error in failed:
            if error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
                raise self._fatal(error)
            self._produce(refusal, without_value=True)
        self._flush()
        if self._failed:
            raise self._fatal(self._failed[0][1])

    def _flush(self) -> None:
        deadline = Deadline(self._give_up_s)
        while self._producer.flush(_FLUSH_S):
            if deadline.over:
                message = f"dead letters could not be written to '{self._topic}' for {self._give_up_s:g} s"
                raise RecoveryExhausted(message)

    def _produce(self, refusal: Refusal, *, without_value: bool = False) -> None:
        raw = refusal.raw
        time = time_text(datetime.now(UTC))
        headers: list[tuple[str, str | bytes | None]] = [
            *raw.headers,
            (f"{PREFIX}.name", self._index_name),
            (f"{PREFIX}.error.type", refusal.error_type),
            (f"{PREFIX}.error.message", refusal.message),
            (f"{PREFIX}.source.topic", raw.partition.topic),
            (f"{PREFIX}.source.partition", str(raw.partition.number)),
            (f"{PREFIX}.source.offset", str(raw.offset)),
            (f"{PREFIX}.time", time),
        ]
        if without_value:
            headers.append((f"{PREFIX}.value.omitted_bytes", str(len(raw.value or b""))))

        def report(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                self._failed.append((refusal, error))

        value = None if without_value else raw.value
        try:
            self._producer.produce(self._topic, value, raw.key, headers=headers, on_delivery=report)
        except KafkaException as exception:  # refused before it is sent
            self._failed.append((refusal, exception.args[0]))

    def _fatal(self, error: KafkaError) -> Exception:
        trouble = our_error(error, f"writing dead letters to '{self._topic}'", self._client_errors)
        return trouble if isinstance(trouble, BrokerError) else BrokerError(str(trouble))
