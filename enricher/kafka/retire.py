"""Letting go of a transactional producer: in a thread of its own, for closing may block as long as the call that failed.

Closing one whose transaction failed aborts it, with the epoch that the transaction had. Behind such an abort brokers before
3.6 append a Produce request that comes late, and those before 3.7 take late offsets (KIP-890): then the next transaction
commits them, or nobody ever ends them. Behind the abort by a new producer, which has a newer epoch, they are refused. So a
producer with a failed transaction is closed only when it is fenced.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from confluent_kafka import KafkaException, Producer

from enricher.errors import ProducerFenced

CLOSE_WAIT_S = 5.0
"""For whoever waits: a producer that is not closed by then is left to the end of the process."""
log = logging.getLogger(__name__)


class Unsettled:
    """Keeps the producer that a new one has to fence before it is closed. True where there is one."""

    def __init__(self) -> None:
        self._producer: Producer | None = None

    def __bool__(self) -> bool:
        return self._producer is not None

    def put(self, producer: Producer) -> None:
        """Its transaction failed, or may be sent to twice. There is no other one: a sink has one producer at a time."""
        assert self._producer is None, "a producer that is not fenced yet would be forgotten"
        self._producer = producer

    def serve(self) -> None:
        """Let the client deliver its events."""
        if self._producer is not None:
            with suppress(KafkaException):
                self._producer.poll(0)

    @contextmanager
    def fenced_by_a_new_one(self) -> Iterator[None]:
        """The body opens a new producer. Without success the old one is kept for the next attempt."""
        try:
            yield
        except ProducerFenced:  # by a newer one still, which has fenced the old one too
            self._let_go()
            raise
        self._let_go()

    def _let_go(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            retire(producer)


def retire(producer: Producer) -> threading.Thread:
    """Drop what is queued and close, which aborts what is open; the thread may be joined."""
    thread = threading.Thread(target=_close, args=(producer,), name="retire-producer", daemon=True)
    thread.start()
    return thread


def _close(producer: Producer) -> None:
    try:
        producer.purge(in_queue=True, in_flight=True, blocking=False)
        producer.close()
    except KafkaException as exception:
        log.debug("closing a retired producer: %s", exception)
