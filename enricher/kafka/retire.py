"""Letting go of a transactional producer: in a thread of its own, for closing may block as long as the call that failed."""

from __future__ import annotations

import logging
import threading

from confluent_kafka import KafkaException, Producer

CLOSE_WAIT_S = 5.0
"""For whoever waits: a producer that is not closed by then is left to the end of the process."""
log = logging.getLogger(__name__)


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
