"""`BehindOutputs` finds where a group stood that has lost its committed offsets, from its newest outputs.

Every output names its input's partition and offset and was committed with it, and the outputs of one partition are in the
order of these offsets. So the newest output of a partition (or dead letter, if that is newer) shows where to go on. Two
things hide newer outputs. An open transaction is waited for. Compaction removes outputs, deletions of articles above all:
where it may have removed the newest outputs, the newest one that is left is only a lower bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from enricher.errors import BrokerError, NoAnswer
from enricher.operate.inspector import Inspector
from enricher.worker.kafka.metadata import headers_of
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.ranges import Progress, RangeReader
from enricher.worker.records import Headers
from enricher.worker.runtime.deadlines import Deadline, until

_OPEN_S = 30.0
"""How much longer than its timeout a transaction of a killed worker may stay open: brokers look every 10 s."""
_ASK_AGAIN_S = 0.5
_FIRST_LOOK = 64  # offsets from the end; nearly always the very last record is ours
_WIDEN = 16
_SOURCES = ("enricher.source", "enricher.dlq.source")
_MARKER = 1
"""Offsets without a record behind our newest output that are no sign of a missing one: a missing output would leave two, its
own and that of the marker which ended its transaction."""


@dataclass(frozen=True, slots=True)
class _Newest:
    """Our newest output in one partition. `next_offset`: behind its input; None if there is none of this topic.

    `recordless`: offsets behind that output at which there is no record: markers, aborted records, removed ones.
    """

    next_offset: int | None
    recordless: int


class BehindOutputs:
    """Searches the output topics of `config` for outputs of its input topic."""

    def __init__(self, config: KafkaConfig, ask: Inspector, progress: Progress) -> None:
        self._config = config
        self._ask = ask
        self._progress = progress
        self._topic_id = ask.topic_id(config.input_topic)

    def next_offsets(self, numbers: Sequence[int]) -> dict[int, int]:
        """The offset after the newest input with an output; partitions without outputs are left out.

        Blocks while a transaction is open, and for the search. Raises NoAnswer if it stays open, BrokerError if the outputs
        cannot tell, or may not be read.
        """
        found: dict[int, int] = {}
        doubtful: dict[int, str] = {}
        for topic in dict.fromkeys((self._config.output_topic, self._config.dead_letter_topic)):
            for number, newest in self._newest_in(topic, numbers).items():
                if newest.next_offset is not None:
                    found[number] = max(found.get(number, 0), newest.next_offset)
                if newest.recordless > _MARKER:
                    doubtful.setdefault(number, topic)
        self._check(found, doubtful)
        return found

    def _newest_in(self, topic: str, numbers: Sequence[int]) -> dict[int, _Newest]:
        there = self._ask.partitions(topic)
        written = {number for number, end in self._ask.ends(topic, there, committed_only=False).items() if end}
        # An end of 0 means that the partition was never written, not even with a transaction marker.
        if not written:
            return {}
        if beyond := [number for number in numbers if number >= len(there)]:
            raise self._cannot_tell(
                beyond[0], f"'{topic}' has only {len(there)} partitions, so it may be in any of them"
            )
        bounds = self._stable_bounds(topic, [number for number in numbers if number in written])
        newest = self._search(topic, bounds)
        for number, (low, _end) in bounds.items():
            if low > 0 and number not in newest:
                raise self._cannot_tell(number, f"its records in '{topic}' were deleted")
        return newest

    def _stable_bounds(self, topic: str, numbers: Sequence[int]) -> dict[int, tuple[int, int]]:
        """The first offset of each partition, and its end, once no transaction hides what is there now.

        Transactions that begin meanwhile are not waited for: a shared topic may always have one open.
        """
        marks = self._ask.ends(topic, numbers, committed_only=False)
        stable: dict[int, int] = {}

        def all_visible() -> bool:
            stable.update(self._ask.ends(topic, numbers, committed_only=True))
            self._progress(f"waiting for open transactions in '{topic}'", sum(stable.values()), sum(marks.values()))
            return all(stable[number] >= mark for number, mark in marks.items())

        if not until(all_visible, Deadline(self._config.transaction_timeout_s + _OPEN_S), pause_s=_ASK_AGAIN_S):
            hidden = ", ".join(str(number) for number, mark in marks.items() if stable[number] < mark)
            raise NoAnswer(
                f"an open transaction in '{topic}', partitions {hidden}, hides what is behind it. Wait for its end, or end "
                "it with kafka-transactions (find-hanging, abort), and run this again"
            )
        lows = self._ask.beginnings(topic, numbers)
        return {number: (lows[number], end) for number, end in stable.items()}

    def _search(self, topic: str, bounds: Mapping[int, tuple[int, int]]) -> dict[int, _Newest]:
        """Our newest output in each partition, found backwards from the end in growing steps."""
        found, records = dict[int, tuple[int, int | None]](), Counter[int]()
        ends, offsets = {number: end for number, (_low, end) in bounds.items()}, _FIRST_LOOK
        with closing(RangeReader(self._config, committed_only=True, progress=self._progress)) as reader:
            while ends:
                starts = {number: max(bounds[number][0], end - offsets) for number, end in ends.items()}
                behind = records.copy()
                ranges = {number: (start, ends[number]) for number, start in starts.items()}
                for message in reader.read(topic, ranges, f"searching '{topic}' for the newest outputs"):
                    number, offset = message.partition() or 0, message.offset() or 0
                    source = _source_of(headers_of(message), self._config.input_topic, number)
                    if source is None:
                        records[number] += 1
                    else:
                        found[number], records[number] = (offset, self._next_offset(*source)), behind[number]
                ends = {n: start for n, start in starts.items() if n not in found and start > bounds[n][0]}
                offsets *= _WIDEN
        newest = {}
        for number, (low, end) in bounds.items():
            at, next_offset = found.get(number, (low - 1, None))
            if number in found or low == 0:
                newest[number] = _Newest(next_offset, end - at - 1 - records[number])
        return newest

    def _next_offset(self, offset: int, topic_id: str | None) -> int | None:
        """The offset behind this input; None if the input was in an earlier topic of the name."""
        return offset + 1 if topic_id in {None, self._topic_id} else None

    def _check(self, found: Mapping[int, int], doubtful: Mapping[int, str]) -> None:
        """Raise BrokerError for an output of an earlier topic, or if compaction may have removed the newest output."""
        topic = self._config.input_topic
        ends = self._ask.ends(topic, [*found.keys() | doubtful.keys()], committed_only=True)
        for number, offset in found.items():
            # Nothing else shows it where brokers have no topic ids.
            if offset > ends[number]:
                reason = f"its newest output is of offset {offset - 1}, and the topic ends at {ends[number]}"
                raise self._cannot_tell(number, reason)
        for number, output_topic in doubtful.items():
            # At the end of the input there is nothing left that could have an output.
            if found.get(number, 0) >= ends[number]:
                continue
            compacted = self._ask.is_compacted(output_topic)
            if compacted is not False:
                how = "is compacted" if compacted else "may be compacted (only DESCRIBE_CONFIGS on it tells)"
                reason = f"'{output_topic}' {how}, and behind its newest output are offsets without a record"
                raise self._cannot_tell(number, reason)

    def _cannot_tell(self, number: int, reason: str) -> BrokerError:
        return BrokerError(
            f"the outputs of {self._config.input_topic}[{number}] do not show where the group stood: {reason}. "
            "Give its offset (--partition NUMBER --at OFFSET), or --at beginning to read everything again, or --at end"
        )


def _source_of(headers: Headers, topic: str, number: int) -> tuple[int, str | None] | None:
    """Offset and topic id of the input that these headers name, if it is in this partition of the topic.

    Our headers come last, so the last header of a name counts.
    """
    values = {name: value for name, value in headers if value is not None}
    prefix = _SOURCES["enricher.dlq.stage" in values]
    offset, topic_id = values.get(f"{prefix}.offset", b""), values.get(f"{prefix}.topic.id")
    named = values.get(f"{prefix}.topic"), values.get(f"{prefix}.partition")
    is_offset = offset.isdigit() and len(offset) < 20  # 64 bits have no more digits
    if named != (topic.encode(), b"%d" % number) or not is_offset or not (topic_id or b"").isascii():
        return None
    return int(offset), topic_id.decode() if topic_id else None
