"""The range of a replay, as offsets of every partition of its topic."""

from __future__ import annotations

from datetime import datetime

from enricher.operate.inspect.inspector import Inspector
from enricher.worker.commands.bounds import Bound, ranges_between, require_forward
from enricher.worker.kafka.shared.partition_reader import Ranges


def ranges_of(ask: Inspector, topic: str, start: Bound, end: Bound, now: datetime) -> Ranges:
    """The offsets of each partition of the topic; an empty range for one that is left out.

    Raises BrokerError; SettingsError for a range that is empty, reversed, in the future, or not in the topic.
    """
    require_forward(start, end, now)
    numbers = ask.partitions(topic)
    firsts, ends = ask.beginnings(topic, numbers), ask.ends(topic, numbers, committed_only=False)
    ranges = ranges_between(topic, start, end, firsts, ends, lambda asked, time_s: ask.at_time(topic, asked, time_s))
    return {number: (firsts[number], firsts[number]) for number in numbers} | {**ranges}
