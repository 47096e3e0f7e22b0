"""Takes outputs one by one: notes their sources in the ledgers, and what is wrong in the checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from confluent_kafka import Message

from enricher.kafka.metadata import headers_of
from enricher.verify.committed import same_topic
from enricher.verify.findings import EARLIER, Checks, Place
from enricher.verify.headers import Headers, Source, by_name, record_id, source_of_dead_letter, source_of_record
from enricher.verify.ledger import PartitionLedger, mark_of
from enricher.verify.order import Order


class Outputs:
    """The outputs in one topic. `dead_letters`: whether it is the dead-letter topic; `input_topic`: the one of the sources.

    `topic_id`: that of the input topic now. Outputs that name another one belong to an earlier topic, and are only counted.
    `same_partitions`: the topic has as many partitions as the input, so an output is in the partition of its input.
    """

    def __init__(
        self,
        checks: Checks,
        ledgers: Mapping[int, PartitionLedger],
        order: Order,
        *,
        input_topic: str,
        topic_id: str | None,
        dead_letters: bool,
        same_partitions: bool,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.oldest: dict[int, int] = {}
        """The lowest source offset of each input partition."""
        self.total = 0
        self.values = 0
        """How many have a value, even if their headers are wrong."""
        self._checks = checks
        self._ledgers = ledgers
        self._order = order
        self._input_topic = input_topic
        self._topic_id = topic_id
        self._begun: set[int] = set()
        self._earlier_first: set[int] = set()
        self._dead_letters = dead_letters
        self.same_partitions = same_partitions

    def take(self, message: Message) -> None:
        """Note one committed output."""
        place = Place(message.topic() or "", message.partition() or 0, message.offset() or 0)
        headers = by_name(headers_of(message))
        source = self._source(headers, tombstone=message.value() is None)
        self._checks.headers.checked += 1
        self.total += 1
        self.values += message.value() is not None
        is_first = place.partition not in self._begun
        self._begun.add(place.partition)
        if source is None:
            self._checks.headers.fail(place)
            return
        if source.topic != self._input_topic:
            self.counts["of other input topics"] += 1
            return
        self._check_id(source, place)
        if not same_topic(source.topic_id, self._topic_id):
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

    def _source(self, headers: Headers, *, tombstone: bool) -> Source | None:
        return source_of_dead_letter(headers) if self._dead_letters else source_of_record(headers, tombstone=tombstone)

    def _check_id(self, source: Source, place: Place) -> None:
        if source.record_id is not None:
            self._checks.record_ids.checked += 1
            if source.record_id != record_id(source.topic, source.partition, source.offset, source.topic_id):
                self._checks.record_ids.fail(place)

    def _note(self, message: Message, source: Source, place: Place) -> None:
        self.oldest[source.partition] = min(source.offset, self.oldest.get(source.partition, source.offset))
        ledger = self._ledgers.get(source.partition)
        if ledger is None or source.offset >= ledger.end:
            self._checks.invented.checked += 1
            self._checks.invented.fail(Place(source.topic, source.partition, source.offset))
            return
        if source.offset < ledger.low:
            self.counts["whose input is gone"] += 1
            return
        if not self._is_repeat(message, source, ledger):
            self._check_order(message, source, place)

    def _is_repeat(self, message: Message, source: Source, ledger: PartitionLedger) -> bool:
        key, value = message.key(), message.value()
        tombstone = value is None and not self._dead_letters
        self.counts["dead letters" if self._dead_letters else "tombstones" if tombstone else "records"] += 1
        mark = mark_of(key, value) if self._dead_letters else mark_of(key)
        repeat = ledger.note_output(
            source.offset, mark, tombstone=tombstone, dead_letter=self._dead_letters, shortened=source.shortened
        )
        self._checks.doubled.checked += 1
        if repeat:
            self._checks.doubled.fail(Place(source.topic, source.partition, source.offset))
        return repeat

    def _check_order(self, message: Message, source: Source, place: Place) -> None:
        self._checks.order.checked += 1
        if not self._order.keeps((place.topic, place.partition), (source.partition, source.offset), message.key()):
            self._checks.order.fail(place)
        if self.same_partitions:
            self._checks.partition.checked += 1
            if place.partition != source.partition:
                self._checks.partition.fail(place)
