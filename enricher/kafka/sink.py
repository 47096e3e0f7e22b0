"""The producer: one transaction per call, opened and closed inside one function; a new producer after any trouble.

None is ever open during a poll, so that a rebalance never meets one. One that failed is ended by the new producer alone.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Sequence
from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException, Producer

from enricher.codec import Encoder, Outgoing
from enricher.errors import EnricherError, ProducerFenced, RefusedOutput, TransactionTrouble
from enricher.kafka.client import KafkaConfig, LastWord
from enricher.kafka.errors import border, connecting, constructing, mapped
from enricher.kafka.letters import log_dead_letters
from enricher.kafka.limits import TopicLimits
from enricher.kafka.membership import Group
from enricher.kafka.placement import Placement
from enricher.kafka.reports import Reports
from enricher.kafka.retire import CLOSE_WAIT_S, Unsettled, retire
from enricher.kafka.stopwatch import Stopwatch
from enricher.records import Release, Ticket
from enricher.runtime.watchdog import Guard
from enricher.stats.counters import Counters

log = logging.getLogger(__name__)

# A retired producer aborts what it had open; that a newer one has done so already is what we want.
warnings.filterwarnings("ignore", message="Producer abort_transaction failed during close", category=RuntimeWarning)


class TransactionalSink:
    """Publishes releases exactly once, with the offsets of `group`."""

    def __init__(
        self,
        config: KafkaConfig,
        encoder: Encoder,
        *,
        group: Group,
        guard: Guard,
        counters: Counters,
        producer_class: type[Producer] = Producer,
        limits: TopicLimits | None = None,
    ) -> None:
        self._config = config
        self._encoder = encoder
        self._group = group
        self._guard = guard
        self._counters = counters
        self._producer_class = producer_class
        self._limits = limits or TopicLimits(config, lambda: group.watch.client)
        self._placement = Placement(config, lambda: group.watch)
        self._last_word = LastWord(config)
        self._producer: Producer | None = None
        self._unsettled = Unsettled()
        self._reports = Reports()

    def open(self) -> None:
        """Connect and fence what an earlier process of the same name left open. Raises TransactionTrouble, BrokerError."""
        with connecting(self._last_word):
            self.recover()

    def publish(self, release: Release) -> None:
        """Write the tickets' outcomes and commit their offsets, all or nothing.

        Raises TransactionTrouble where it failed or nobody knows; then only `recover` makes the sink usable again.
        """
        producer, self._producer = self._producer, None  # broken until proven whole
        if producer is None:
            message = "the producer is broken"
            raise TransactionTrouble(message)
        try:
            with (
                self._guard("a transaction", 3 * self._config.transaction_timeout_s),
                border("a transaction", self._last_word, producer),
            ):
                slow = self._transact(producer, release)
        except ProducerFenced:  # and whoever did it has ended its transaction
            retire(producer)
            raise
        except BaseException:
            self._unsettled.put(producer)
            raise
        self._producer = producer
        self._group.committed(release)
        log_dead_letters(release.tickets)
        if slow:
            self._renew(slow)

    def recover(self) -> None:
        """A new producer under the same id: settles the old transaction and fences whatever is still under way."""
        producer, self._producer = self._producer, None
        if producer is not None:
            self._unsettled.put(producer)
        with self._unsettled.fenced_by_a_new_one():
            self._producer = self._connected()

    def serve(self) -> None:
        """Let the client deliver its events, which it keeps until somebody does. Does not block."""
        self._limits.serve()
        self._unsettled.serve()
        if self._producer is not None:
            with suppress(KafkaException):  # of a producer that broke meanwhile: the next transaction says so
                self._producer.poll(0)

    def close(self) -> None:
        """Let go of the producer, within a bound. A transaction that failed is ended: else readers wait for its timeout."""
        leaving = threading.Thread(target=self._leave, name="leave", daemon=True)
        leaving.start()
        leaving.join(CLOSE_WAIT_S)

    # ---- the transaction

    def _transact(self, producer: Producer, release: Release) -> str | None:
        """Begin, produce, flush, send offsets, commit. Returns the name of a step that was suspiciously slow."""
        timeout_s = self._config.transaction_timeout_s
        self._placement.check(producer, release.tickets)
        steps = Stopwatch(self._config.retry_pause_s)
        self._group.watch.ask()  # answered while the records are on their way
        producer.begin_transaction()
        if release.tickets:
            self._produce(producer, release.tickets)
            steps.done("produce")
        self._group.watch.confirm()
        steps.pass_over()
        producer.send_offsets_to_transaction(self._group.offsets(release), self._group.membership(), timeout_s)
        steps.done("send_offsets")
        producer.commit_transaction(timeout_s)
        steps.done("commit")
        return steps.slow

    def _encoded(self, ticket: Ticket) -> Outgoing:
        """The ticket's message. That a record is too large for its topic shows only here: then its outcome is the letter."""
        message = self._encoder.outgoing(ticket)
        ticket.outcome = message.letter or ticket.outcome
        return message

    def _produce(self, producer: Producer, tickets: Sequence[Ticket]) -> None:
        self._reports = Reports()
        stopped = self._hand_over(producer, tickets)
        unsent = self._flushed(producer)
        if self._reports.failed:
            raise self._failure(producer)
        if stopped:
            raise stopped
        if unsent:
            message_ = f"{unsent} of {len(tickets)} records were not acknowledged in time"
            raise TransactionTrouble(message_)

    def _hand_over(self, producer: Producer, tickets: Sequence[Ticket]) -> KafkaException | None:
        """Give the client every record. In a transaction that failed meanwhile it takes no more: the reports say why."""
        # Each is encoded just before: in the processor's caches the client copies it fast, and its memory is used again.
        for ticket in tickets:
            message = self._encoded(ticket)
            try:
                self._produce_one(producer, message)
            except KafkaException as exception:
                return exception
        return None

    def _flushed(self, producer: Producer) -> int:
        """How many records are not with the broker yet."""
        try:
            return producer.flush(self._config.transaction_timeout_s)
        except SystemError as error:
            # Seen of a producer that was fenced meanwhile: the client fails and loses why. Its next call says it.
            producer.begin_transaction()
            message = "the client lost the reason why it could not write"
            raise TransactionTrouble(message) from error

    def _produce_one(self, producer: Producer, message: Outgoing) -> None:
        topic = self._config.dead_letter_topic if message.kind == "dead_letter" else self._config.output_topic
        partition = self._placement.partition_of(message.ticket, topic)
        delivered = self._reports.of(message.ticket)
        while True:
            try:
                producer.produce(
                    topic,
                    message.value,
                    message.key,
                    headers=list(message.headers),
                    on_delivery=delivered,
                    partition=partition,
                )
            except BufferError:  # the client's queue is full: let it send
                producer.poll(0.05)
            else:
                return

    def _failure(self, producer: Producer) -> Exception:
        """What the delivery reports mean together: refused records, or trouble."""
        refused, error = self._reports.refused(lambda ticket: self._encoder.outgoing(ticket).size_bytes)
        if refused:
            return RefusedOutput(self._last_word.explain(error), refused)
        if error.code() == KafkaError._PURGE_QUEUE:  # noqa: SLF001  the client's name
            # Purged because the transaction had failed already, and only the next call says of what.
            producer.begin_transaction()
        return mapped(error, f"{len(self._reports.failed)} records were not written", self._last_word)

    # ---- producers come and go

    def _renew(self, slow: str) -> None:
        """Replace the producer after a transaction that succeeded slowly.

        A slow call may have been sent twice, and librdkafka has no protocol against its late twin hitting the next
        transaction (KAFKA-17754, librdkafka 5423). The new producer's epoch fences it. Nothing needs to be forgotten:
        the outcome is known.
        """
        log.info("%s: going on with a new producer, which a late repeat cannot harm; nothing needs to be done", slow)
        self._counters.producers_renewed += 1
        try:
            self.recover()
        except TransactionTrouble as trouble:
            # What was published stays so: the next transaction finds no producer, and the loop recovers.
            log.warning("no new producer yet: %s", trouble)

    def _connected(self) -> Producer:
        with constructing():
            properties = self._limits.applied(self._config.producer(), self._encoder) | {"error_cb": self._last_word}
            producer = self._producer_class(properties, logger=self._last_word.logger)
        try:
            with border("opening a transactional producer", self._last_word, producer):
                # Metadata first: without it init_transactions now and then takes half a second longer.
                self._placement.learn(producer)
                producer.init_transactions(2 * self._config.transaction_timeout_s)
        except BaseException:
            retire(producer)  # only now: the border polls the producer once more, for the reason
            raise
        return producer

    def _leave(self) -> None:
        if self._unsettled:
            with suppress(EnricherError):  # then the next process ends it, or its timeout
                self.recover()
        if self._producer is not None:
            retire(self._producer).join()
