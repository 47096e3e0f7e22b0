"""Finds the offsets of a topic that are compared: between two bounds, and for about a given number of records."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from enricher.worker.commands.bounds import Bound, ranges_between
from enricher.worker.kafka.shared.client_errors import Complaint
from enricher.worker.kafka.shared.errors import broker_errors
from enricher.worker.kafka.shared.lone_consumers import lone_consumer
from enricher.worker.kafka.shared.metadata import answer_to, bounds_of, offsets_at_time, partitions_of
from enricher.worker.runtime.deadlines import Deadline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from enricher.worker.kafka.shared.client import KafkaConfig
    from enricher.worker.kafka.shared.partition_reader import Ranges


def ranges_of(config: KafkaConfig, topic: str, begin: Bound | None, end: Bound | None, most: int) -> Ranges:
    """Ranges of each partition, together about `most` offsets: the first from `begin` on, or without it the last.

    Raises BrokerError; SettingsError as `ranges_between` does.
    """
    start, stop = begin or Bound.parse("--from", "beginning"), end or Bound.parse("--to", "end")
    complaint = Complaint()
    consumer = lone_consumer(config, complaint, {"isolation.level": "read_committed"})
    timeout_s = config.request_timeout_s

    def at_time(numbers: Sequence[int], time_s: float) -> Mapping[int, int | None]:
        return answer_to(lambda left_s: offsets_at_time(consumer, topic, numbers, time_s, left_s), Deadline(timeout_s))

    with closing(consumer), broker_errors(consumer, f"asking for the offsets of '{topic}'", complaint):
        found = {
            each.number: bounds_of(consumer, each, timeout_s) for each in partitions_of(consumer, topic, timeout_s)
        }
        firsts, ends = ({number: bounds[side] for number, bounds in found.items()} for side in (0, 1))
        ranges = ranges_between(topic, start, stop, firsts, ends, at_time)
    each_most = -(-most // len(ranges))
    return {
        number: (low, min(high, low + each_most)) if begin else (max(low, high - each_most), high)
        for number, (low, high) in ranges.items()
    }


def clip(config: KafkaConfig, topic: str, ranges: Ranges) -> Ranges:
    """The part of the ranges that the topic still has, because a reader would wait for the rest. Raises BrokerError."""
    complaint = Complaint()
    consumer = lone_consumer(config, complaint, {"isolation.level": "read_committed"})
    with closing(consumer), broker_errors(consumer, f"asking for the offsets of '{topic}'", complaint):
        timeout_s = config.request_timeout_s
        partitions = [each for each in partitions_of(consumer, topic, timeout_s) if each.number in ranges]
        found = {each.number: bounds_of(consumer, each, timeout_s) for each in partitions}
    return {
        number: (max(low, ranges[number][0]), min(high, ranges[number][1])) for number, (low, high) in found.items()
    }
