"""Recovery from failed transactions: end them with a new producer, rewind, go on. Also makes the first connection.

The loop has forgotten what was in flight before. Time and attempts are bounded; beyond a bound the process ends, and the
next process connects within the same bounds.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from enricher.errors import (
    BrokerError,
    MissingTopic,
    RecoveryExhausted,
    RefusedOutput,
    RefusedSubstitutes,
    TransactionTrouble,
)
from enricher.worker.loop.ports import PartitionListener, Sink, Source
from enricher.worker.records import DeadLetter, Outcome, Partition, RawRecord
from enricher.worker.runtime.deadlines import StopEvent, doubling_pause_s
from enricher.worker.runtime.repeats import Repeats
from enricher.worker.runtime.watchdog import Guard

log = logging.getLogger(__name__)

_NOTED = 20
_LOG_EVERY_S = 10.0
"""The least time between two log lines about the same wait."""


@dataclass(frozen=True, slots=True)
class RecoveryLimits:
    """`timeout_s` bounds one recovery with all its attempts; the watchdog bounds each attempt by `attempt_timeout_s`.

    `max_in_a_row`: recoveries without a successful transaction between them. `missing_topic_s`: how long a topic may be
    missing at the start. Pauses between attempts double from `first_pause_s` to `longest_pause_s`.
    """

    timeout_s: float
    attempt_timeout_s: float
    max_in_a_row: int
    first_pause_s: float = 0.1
    longest_pause_s: float = 5.0
    missing_topic_s: float = 10.0


@dataclass(frozen=True, slots=True)
class RecoveryNote:
    """A past recovery. `began_s` is by the worker's clock; `reason` is the name of the error class."""

    began_s: float
    reason: str
    duration_s: float
    recovered: bool


class Recovery:
    """Brings source and sink to a known state: no open transaction, reading from the committed offsets."""

    def __init__(
        self,
        source: Source,
        sink: Sink,
        limits: RecoveryLimits,
        *,
        clock: Callable[[], float],
        guard: Guard,
    ) -> None:
        self._source = source
        self._sink = sink
        self._limits = limits
        self._clock = clock
        self._guard = guard
        self._in_a_row = 0
        self._refusals: dict[tuple[Partition, int, str | None], DeadLetter] = {}
        """The refusals by partition, offset and the topic's id: a topic that was created again has other records."""
        self.noted: deque[RecoveryNote] = deque(maxlen=_NOTED)
        """The last recoveries, oldest first. Safe to read in any thread."""

    def note_success(self, committable: Mapping[Partition, int]) -> None:
        """Note a successful transaction, which ends a row of recoveries and forgets refusals below these offsets."""
        self._in_a_row = 0
        for at in [at for at in self._refusals if at[1] < committable.get(at[0], 0)]:
            del self._refusals[at]

    def refusal_of(self, raw: RawRecord) -> DeadLetter | None:
        """The dead letter of a record whose output the broker refused; else None.

        Kept until the record's offset is committed. If it were dropped on reading, two such records in one transaction
        could be refused alternately forever.
        """
        return self._refusals.get(_identity(raw)) if self._refusals else None

    def connect(self, listener: PartitionListener, stopping: StopEvent) -> bool:
        """Open sink and source and return True; return False if the worker is asked to stop meanwhile. Blocks.

        Raises RecoveryExhausted if no broker answers within the bound of a recovery, BrokerError if one refuses us.
        """
        missing_s: float | None = None

        def attempt() -> None:
            nonlocal missing_s
            try:
                self._open(listener)
            except MissingTopic as missing:
                missing_s = missing_s or self._clock()
                if self._clock() - missing_s > self._limits.missing_topic_s:
                    raise BrokerError(str(missing)) from missing
                raise

        return self._try(attempt, "not connected", stopping)

    def run(self, trouble: TransactionTrouble, stopping: StopEvent) -> bool:
        """Try until recovered and return True; return False if the worker is asked to stop meanwhile. Blocks.

        Raises RecoveryExhausted beyond its bounds, and the FatalErrors of the sink (Fenced, BrokerError).
        """
        log.warning("recovering: %s", trouble)
        began_s, recovered = self._clock(), False

        def attempt() -> None:
            with self._guard("recovering", self._limits.attempt_timeout_s):
                self._recover()

        try:
            self._count(trouble)
            recovered = self._try(attempt, "not recovered", stopping)
        finally:
            self.noted.append(RecoveryNote(began_s, type(trouble).__name__, self._clock() - began_s, recovered))
        if recovered:
            log.info("recovered: reading on from the committed offsets")
        return recovered

    def rewind(self) -> None:
        """Go back to the committed offsets when no transaction has failed. Blocks within the bound of an attempt.

        Raises TransactionTrouble, which `run` recovers from.
        """
        with self._guard("rewinding", self._limits.attempt_timeout_s):
            self._source.rewind()

    def run_once(self) -> None:
        """Recover once more before the process ends. Blocks within the bound of an attempt. Raises what `run` raises."""
        with self._guard("recovering", self._limits.attempt_timeout_s):
            self._recover()

    def _recover(self) -> None:
        self._sink.recover()
        self._source.rewind()

    def _open(self, listener: PartitionListener) -> None:
        with self._guard("connecting", self._limits.attempt_timeout_s):
            self._sink.open()
            self._source.open(listener)

    def _try(self, attempt: Callable[[], None], not_yet: str, stopping: StopEvent) -> bool:
        began_s, limits = self._clock(), self._limits
        waits = Repeats(period_s=_LOG_EVERY_S, clock=self._clock)
        failures = self._in_a_row if self._in_a_row > 1 else 0  # the first recovery of a row begins at once
        while not stopping.wait(
            doubling_pause_s(failures, first_s=limits.first_pause_s, longest_s=limits.longest_pause_s)
        ):
            self._sink.serve()
            try:
                attempt()
            except TransactionTrouble as trouble:
                now_s, limit_s = self._clock(), limits.timeout_s
                if now_s - began_s > limit_s:
                    message = (
                        f"{not_yet} within {limit_s:g} s, last: {trouble}; "
                        "are the brokers reachable, and the schema registry if there is one?"
                    )
                    raise RecoveryExhausted(message) from trouble
                if waits.is_new(not_yet):
                    log.warning("%s after %.0f of %g s: %s", not_yet, now_s - began_s, limit_s, trouble)
                failures += 1
            else:
                return True
        return False

    def _count(self, trouble: TransactionTrouble) -> None:
        """Remember refusals, and count all other trouble. A refusal is progress: the record gets another outcome."""
        if isinstance(trouble, RefusedOutput):
            for ticket, outcome in trouble.outcomes.items():
                self._refusals[_identity(ticket.raw)] = _refusal(ticket.raw, outcome, trouble)
            return
        if isinstance(trouble, RefusedSubstitutes):
            self._refusals.update((_identity(ticket.raw), letter) for ticket, letter in trouble.letters.items())
            return
        if self._in_a_row >= self._limits.max_in_a_row:
            message = f"{self._in_a_row} recoveries in a row without a successful transaction, last: {trouble}"
            raise RecoveryExhausted(message, recovers=True) from trouble
        self._in_a_row += 1


def _identity(raw: RawRecord) -> tuple[Partition, int, str | None]:
    return raw.partition, raw.offset, raw.topic_id


def _refusal(raw: RawRecord, outcome: Outcome, trouble: RefusedOutput) -> DeadLetter:
    """The replacement of a refused output: a dead letter, or a smaller one. Raises BrokerError if none is smaller."""
    if not isinstance(outcome, DeadLetter):
        return DeadLetter("publish", "RefusedOutput", str(trouble))
    if form := outcome.form.smaller:
        return replace(outcome, form=form)
    where = f"{raw.partition.topic}[{raw.partition.number}] offset {raw.offset}"
    message = (
        f"the broker refuses even the bare dead letter of {where}: {trouble}; "
        "compare the topic's max.message.bytes and cleanup.policy"
    )
    raise BrokerError(message) from trouble
