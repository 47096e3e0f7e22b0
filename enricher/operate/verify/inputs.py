"""Takes the committed inputs after the outputs, and finally judges what has no counterpart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Message

from enricher.operate.inspect.key_partitions import KeyPartitions
from enricher.operate.verify.deletions import NO_DELETION, DeleteEvents
from enricher.operate.verify.findings import Check, Checks, Place
from enricher.operate.verify.headers import headers_by_name
from enricher.operate.verify.ledger import Differences, Offsets, PartitionLedger


class Inputs:
    """Compares the input topic with the outputs in `ledgers`, and notes where its keys are.

    `deletes`: which of its values are delete events; None if none are.
    """

    def __init__(
        self, checks: Checks, ledgers: Mapping[int, PartitionLedger], topic: str, deletes: DeleteEvents | None = None
    ) -> None:
        self.keys = KeyPartitions(len(ledgers))
        self._checks = checks
        self._ledgers = ledgers
        self._topic = topic
        self._deletes = deletes

    def take(self, message: Message) -> None:
        """Note one committed input."""
        place = Place.of(message)
        self.keys.note(message.key(), place.partition)
        ledger = self._ledgers[place.partition]
        if ledger.covers(place.offset):
            key, value = message.key(), message.value()
            deletion = self._deletes.deletion(value, headers_by_name(message)) if self._deletes else NO_DELETION
            self._compare(ledger.note_input(place.offset, key, value, deletion), place)

    def take_unread(self, number: int, offsets: range) -> None:
        """Note committed inputs that cannot be read: the only valid output is a dead letter that says so."""
        ledger = self._ledgers[number]
        for offset in offsets:
            if ledger.covers(offset):
                self._compare(ledger.note_unread(offset), Place(self._topic, number, offset))

    def _compare(self, differences: Differences | None, place: Place) -> None:
        if differences is None:
            return
        content = self._checks.dead_letters if differences.dead_letter else self._checks.keys
        content.note(place, ok=not differences.content)
        if not differences.dead_letter:
            self._checks.tombstones.note(place, ok=not differences.tombstone)


@dataclass(frozen=True, slots=True)
class JudgedRange:
    """Which offsets of one input partition can be judged.

    `due`: inputs below it must have an output. `committed`: there must be no output at or above it. `begins`: the first
    offset that retention has left. Outputs of inputs below `outputs_begin` may have been deleted.
    """

    due: int
    committed: int
    begins: int
    outputs_begin: int


@dataclass(frozen=True, slots=True)
class Doubts:
    """Why a missing counterpart proves nothing; empty if it does."""

    missing_outputs: str = ""
    missing_inputs: str = ""
    published_ahead: str = ""


class Judge:
    """Judges each partition, into the checks. `excused`: missing outputs that retention may have deleted."""

    def __init__(self, checks: Checks, topic: str, doubts: Doubts) -> None:
        self.excused = 0
        self._checks = checks
        self._topic = topic
        self._doubts = doubts

    def judge(self, number: int, ledger: PartitionLedger, judged: JudgedRange) -> None:
        """Judge one partition, after all of its records were noted."""
        self._judge_lost(number, ledger, judged)
        checks, doubts = self._checks, self._doubts
        invented = ledger.without_input(judged.begins, judged.committed)
        checks.invented.checked = checks.doubled.checked
        _note(checks.invented, self._places(number, invented), doubts.missing_inputs)
        checks.published_ahead.checked = checks.doubled.checked
        ahead = ledger.outputs_from(judged.committed)
        _note(checks.published_ahead, self._places(number, ahead), doubts.published_ahead)

    def _judge_lost(self, number: int, ledger: PartitionLedger, judged: JudgedRange) -> None:
        lost = self._checks.lost
        lost.checked += ledger.inputs(judged.due)
        missing = ledger.without_output(judged.due)
        excusable = missing < judged.outputs_begin
        self.excused += int(excusable.sum())
        if excusable.any():
            lost.doubt = lost.doubt or "retention has deleted the oldest outputs"
        _note(lost, self._places(number, missing[~excusable]), self._doubts.missing_outputs)

    def _places(self, number: int, offsets: Offsets) -> list[Place]:
        return [Place(self._topic, number, int(offset)) for offset in offsets]


def _note(check: Check, places: list[Place], doubt: str) -> None:
    """Note violations; if there is a `doubt` about missing records, note only the doubt."""
    if places and doubt:
        check.doubt = doubt
        return
    for place in places:
        check.fail(place)
