"""Closing transactional producers in the background: it may block for as long as the call that failed.

Closing a producer aborts its open transaction, with the transaction's own epoch. After such an abort, brokers before 3.6
append a late Produce request, and brokers before 3.7 take late offsets (KIP-890): the next transaction commits them, or
nothing ever ends them. After an abort by a new producer, which has a newer epoch, they are refused. So a producer whose
transaction failed is closed only once a new one has fenced it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from confluent_kafka import KafkaException, Producer

from enricher.errors import ProducerFenced

CLOSE_WAIT_S = 5.0
"""How long a caller waits; a producer that is not closed by then ends with the process."""
log = logging.getLogger(__name__)


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
