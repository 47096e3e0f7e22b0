"""One transaction: where each output goes, begin, produce, flush, send offsets, commit.

The sink decides which producer runs it and what follows.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from enricher.errors import EnricherError, RefusedBatch, RefusedOutput, RefusedSubstitutes, TransactionTrouble
from enricher.worker.articles import Encoder, Outgoing
from enricher.worker.kafka.errors import ClientErrors, our_error
from enricher.worker.kafka.membership import StaleGeneration, is_stale
from enricher.worker.kafka.metadata import partitions_of
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.source import KafkaSource
from enricher.worker.kafka.topicwatch import TopicWatch, require_enough_partitions
from enricher.worker.records import DeadLetter, Outcome, Release, Ticket
from enricher.worker.rules.dead_letter_limits import DeadLetterLimits
from enricher.worker.runtime.deadlines import Deadline

_QUEUE_FULL_WAIT_S = 0.05
_FLUSH_S = 0.5
"""The time between two looks at the delivery reports while records wait for their acknowledgement."""
_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}
_RETRY_S = 0.1


class Transaction:
    """Runs one transaction, once. After an error the producer's state is unknown.

    `one_by_one`: each batch of the producer holds one record. `substitutes`: the dead letters that were written instead of
    outcomes that are too large for their topic.
    """

    def __init__(
        self,
        config: KafkaConfig,
        encoder: Encoder,
        source: KafkaSource,
        producer: Producer,
        client_errors: ClientErrors,
        dead_letters: DeadLetterLimits,
        *,
        one_by_one: bool,
    ) -> None:
        self._config = config
        self._encoder = encoder
        self._source = source
        self._producer = producer
        self._client_errors = client_errors
        self._dead_letters = dead_letters
        self._one_by_one = one_by_one
        self._reports = DeliveryReports()
        self._steps = Stopwatch(config.retry_pause_s)
        self.substitutes: dict[Ticket, DeadLetter] = {}

    @property
    def slow(self) -> str | None:
        """The step that took so long that its request may have been sent twice, and how long it took."""
        return self._steps.slow

    def run(self, release: Release) -> None:
        """Write the tickets' outcomes and commit their offsets. Raises the client's errors unmapped.

        Raises StaleGeneration if the group has a newer generation. Then the transaction is aborted, and the producer is as
        good as before.
        """
        producer, timeout_s = self._producer, self._config.transaction_timeout_s
        self._steps.restart()
        self._source.watch.ask()  # answered while the records are on their way
        producer.begin_transaction()
        if written := release.written:
            self._produce(written)
            self._steps.done("produce")
        self._source.watch.confirm()
        if not self._dead_letters.allows(release.tickets, self.substitutes):
            raise RefusedSubstitutes(self.substitutes)
        self._steps.restart()
        self._send_offsets(release)
        producer.commit_transaction(timeout_s)
        self._steps.done("commit")

    def _send_offsets(self, release: Release) -> None:
        member, timeout_s = self._source.membership(), self._config.transaction_timeout_s
        try:
            self._producer.send_offsets_to_transaction(self._source.offsets(release), member.metadata, timeout_s)
            self._steps.done("send_offsets")
        except KafkaException as refusal:
            self._steps.done("send_offsets")
            if not is_stale(refusal):
                raise
            # All requests so far were answered, so nothing of this transaction can arrive behind its end.
            self._producer.abort_transaction(timeout_s)
            self._steps.done("abort")
            if self.slow:  # one of them may have been sent twice: only a new producer fences the repeat
                raise
            raise StaleGeneration(str(refusal.args[0].str()), member) from refusal

    def _produce(self, tickets: Sequence[Ticket]) -> None:
        stopped = self._hand_over(tickets)
        unacknowledged = self._flush()
        if self._reports.failed:
            raise self._failure()
        if stopped:
            raise stopped
        if unacknowledged:
            raise TransactionTrouble(f"{unacknowledged} of {len(tickets)} records were not acknowledged in time")

    def _hand_over(self, tickets: Sequence[Ticket]) -> KafkaException | None:
        """Give the client every record. Once the transaction has failed it takes no more; the delivery reports say why."""
        # Each record is encoded just before it is handed over: while it is in the processor's caches the client copies it
        # fast, and its memory is used again for the next one.
        for ticket in tickets:
            message = self._encode(ticket)
            try:
                self._produce_one(message)
            except KafkaException as exception:
                return exception
        return None

    def _encode(self, ticket: Ticket) -> Outgoing:
        """The ticket's message. Only encoding shows that a record is too large, or that a dead letter has to be cut."""
        message = self._encoder.outgoing(ticket)
        if message.letter is not None and message.letter is not ticket.outcome:
            self.substitutes[ticket] = message.letter
        return message

    def _produce_one(self, message: Outgoing) -> None:
        topic = self._config.dead_letter_topic if message.kind == "dead_letter" else self._config.output_topic
        partition = message.ticket.raw.partition.number
        on_delivery = self._reports.callback_for(message.ticket)
        while True:
            try:
                self._producer.produce(
                    topic,
                    message.value,
                    message.key,
                    headers=list(message.headers),
                    on_delivery=on_delivery,
                    partition=partition,
                )
            except BufferError:  # the client's queue is full
                self._producer.poll(_QUEUE_FULL_WAIT_S)
            else:
                return

    def _flush(self) -> int:
        """Wait for the acknowledgements; returns how many records have none.

        Once a record has failed, those that were not sent yet are dropped: the client would keep them until the transaction
        ends.
        """
        deadline = Deadline(self._config.transaction_timeout_s)
        try:
            while left := self._producer.flush(min(_FLUSH_S, deadline.left_s())):
                if deadline.over:
                    break
                if self._reports.failed:
                    self._producer.purge(in_queue=True, in_flight=False)
        except SystemError as error:
            # Seen with a producer that was fenced meanwhile: the client loses the reason. Its next call raises it.
            self._producer.begin_transaction()
            raise TransactionTrouble("the client lost the reason why it could not write") from error
        return left

    def _failure(self) -> Exception:
        """The meaning of all delivery reports together: refused records, or trouble."""
        reports = self._reports
        if too_large := reports.too_large():
            return self._refusal_for_size(too_large)
        if keyless := reports.refused_without_key():
            return self._refusal(keyless)
        error = reports.failed[0].error
        if error.code() == KafkaError._PURGE_QUEUE:  # noqa: SLF001  the client's name
            # Purged because the transaction had failed before. Only the next call says why.
            self._producer.begin_transaction()
        return our_error(error, f"{len(reports.failed)} records were not written", self._client_errors)

    def _refusal_for_size(self, too_large: Sequence[Sequence[Failure]]) -> EnricherError:
        """The error for refused sizes; it names the records that were certainly alone in their batch, if any were."""
        alone = [failure for failures in too_large if self._one_by_one or len(failures) == 1 for failure in failures]
        if alone:
            return self._refusal(alone)
        topic, _ = too_large[0][0].place
        message = f"the broker refuses a batch of several records, which is larger than max.message.bytes of '{topic}'"
        return RefusedBatch(message)

    def _refusal(self, failures: Sequence[Failure]) -> RefusedOutput:
        reason = self._client_errors.explain(failures[0].error)
        return RefusedOutput(reason, {failure.ticket: self._form_of(failure.ticket) for failure in failures})

    def _form_of(self, ticket: Ticket) -> Outcome:
        outcome = self.substitutes.get(ticket) or ticket.outcome
        assert outcome is not None, "only finished tickets are written"
        return outcome


class Failure(NamedTuple):
    """A record that was not written. `place`: topic and partition."""

    ticket: Ticket
    error: KafkaError
    place: tuple[str | None, int | None]


class DeliveryReports:
    """Collects the failures; the client does not report successes (`delivery.report.only.error`).

    Each transaction has its own: a producer that is closed in the background may still report about an older one.
    """

    def __init__(self) -> None:
        self.failed: list[Failure] = []

    def callback_for(self, ticket: Ticket) -> Callable[[KafkaError | None, Message], None]:
        """The `on_delivery` of this ticket's record."""
        return partial(self._note, ticket)

    def too_large(self) -> list[list[Failure]]:
        """The failures of records whose batch was too large, by partition.

        A batch holds records of one partition, and all of them fail together. So a record without another one in its list
        was alone in its batch; which of the others shared one is unknown.
        """
        by_place: dict[tuple[str | None, int | None], list[Failure]] = defaultdict(list)
        for failure in self.failed:
            if failure.error.code() in _TOO_LARGE:
                by_place[failure.place].append(failure)
        return list(by_place.values())

    def refused_without_key(self) -> list[Failure]:
        """The failures of records that a compacted topic refused, because they have no key."""
        code = KafkaError.INVALID_RECORD
        return [each for each in self.failed if each.error.code() == code and each.ticket.raw.key is None]

    def _note(self, ticket: Ticket, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(Failure(ticket, error, (message.topic(), message.partition())))


class Stopwatch:
    """Notes the first step that took longer than `limit_s`, the shortest time after which the client repeats a request."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._last_s = time.monotonic()
        self.slow: str | None = None

    def restart(self) -> None:
        """Begin the next step now: since the last step the producer sent no request."""
        self._last_s = time.monotonic()

    def done(self, step: str) -> None:
        """End `step`, and begin the next one."""
        now_s = time.monotonic()
        if now_s - self._last_s > self._limit_s and self.slow is None:
            self.slow = f"{step} took {now_s - self._last_s:.3f} s, so a request may have been sent twice"
        self._last_s = now_s


class Placement:
    """Checks that each output can go to the partition with its input's number. `watch` knows all three topics.

    So order per key is kept when partitions are added later. If the output topic lacks that partition, the worker ends: it
    would not have started either. Brokers learn of added partitions one after another, so a count that seems too small is
    requested again first.
    """

    def __init__(self, config: KafkaConfig, watch: Callable[[], TopicWatch]) -> None:
        self._config = config
        self._watch = watch
        self._counts: Mapping[str, int] = {}

    def learn(self, producer: Producer) -> None:
        """Request the counts. Raises MissingTopic, and the client's errors unmapped."""
        topics = (self._config.output_topic, self._config.dead_letter_topic)
        timeout_s = self._config.request_timeout_s
        self._counts = {topic: len(partitions_of(producer, topic, timeout_s)) for topic in topics}

    def check(self, producer: Producer, tickets: Sequence[Ticket]) -> None:
        """Ask again where an output topic seems to lack a partition that these tickets need.

        Blocks for four request timeouts at most; an administrator who adds partitions has the first one for it. Raises
        TransactionTrouble if the brokers that are asked have not all heard of the input's partitions by then, SettingsError
        if an output topic has fewer.
        """
        partitions = (ticket.raw.partition for ticket in tickets)
        highest = max(partitions, key=lambda partition: partition.number, default=None)
        if highest is None:
            return
        watch, deadline = self._watch(), Deadline(self._config.request_timeout_s)
        while highest.number >= min(self._counts.values()):
            if deadline.over:
                # Does the broker that answered about all topics know the partition, and the producer's broker as much?
                if highest.number < watch.partitions.get(highest.topic, 0) and all(
                    count >= watch.partitions[topic] for topic, count in self._counts.items()
                ):
                    require_enough_partitions(self._config, watch.partitions)
                message = (
                    f"not all brokers have heard of partition {highest.number} yet: the topics have {watch.partitions}"
                )
                raise TransactionTrouble(message)
            watch.ask()
            watch.confirm()
            self.learn(producer)
            time.sleep(_RETRY_S)
