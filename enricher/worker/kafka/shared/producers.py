"""Opens transactional producers. `closing` closes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer

from enricher.worker.kafka.shared.client_errors import ClientErrors, new_client
from enricher.worker.kafka.shared.closing import CLOSE_WAIT_S, close_in_background
from enricher.worker.kafka.shared.errors import mapping_errors


def opened_producer(
    properties: Mapping[str, Any],
    client_errors: ClientErrors,
    timeout_s: float,
    *,
    learn: Callable[[Producer], object],
    kind: Callable[..., Producer] = Producer,
) -> Producer:
    """A producer that has fenced those before it with its transactional id, and ended their transaction.

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
