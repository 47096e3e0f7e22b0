"""Gets the articles of a comparison: from a file, or the newest or next ones of the input topic.

Nothing here joins a group, commits an offset or writes a record.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from enricher.errors import FatalError
from enricher.worker.files import Line, read_lines
from enricher.worker.kafka.errors import Complaint, broker_errors
from enricher.worker.kafka.metadata import bounds_of, partitions_of, raw_record
from enricher.worker.kafka.partition_reader import NO_END, lone_reader, may_pass
from enricher.worker.kafka.ranges import RangeReader
from enricher.worker.records import Partition, RawRecord
from enricher.worker.runtime.deadlines import Deadline

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka import Consumer

    from enricher.worker.kafka.properties import KafkaConfig
    from enricher.worker.kafka.ranges import Progress

_MAX_BYTES = 512 * 2**20
"""All articles of a comparison are in memory."""
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


def newest_sample(config: KafkaConfig, most: int, progress: Progress) -> Sample:
    """The newest committed records of the input topic that have a value, about as many of each partition that has any.

    Raises BrokerError.
    """
    sample, topic, complaint = Sample(most), config.input_topic, Complaint()
    with closing(lone_reader(config, complaint, {})) as reader:
        bounds = _bounds(reader.consumer, config, complaint)
    of_each = -(-most // max(1, sum(low < high for low, high in bounds.values())))
    ranges = {number: (max(low, high - of_each), high) for number, (low, high) in bounds.items()}
    with closing(RangeReader(config, committed_only=True, progress=progress)) as reading:
        messages = reading.read(topic, ranges, f"reading '{topic}'", sample.skip)
        sample.take(raw_record(each) for each in messages if each.value() is not None)
    return sample


def live_sample(config: KafkaConfig, seconds: float, most: int) -> Sample:
    """The records that are written to the input topic in the next `seconds`. Blocks for that time. Raises BrokerError."""
    sample, topic, complaint = Sample(most), config.input_topic, Complaint()
    with closing(lone_reader(config, complaint, {})) as reader:
        ranges = {number: (high, NO_END) for number, (_, high) in _bounds(reader.consumer, config, complaint).items()}
        with broker_errors(reader.consumer, f"following '{topic}'", complaint):
            messages = reader.read(topic, ranges, may_pass, deadline=Deadline(seconds))
            sample.take(raw_record(each) for each in messages if each and not each.error() and each.value() is not None)
    return sample


def _bounds(consumer: Consumer, config: KafkaConfig, complaint: Complaint) -> dict[int, tuple[int, int]]:
    """The first offset and the end of each partition of the input topic."""
    topic, timeout_s = config.input_topic, config.request_timeout_s
    with broker_errors(consumer, f"asking for the offsets of '{topic}'", complaint):
        return {each.number: bounds_of(consumer, each, timeout_s) for each in partitions_of(consumer, topic, timeout_s)}
