"""Gets the articles of a comparison: from a file, a range of the input topic, its live end, or those of output records.

Nothing here joins a group, commits an offset or writes a record.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from enricher.errors import FatalError
from enricher.worker.articles.record_formats import record_as_json
from enricher.worker.files import Line, read_lines
from enricher.worker.heads import KINDS
from enricher.worker.kafka.reading.ranges import RangeReader
from enricher.worker.kafka.shared.client_errors import Complaint
from enricher.worker.kafka.shared.errors import broker_errors
from enricher.worker.kafka.shared.lone_consumers import lone_reader, may_pass
from enricher.worker.kafka.shared.metadata import bounds_of, headers_of, partitions_of, raw_record
from enricher.worker.kafka.shared.partition_reader import NO_END
from enricher.worker.records import Partition, RawRecord
from enricher.worker.runtime.deadlines import Deadline
from enricher.workshop.comparison.offset_ranges import clip

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confluent_kafka import Message

    from enricher.worker.kafka.reading.ranges import Progress
    from enricher.worker.kafka.shared.client import KafkaConfig
    from enricher.worker.kafka.shared.partition_reader import Ranges

_MAX_BYTES = 512 * 2**20
"""All articles of a comparison are in memory."""
_KEPT = {"coverage", "language", "model", *(kind.listed_in for kind in KINDS.values() if kind.labelled)}
"""The fields of a record that are kept; the others may be large."""
_MAX_LINE_BYTES = 128 * 2**20


@dataclass(slots=True)
class Sample:
    """At most `most` articles, of at most 512 MiB. `remarks`: sentences that a reader of the result should know."""

    most: int
    records: list[RawRecord] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    _bytes: int = 0

    def skip(self, number: int, offsets: range) -> None:
        """Note records that no client can read."""
        self.remarks.append(f"{len(offsets):,} records of partition {number} cannot be read (a damaged batch).")

    def take(self, records: Iterable[RawRecord]) -> None:
        """Take records until there are enough."""
        for record in records:
            if len(self.records) == self.most:
                self.remarks.append(f"Only {self.most:,} articles are compared (--max).")
                return
            self._bytes += record.size_bytes
            if self._bytes > _MAX_BYTES:
                self.remarks.append("Only the articles that fit into 512 MiB are compared.")
                return
            self.records.append(record)


def file_sample(path: Path, most: int) -> Sample:
    """The first articles of a file of JSON lines, plain or gzip. Raises FatalError."""
    sample = Sample(most)
    try:
        with path.open("rb") as stream:
            lines = read_lines(stream, str(path), max_line_bytes=_MAX_LINE_BYTES, gzipped=path.suffix == ".gz")
            place = Partition(str(path), 0)
            sample.take(RawRecord(place, each.number, None, each.value) for each in lines if isinstance(each, Line))
    except OSError as error:
        raise FatalError(f"cannot open {path}: {error.strerror}") from error
    return sample


def topic_sample(config: KafkaConfig, topic: str, ranges: Ranges, most: int, progress: Progress) -> Sample:
    """The committed records of a range that have a value. Raises BrokerError."""
    sample = Sample(most)
    with closing(RangeReader(config, committed_only=True, progress=progress)) as reader:
        messages = reader.read(topic, ranges, f"reading '{topic}'", sample.skip)
        sample.take(raw_record(each) for each in messages if each.value() is not None)
    return sample


def live_sample(config: KafkaConfig, topic: str, seconds: float, most: int) -> Sample:
    """The records that are written within the next `seconds`. Blocks for that time. Raises BrokerError."""
    sample, complaint = Sample(most), Complaint()
    with closing(lone_reader(config, complaint, {})) as reader:
        consumer, timeout_s = reader.consumer, config.request_timeout_s
        with broker_errors(consumer, f"following '{topic}'", complaint):
            found = partitions_of(consumer, topic, timeout_s)
            ranges = {each.number: (bounds_of(consumer, each, timeout_s)[1], NO_END) for each in found}
            messages = reader.read(topic, ranges, may_pass, deadline=Deadline(seconds))
            sample.take(raw_record(each) for each in messages if each and not each.error() and each.value() is not None)
    return sample


@dataclass(slots=True)
class Written:
    """Records of the output topic by the partition and offset of their article."""

    records: dict[tuple[int, int], Mapping[str, Any]] = field(default_factory=dict)
    foreign: int = 0
    """The number of records that no worker wrote, or whose articles are in another topic."""


def written_records(config: KafkaConfig, ranges: Ranges, most: int, progress: Progress) -> Written:
    """Read the records in a range of the output topic, in any format of a worker. Raises BrokerError, SettingsError."""
    written = Written()
    with closing(RangeReader(config, committed_only=True, progress=progress)) as reader:
        for message in reader.read(config.output_topic, ranges, f"reading '{config.output_topic}'"):
            if message.value() is None:
                continue
            found = _record_of(message, config.input_topic)
            if found is None:
                written.foreign += 1
                continue
            place, record = found
            written.records[place] = {name: each for name, each in record.items() if name in _KEPT}
            if len(written.records) == most:
                break
    return written


def _record_of(message: Message, input_topic: str) -> tuple[tuple[int, int], Mapping[str, Any]] | None:
    """Partition and offset of the article, and the record; None if no worker wrote it about an article of the topic."""
    headers = dict(headers_of(message))
    try:
        place = int(headers["enricher.source.partition"] or b""), int(headers["enricher.source.offset"] or b"")
        topic = headers["enricher.source.topic"]
        record = orjson.loads(record_as_json(message.value() or b"", headers.get("content-type")))
    except (KeyError, ValueError):
        return None
    return (place, record) if topic == input_topic.encode() and isinstance(record, dict) else None


def articles_behind(config: KafkaConfig, written: Written, progress: Progress) -> Sample:
    """The articles of `written` that the input topic still has. Raises BrokerError."""
    ranges: dict[int, tuple[int, int]] = {}
    for number, offset in written.records:
        low, end = ranges.get(number, (offset, offset + 1))
        ranges[number] = min(low, offset), max(end, offset + 1)
    sample, there = Sample(len(written.records)), clip(config, config.input_topic, ranges)
    with closing(RangeReader(config, committed_only=True, progress=progress)) as reader:
        messages = reader.read(config.input_topic, there, f"reading '{config.input_topic}'", sample.skip)
        sample.take(
            each
            for each in map(raw_record, messages)
            if each.value is not None and (each.partition.number, each.offset) in written.records
        )
    if missing := len(written.records) - len(sample.records):
        sample.remarks.append(f"The articles of {missing:,} records are no longer in '{config.input_topic}'.")
    if written.foreign:
        sample.remarks.append(
            f"{written.foreign:,} records of '{config.output_topic}' were not written by a worker about an article of "
            f"'{config.input_topic}'."
        )
    return sample
