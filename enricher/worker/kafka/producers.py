"""Opens transactional producers, and closes them in the background: closing may block as long as the call that failed.

Closing a producer aborts its open transaction, with the transaction's own epoch. After such an abort, brokers with
`transaction.partition.verification.enable=false` append a late Produce request and take late offsets (KIP-890): the next
transaction commits them, or nothing ever ends them. After an abort by a new producer, which has a newer epoch, every broker
refuses them. So a producer whose transaction failed is closed only once a new one has fenced it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import KafkaException, Producer

from enricher.errors import ProducerFenced
from enricher.worker.kafka.errors import ClientErrors, mapping_errors, new_client

log = logging.getLogger(__name__)

CLOSE_WAIT_S = 5.0
"""How long a caller waits for a producer to close; one that is not closed by then ends with the process."""


def opened_producer(
    properties: Mapping[str, Any],
    client_errors: ClientErrors,
    timeout_s: float,
    *,
    learn: Callable[[Producer], object],
    kind: Callable[..., Producer] = Producer,
) -> Producer:
    """A producer that has fenced earlier ones of its transactional id, and ended their transaction.

    `learn` asks for metadata, which it needs in any case. Blocks for that and for at most `timeout_s`. Raises
    TransactionTrouble and BrokerError; SettingsError if librdkafka rejects the properties.
    """
    producer = new_client(kind, properties, client_errors)
    try:
        with mapping_errors("opening a transactional producer", client_errors, producer):
            # Metadata first: without it init_transactions sometimes takes half a second longer.
            learn(producer)
            producer.init_transactions(timeout_s)
    except BaseException:
        close_in_background(producer)  # not earlier: `mapping_errors` polls the producer for the reason
        raise
    return producer


@contextmanager
def short_lived_producer(
    properties: Mapping[str, Any], client_errors: ClientErrors, timeout_s: float, *, metadata_timeout_s: float
) -> Iterator[Producer]:
    """An `opened_producer` for a trial, which is closed within a bound."""
    producer = opened_producer(
        properties, client_errors, timeout_s, learn=lambda opened: opened.list_topics(timeout=metadata_timeout_s)
    )
    try:
        yield producer
    finally:
        close_in_background(producer).join(CLOSE_WAIT_S)


class UnfencedProducer:
    """Keeps the producer that must be fenced before it is closed. True while there is one."""

    def __init__(self) -> None:
        self._producer: Producer | None = None

    def __bool__(self) -> bool:
        return self._producer is not None

    def put(self, producer: Producer) -> None:
        """Keep a producer whose transaction failed, or that may have sent a request twice."""
        assert self._producer is None, "a producer that is not fenced yet would be forgotten"
        self._producer = producer

    def serve(self) -> None:
        """Let the client deliver its events."""
        if self._producer is not None:
            with suppress(KafkaException):
                self._producer.poll(0)

    @contextmanager
    def fenced_by_a_new_one(self) -> Iterator[None]:
        """The body opens a new producer. If it fails, the old one is kept for the next attempt."""
        try:
            yield
        except ProducerFenced:  # a still newer producer has fenced both
            self._close()
            raise
        self._close()

    def _close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            close_in_background(producer)


def close_in_background(producer: Producer) -> threading.Thread:
    """Drop what is queued and close, which aborts an open transaction. The thread may be joined."""
    thread = threading.Thread(target=_close, args=(producer,), name="close-producer", daemon=True)
    thread.start()
    return thread


def _close(producer: Producer) -> None:
    try:
        producer.purge(in_queue=True, in_flight=True, blocking=False)
        producer.close()
    except KafkaException as exception:
        log.debug("closing a producer: %s", exception)
