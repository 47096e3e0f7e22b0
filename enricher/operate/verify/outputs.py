"""Takes outputs one by one: notes their sources in the ledgers, and what is wrong in the checks: order, versions, headers.

Pure, in bounded memory. Versions (`enricher.version`) are read as `schemas/README.md` says, not with the worker's code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import Message

from enricher.operate.verify.contract import (
    HeaderValues,
    Source,
    dead_letter_headers_by_name,
    headers_by_name,
    record_id,
    same_topic,
    source_of_dead_letter,
    source_of_record,
)
from enricher.operate.verify.ledger import EARLIER, Checks, PartitionLedger, Place


class SourceOrder:
    """Whether outputs keep the order of the inputs: in each partition, outputs of one input partition, and so of one key.

    Workers publish in the order of offsets wherever outputs are placed, so this holds for unequal partition counts too.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[str, int, int], int] = {}

    def keeps(self, place: tuple[str, int], partition: int, offset: int) -> bool:
        """False if an output of a later input precedes it in the same partition.

        `place`: topic and partition of the output; `partition` and `offset`: those of its input.
        """
        last = self._last.get((*place, partition), -1)
        if offset > last:
            self._last[(*place, partition)] = offset
        return offset >= last


_GENERATION_BITS, _OFFSET_BITS = 12, 43


def belongs_to(version: int, source: Source) -> bool:
    """Whether a version contains the offset of its source."""
    return (version >> _GENERATION_BITS) & ((1 << _OFFSET_BITS) - 1) == source.offset


class VersionOrder:
    """Whether newer inputs of one topic have higher versions, in whatever order their records are read.

    They do if no offset of an epoch is below one of an earlier epoch.
    """

    def __init__(self) -> None:
        self._seen: dict[int, dict[int, tuple[int, int]]] = {}
        """The lowest and the highest source offset of each epoch, by input partition: 256 epochs at most."""

    def keeps(self, version: int, source: Source) -> bool:
        """Take the version of the next record. False if an older input has a higher one, or a newer input a lower one."""
        epoch, offset = version >> (_GENERATION_BITS + _OFFSET_BITS), source.offset
        seen = self._seen.setdefault(source.partition, {})
        lowest, highest = seen.get(epoch, (offset, offset))
        seen[epoch] = min(lowest, offset), max(highest, offset)
        return not any(
            (other < epoch and last > offset) or (other > epoch and first < offset)
            for other, (first, last) in seen.items()
        )


@dataclass(slots=True, kw_only=True)
class Outputs:
    """The outputs in one topic. `dead_letters`: whether it is the dead-letter topic; `input_topic`: the one of the sources.

    `topic_id`: that of the input topic now. Outputs that name another one belong to an earlier topic, and are only counted.
    """

    checks: Checks
    ledgers: Mapping[int, PartitionLedger]
    input_topic: str
    topic_id: str | None
    dead_letters: bool
    counts: Counter[str] = field(default_factory=Counter)
    oldest: dict[int, int] = field(default_factory=dict)
    """The lowest source offset of each input partition."""
    values: int = 0
    """The number of outputs with a value, even if their headers are wrong."""
    _order: SourceOrder = field(default_factory=SourceOrder)
    _versions: VersionOrder = field(default_factory=VersionOrder)
    _begun: set[int] = field(default_factory=set)
    _earlier_first: set[int] = field(default_factory=set)

    def take(self, message: Message) -> None:
        """Note one committed output."""
        place = Place.of(message)
        headers = dead_letter_headers_by_name(message) if self.dead_letters else headers_by_name(message)
        source = self._source(message, headers)
        self.checks.headers.note(place, ok=source is not None)
        self.values += message.value() is not None
        is_first = place.partition not in self._begun
        self._begun.add(place.partition)
        if source is None:
            return
        if source.topic != self.input_topic:
            self.counts["of other input topics"] += 1
            return
        self._check_id(source, place)
        self._check_version(source, place)
        if not same_topic(source.topic_id, self.topic_id):
            self.counts[EARLIER] += 1
            if is_first:
                self._earlier_first.add(place.partition)
            return
        self._note(message, source, place)

    def is_cut(self, beginnings: Mapping[int, int]) -> bool:
        """Whether retention may have deleted outputs of the present topic, given where the partitions begin now.

        It has not if the first output that is left belongs to an earlier topic: those of the present one come after it.
        """
        return any(low and number not in self._earlier_first for number, low in beginnings.items())

    def _source(self, message: Message, headers: HeaderValues) -> Source | None:
        if self.dead_letters:
            return source_of_dead_letter(headers)
        return source_of_record(headers, tombstone=message.value() is None)

    def _check_id(self, source: Source, place: Place) -> None:
        if source.record_id is not None:
            self.checks.record_ids.note(place, ok=source.record_id == record_id(source))

    def _check_version(self, source: Source, place: Place) -> None:
        if source.version is None:  # dead letters have none
            return
        held = belongs_to(source.version, source)
        if held and same_topic(source.topic_id, self.topic_id):
            held = self._versions.keeps(source.version, source)
        self.checks.versions.note(place, ok=held)

    def _note(self, message: Message, source: Source, place: Place) -> None:
        self.oldest[source.partition] = min(source.offset, self.oldest.get(source.partition, source.offset))
        ledger = self.ledgers.get(source.partition)
        if ledger is None or source.offset >= ledger.end:
            self.checks.invented.note(Place(source.topic, source.partition, source.offset), ok=False)
            return
        if source.offset < ledger.low:
            self.counts["whose input is gone"] += 1
            return
        if not self._is_repeat(message, source, ledger):
            self._check_order(source, place)

    def _is_repeat(self, message: Message, source: Source, ledger: PartitionLedger) -> bool:
        key, value = message.key(), message.value()
        tombstone = value is None and not self.dead_letters
        self.counts["dead letters" if self.dead_letters else "tombstones" if tombstone else "records"] += 1
        if self.dead_letters:
            repeat = ledger.note_dead_letter(source.offset, key, value, source.omitted)
        else:
            repeat = ledger.note_record(source.offset, key, tombstone=tombstone)
        self.checks.doubled.note(Place(source.topic, source.partition, source.offset), ok=not repeat)
        return repeat

    def _check_order(self, source: Source, place: Place) -> None:
        self.checks.order.note(place, ok=self._order.keeps(place[:2], source.partition, source.offset))
        self.checks.partition.note(place, ok=place.partition == source.partition)
