"""The offsets of a topic that are compared: from one time to another, and about so many records at most."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING

from enricher.errors import SettingsError
from enricher.worker.kafka.shared.client_errors import Complaint
from enricher.worker.kafka.shared.errors import broker_errors
from enricher.worker.kafka.shared.lone_consumers import lone_consumer
from enricher.worker.kafka.shared.metadata import answer_to, bounds_of, offsets_at_time, partitions_of
from enricher.worker.runtime.deadlines import Deadline

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from enricher.worker.kafka.shared.client import KafkaConfig
    from enricher.worker.kafka.shared.partition_reader import Ranges


def ranges_of(config: KafkaConfig, topic: str, begin: datetime | None, end: datetime | None, most: int) -> Ranges:
    """The offsets of each partition, together about `most`: the first ones from `begin` on, else the last ones.

    Raises BrokerError; SettingsError if no offset is left.
    """
    complaint = Complaint()
    consumer = lone_consumer(config, complaint, {"isolation.level": "read_committed"})
    timeout_s = config.request_timeout_s
    with closing(consumer), broker_errors(consumer, f"asking for the offsets of '{topic}'", complaint):
        found = {
            each.number: bounds_of(consumer, each, timeout_s) for each in partitions_of(consumer, topic, timeout_s)
        }
        lows = {number: low for number, (low, _) in found.items()} | _at(consumer, topic, [*found], begin, timeout_s)
        highs = {number: high for number, (_, high) in found.items()}
        if begin is not None:
            lows = {number: min(lows[number], highs[number]) for number in found}
        highs |= {
            number: min(highs[number], at) for number, at in _at(consumer, topic, [*found], end, timeout_s).items()
        }
    each_most = -(-most // max(1, len(found)))
    ranges: dict[int, tuple[int, int]] = {}
    for number, low in lows.items():
        high = max(low, highs[number])
        ranges[number] = (low, min(high, low + each_most)) if begin else (max(low, high - each_most), high)
    if all(low == high for low, high in ranges.values()):
        raise SettingsError(f"there is no record of '{topic}' to compare in this range")
    return ranges


def clip(config: KafkaConfig, topic: str, ranges: Ranges) -> Ranges:
    """The part of the ranges that the topic still has: a reader would wait for the rest in vain. Raises BrokerError."""
    complaint = Complaint()
    consumer = lone_consumer(config, complaint, {"isolation.level": "read_committed"})
    with closing(consumer), broker_errors(consumer, f"asking for the offsets of '{topic}'", complaint):
        timeout_s = config.request_timeout_s
        partitions = [each for each in partitions_of(consumer, topic, timeout_s) if each.number in ranges]
        found = {each.number: bounds_of(consumer, each, timeout_s) for each in partitions}
    return {
        number: (max(low, ranges[number][0]), min(high, ranges[number][1])) for number, (low, high) in found.items()
    }


def _at(consumer: Consumer, topic: str, numbers: list[int], time: datetime | None, timeout_s: float) -> dict[int, int]:
    """The first offset of each partition with this time or a later one; partitions without one are at their end."""
    if time is None:
        return {}
    found = answer_to(
        lambda left_s: offsets_at_time(consumer, topic, numbers, time.timestamp(), left_s), Deadline(timeout_s)
    )
    return {number: 2**63 - 1 if offset is None else offset for number, offset in found.items()}
