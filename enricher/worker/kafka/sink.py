"""The sink: publishes each release in one transaction, and replaces the producer after any trouble.

No transaction is open during a poll, so no callback of a rebalance meets one. The group's generation may change meanwhile;
then the transaction is aborted and made once more by the same producer (`membership.py` says why that is safe). After any
other failure only a new producer ends the transaction.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from confluent_kafka import KafkaException, Producer

from enricher.errors import BrokerError, EnricherError, Fenced, ProducerFenced, RefusedBatch, TransactionTrouble
from enricher.worker.articles import Encoder
from enricher.worker.kafka.errors import ClientErrors, connecting, mapping_errors
from enricher.worker.kafka.membership import StaleGeneration
from enricher.worker.kafka.metadata import message_limits
from enricher.worker.kafka.producers import CLOSE_WAIT_S, UnfencedProducer, close_in_background, opened_producer
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.source import KafkaSource
from enricher.worker.kafka.transaction import Placement, Transaction
from enricher.worker.records import DeadLetter, Release, Ticket
from enricher.worker.rules.dead_letter_limits import DeadLetterLimits
from enricher.worker.runtime.watchdog import Guard
from enricher.worker.stats import Counters

log = logging.getLogger(__name__)

_REASON_CHARS = 300
"""Longest reason of a dead letter in the log; the record's header holds more of it."""
_TRIES = 3
"""Transactions for one release, while the group's generation changes each time. A partition moves in two generations."""
MARKERS_S = 0.03
"""Time that brokers take to end a transaction; 10 ms were enough on one node. Until then they refuse the next one.
librdkafka asks again after 20 ms if it has records, and only after `retry.backoff.ms` if it has offsets alone."""

# A producer that is closed aborts its open transaction. Usually a newer producer has done so already, as intended.
warnings.filterwarnings("ignore", message="Producer abort_transaction failed during close", category=RuntimeWarning)


class TransactionalSink:
    """Publishes releases exactly once, with the offsets of `source`, within the limits of `dead_letters`.

    `prepare`: called before connecting, until it succeeds. Blocks, and raises what `open` raises.
    """

    def __init__(
        self,
        config: KafkaConfig,
        encoder: Encoder,
        *,
        source: KafkaSource,
        guard: Guard,
        counters: Counters,
        dead_letters: DeadLetterLimits,
        prepare: Callable[[], None] = lambda: None,
        producer_class: type[Producer] = Producer,
    ) -> None:
        self._config = config
        self._encoder = encoder
        self._source = source
        self._guard = guard
        self._counters = counters
        self._dead_letters = dead_letters
        self._prepare = prepare
        self._producer_class = producer_class
        self._placement = Placement(config, lambda: source.watch)
        self._client_errors = ClientErrors(config)
        self._producer: Producer | None = None
        self._unfenced = UnfencedProducer()
        self._ended_s = -math.inf
        self._refused_batch: RefusedBatch | None = None
        """The batch that was too large. After it, each batch holds one record."""
        self._tried_alone = False
        """True once a release went through with one record in each batch."""

    def open(self) -> None:
        """Connect, and fence an earlier process of the same name. Raises TransactionTrouble, BrokerError, Fenced."""
        self._prepare()
        with connecting(self._client_errors):
            limits = message_limits(self._source.watch.client, self._config)
            self._encoder.limit_to(
                record_bytes=limits.get(self._config.output_topic),
                dead_letter_bytes=limits.get(self._config.dead_letter_topic),
            )
            self.recover()

    def publish(self, release: Release) -> Mapping[Ticket, DeadLetter]:
        """Write the tickets' outcomes and commit their offsets, all or nothing.

        Returns the dead letters that were written instead of outcomes that are too large for their topic.

        Raises TransactionTrouble if the transaction failed or its result is unknown. Then the sink publishes nothing more
        until `recover` succeeds. Raises Fenced if a newer producer has our transactional id, and BrokerError once records
        were written alone because a batch was refused for its size.
        """
        if self._tried_alone and release.written:
            raise BrokerError(self._lower_limit())
        producer, self._producer = self._producer, None  # not usable until the transaction has succeeded
        if producer is None:
            raise TransactionTrouble("the producer is broken")
        try:
            with (
                self._ending_if_fenced(),
                self._guard("a transaction", 3 * self._config.transaction_timeout_s),
                mapping_errors("a transaction", self._client_errors, producer),
            ):
                with self._guard("asking for partitions", 4 * self._config.request_timeout_s):
                    self._placement.check(producer, release.tickets)
                transaction = self._run(producer, release)
        except Fenced:  # the newer producer has ended the transaction
            close_in_background(producer)
            raise
        except BaseException as error:
            if isinstance(error, RefusedBatch):
                self._refused_batch = error
            self._unfenced.put(producer)
            raise
        self._producer = producer
        self._tried_alone = bool(self._refused_batch and release.written)
        self._source.note_commit(release)
        log_dead_letters(release.tickets, transaction.substitutes)
        if transaction.slow:
            self._renew(transaction.slow)
        return transaction.substitutes

    def recover(self) -> None:
        """Open a new producer with the same id: it ends the old transaction and fences late requests.

        Raises TransactionTrouble, BrokerError, Fenced.
        """
        producer, self._producer = self._producer, None
        if producer is not None:
            self._unfenced.put(producer)
        with self._ending_if_fenced(), self._unfenced.fenced_by_a_new_one():
            self._producer = self._connect()

    def serve(self) -> None:
        """Let the clients deliver their events, which they queue until they are polled. Does not block."""
        self._source.watch.client.poll(0)
        self._unfenced.serve()
        if self._producer is not None:
            with suppress(KafkaException):  # the next transaction raises it again
                self._producer.poll(0)

    def close(self) -> None:
        """Close the producer, within a bound; may be called twice.

        A failed transaction is ended, or readers would wait for its timeout.
        """
        closing = threading.Thread(target=self._close, name="close-sink", daemon=True)
        closing.start()
        closing.join(CLOSE_WAIT_S)

    # ---- transactions

    def _run(self, producer: Producer, release: Release) -> Transaction:
        """Make the transaction, again if the group's generation changed meanwhile. Returns the one that succeeded."""
        for _ in range(_TRIES - 1):
            try:
                return self._run_once(producer, release)
            except StaleGeneration as stale:
                self._source.await_newer_generation(stale)
                self._counters.transactions_repeated += 1
                log.info(
                    "the group was rebalanced during a transaction, which was aborted and is made again: %s", stale
                )
        return self._run_once(producer, release)

    def _run_once(self, producer: Producer, release: Release) -> Transaction:
        transaction = Transaction(
            self._config,
            self._encoder,
            self._source,
            producer,
            self._client_errors,
            self._dead_letters,
            one_by_one=self._refused_batch is not None,
        )
        if not release.written:
            time.sleep(max(0.0, self._ended_s + MARKERS_S - time.monotonic()))
        try:
            transaction.run(release)
        finally:
            self._ended_s = time.monotonic()
        return transaction

    # ---- producers

    def _renew(self, slow: str) -> None:
        """Replace the producer after a transaction that succeeded slowly.

        A slow request may have been sent twice. If the repeat arrives late, in the next transaction, librdkafka has no
        protection against it (KAFKA-17754, librdkafka 5423), but the new producer's epoch fences it. Nothing has to be
        forgotten, because the transaction's result is known.
        """
        log.info("%s: continuing with a new producer, which fences a late repeat; no action is needed", slow)
        self._counters.producers_renewed += 1
        try:
            self.recover()
        except TransactionTrouble as trouble:
            # The transaction stays committed. The next one finds no producer, and the loop recovers.
            log.warning("no new producer yet: %s", trouble)

    def _connect(self) -> Producer:
        properties, limits = self._config.producer(), self._encoder.limits
        # The broker compares max.message.bytes with a whole batch. The client sends a record that is larger than this alone.
        allowed_bytes = min(properties["batch.size"], limits.record_bytes, limits.dead_letter_bytes)
        properties["batch.size"] = 1 if self._refused_batch else allowed_bytes
        timeout_s = 2 * self._config.transaction_timeout_s
        return opened_producer(
            properties, self._client_errors, timeout_s, learn=self._placement.learn, kind=self._producer_class
        )

    def _lower_limit(self) -> str:
        """The message if a topic accepts less than this worker knows: what happened, and what to do."""
        config = self._config
        return (
            f"{self._refused_batch}. Each record was written alone since, and one that was refused alone is a dead letter; "
            "nothing is lost or doubled. Set articles.max_record_bytes and articles.max_dead_letter_bytes to "
            f"max.message.bytes of '{config.output_topic}' and '{config.dead_letter_topic}' (`kafka-configs "
            f"--bootstrap-server {config.bootstrap_servers} --describe --all --entity-type topics --entity-name TOPIC`), or "
            "allow the worker DESCRIBE_CONFIGS on them: it asks when it starts. If the limits were lowered while it ran, a "
            "restart is enough"
        )

    @contextmanager
    def _ending_if_fenced(self) -> Iterator[None]:
        """End the process if a newer producer has our transactional id, whoever opened it.

        The client has one error for a second process of our name, a late InitProducerId of our own, and a transaction that
        the broker timed out. A new producer would be right only for the latter two: two processes would fence each other
        in turns. A restart is right for all three.
        """
        try:
            yield
        except ProducerFenced as fenced:
            config = self._config
            message = (
                f"{fenced}. A newer producer has the transactional id '{config.transactional_id}', so this process ends. "
                "Nothing is lost or doubled, and a restart goes on at the committed offsets. After a broker's restart or "
                f"pause this comes once. If it comes again, two workers have the name '{config.instance}': find them by "
                f"their client id, {config.consumer()['client.id']}, with `kafka-consumer-groups --bootstrap-server "
                f"{config.bootstrap_servers} --describe --members --group {config.group_id}`, and give each worker its own "
                "kafka.instance"
            )
            raise Fenced(message) from fenced

    def _close(self) -> None:
        if self._unfenced:
            with suppress(EnricherError):  # then the next process ends the transaction, or its timeout does
                self.recover()
        producer, self._producer = self._producer, None
        if producer is not None:
            close_in_background(producer).join()


def log_dead_letters(tickets: Sequence[Ticket], substitutes: Mapping[Ticket, DeadLetter]) -> None:
    """Log the place and the reason of each dead letter; a reason holds no text of the article.

    All lines are of one kind, so the log filter bounds how many are written per minute.
    """
    for ticket in tickets:
        letter = substitutes.get(ticket, ticket.outcome)
        if isinstance(letter, DeadLetter):
            place, reason = ticket.raw.partition, letter.loggable[:_REASON_CHARS]
            at = (place.topic, place.number, ticket.raw.offset)
            log.warning("dead letter: %s[%d] offset %d: %s (%s, %s)", *at, reason, letter.error_type, letter.stage)
