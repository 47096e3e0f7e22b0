"""A transactional producer on the fake log: for the loop, all that `TransactionalSink` is on a real one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from loop.fake_clock import TICK_S, FakeClock
from loop.fake_log import FakeLog, LogError, Producer, StaleGeneration
from loop.fake_log import ProducerFenced as FencedByTheLog
from loop.faults import Fault, Late, no_fault

from enricher.errors import Fenced, RefusedOutput, RefusedSubstitutes, TransactionTrouble
from enricher.worker.records import (
    DeadLetter,
    EnrichedRecord,
    LetterForm,
    Outcome,
    Partition,
    RawRecord,
    Release,
    Ticket,
    hot_record,
)
from enricher.worker.rules.dead_letter_limits import DeadLetterLimits, Limits

OUTPUT, DEAD_LETTERS = "entities", "dead-letters"
TRIES = 3
KILLED = "it kills"
"""What stands in the dead letter of a record that nobody can work on."""


@hot_record()
class Output:
    """What the fake sink writes: which input it belongs to, what became of it, and the form of a dead letter."""

    source: Partition
    offset: int
    content: object
    form: LetterForm | None = None


class FakeSink:
    """Publishes to the fake log as `TransactionalSink` does to a real one.

    `refuses`: outputs that the broker will never take. `too_large`: outcomes that become dead letters instead.
    """

    def __init__(
        self,
        log: FakeLog,
        clock: FakeClock,
        transactional_id: str,
        *,
        membership: Callable[[], tuple[str, int]],
        fault: Fault = no_fault,
        refuses: Callable[[Output], bool] = lambda _output: False,
        too_large: Callable[[Outcome], bool] = lambda _outcome: False,
        dead_letters: DeadLetterLimits | None = None,
        transaction_timeout_s: float = 15.0,
    ) -> None:
        self._log = log
        self._clock = clock
        self._id = transactional_id
        self._membership = membership
        self._fault = fault
        self.refuses = refuses
        self.too_large = too_large
        self._dead_letters = dead_letters or DeadLetterLimits(Limits())
        self._timeout_s = transaction_timeout_s
        self._producer: Producer | None = None
        self.published_s: list[float] = []
        self.repeated = 0
        """Transactions that met a rebalance, and were aborted and made once more."""
        self.served = 0

    def open(self) -> None:
        """Connect, fencing an earlier process of the same name."""
        self._producer = self._log.init_transactions(self._id, life=self)

    def publish(self, release: Release) -> Mapping[Ticket, DeadLetter]:
        """One transaction; the producer is broken until it went through."""
        producer, self._producer = self._producer, None
        if producer is None:
            raise TransactionTrouble("the producer is broken")
        try:
            substitutes = self._transact(producer, release, TRIES)
        except FencedByTheLog as error:
            raise Fenced(str(error)) from error
        except LogError as error:
            raise TransactionTrouble(repr(error)) from error
        self._producer = producer
        self.published_s.append(self._clock())
        return substitutes

    def serve(self) -> None:
        """Counts; the fake log has no events."""
        self.served += 1

    def recover(self) -> None:
        """A new producer of the same id."""
        self._fault("recover")
        self._clock.sleep(2 * TICK_S)
        self.open()

    def close(self) -> None:
        """Nothing stays open."""

    def _transact(self, producer: Producer, release: Release, tries: int) -> dict[Ticket, DeadLetter]:
        self._fault("begin")
        producer.begin()
        opened = self._log.open_transactions[self._id]
        self._clock.after(self._timeout_s, lambda: self._log.time_out(opened))
        outcomes = {ticket: self._written(ticket) for ticket in release.written}
        placed = {ticket: _placed(ticket.raw, outcome) for ticket, outcome in outcomes.items()}
        for each in placed.values():
            self._fault("produce")
            producer.produce(*each)
        for ticket, (_, output) in placed.items():
            if self.refuses(output):
                raise RefusedOutput("too large", {ticket: outcomes[ticket]})
        self._clock.sleep(2 * TICK_S)
        substitutes = {
            ticket: outcome
            for ticket, outcome in outcomes.items()
            if isinstance(outcome, DeadLetter) and outcome is not ticket.outcome
        }
        if not self._dead_letters.allows(release.tickets, substitutes):
            raise RefusedSubstitutes(substitutes)
        self._fault("send_offsets")
        member, generation = self._membership()
        self._fault("offsets_under_way")
        try:
            beside = release.marks, release.reached_limits
            producer.send_offsets(release.committable, member, generation, *beside)
        except StaleGeneration:
            self._fault("abort")
            producer.abort()
            if tries == 1 or self._membership()[0] != member:
                raise
            self.repeated += 1
            return self._transact(producer, release, tries - 1)
        self._commit(producer)
        self._fault("committed")
        return substitutes

    def _commit(self, producer: Producer) -> None:
        def commit_late() -> None:
            with suppress(FencedByTheLog):
                producer.commit()

        try:
            self._fault("commit")
        except Late as error:
            self._clock.after(error.after_s, commit_late)
            raise TransactionTrouble("nobody knows whether the commit took effect") from error
        producer.commit()

    def _written(self, ticket: Ticket) -> Outcome:
        assert ticket.outcome is not None
        if self.too_large(ticket.outcome):
            return DeadLetter("publish", "OutputTooLarge", "more than its topic takes")
        return ticket.outcome


def _placed(raw: RawRecord, outcome: Outcome) -> tuple[Partition, Output]:
    """Where an outcome goes: the input's partition of the topic for its kind."""
    topic = DEAD_LETTERS if isinstance(outcome, DeadLetter) else OUTPUT
    form = outcome.form if isinstance(outcome, DeadLetter) else None
    return Partition(topic, raw.partition.number), Output(raw.partition, raw.offset, content_of(outcome), form)


def content_of(outcome: Outcome) -> object:
    """An outcome in a form that compares: what the checker computes from the input by other means."""
    if isinstance(outcome, EnrichedRecord) and outcome.tasks[0].task.named:
        return _content_of_tasks(outcome)
    if isinstance(outcome, EnrichedRecord):
        return [(each["field"], each["start"], each["end"], each["text"], each["label"]) for each in outcome.entities]
    if isinstance(outcome, DeadLetter) and outcome.error_type == "KilledWorker":
        return KILLED
    return outcome.stage if isinstance(outcome, DeadLetter) else None


def _content_of_tasks(record: EnrichedRecord) -> object:
    """Entities with their tasks, classes, vectors to three decimals, and which tasks ran."""
    return (
        [
            (each["field"], each["start"], each["end"], each["text"], each["label"], each["task"])
            for each in record.entities
        ],
        [(each["task"], each["label"]) for each in record.findings.get("classifications", ())],
        [
            (each.task.name, *(round(float(value), 3) for value in each.vector))
            for each in record.findings.get("embeddings", ())
        ],
        [(report.task.name, report.coverage is not None) for report in record.tasks],
    )
