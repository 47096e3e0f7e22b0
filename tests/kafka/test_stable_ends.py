"""Up to where outputs are searched while other producers have transactions open."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import cast

import pytest
from kafka.quiet import CONFIG, PLACE

from enricher.errors import SettingsError
from enricher.worker.kafka.reading import stable_ends
from enricher.worker.kafka.reading.resume_errors import HiddenOutputs
from enricher.worker.kafka.reading.stable_ends import StableEnds
from enricher.worker.kafka.shared.topicwatch import TopicWatch
from enricher.worker.records import Partition

OUTPUT = Partition(CONFIG.output_topic, PLACE.number)


class Log:
    """One partition of the output topic, as brokers tell of it."""

    def __init__(self, stable: int, high: int) -> None:
        self.stable, self.high = stable, high

    def beginnings(self, places: Collection[Partition]) -> Mapping[Partition, int]:
        """The first two records are deleted."""
        return dict.fromkeys(places, 2)

    def last_offsets(self, places: Collection[Partition]) -> Mapping[Partition, int]:
        """Up to the first record of an open transaction."""
        return dict.fromkeys(places, self.stable)

    def high_watermarks(self, places: Collection[Partition]) -> Mapping[Partition, int]:
        """With its records."""
        return dict.fromkeys(places, self.high)


def ends_of(log: Log) -> StableEnds:
    """What is asked about the log."""
    return StableEnds(CONFIG, cast("TopicWatch", log))


def test_what_was_there_at_first_is_waited_for_and_what_came_later_is_not() -> None:
    """A topic that others write to always has a transaction open."""
    log = Log(stable=5, high=9)
    ends = ends_of(log)
    for log.stable, log.high in ((5, 9), (8, 20)):
        with pytest.raises(HiddenOutputs, match="a transaction is open in entities 3") as hidden:
            ends.bounds([OUTPUT])
        assert {PLACE} == hidden.value.partitions, "the input whose outputs are hidden"
    log.stable = 9
    assert {OUTPUT: (2, 9)} == ends.bounds([OUTPUT])


def test_the_next_question_is_about_what_is_there_by_then() -> None:
    """A partition may come back after others have worked on it."""
    log = Log(stable=9, high=9)
    ends = ends_of(log)
    ends.bounds([OUTPUT])
    ends.forget([OUTPUT])
    log.high = 20
    with pytest.raises(HiddenOutputs):
        ends.bounds([OUTPUT])


def test_a_transaction_that_no_broker_ends_needs_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says where it is and what to do."""
    monkeypatch.setattr(stable_ends, "OPEN_S", -1.0)
    with pytest.raises(SettingsError, match=r"'entities', partition 3, .*find-hanging.*--reset-offsets"):
        ends_of(Log(stable=5, high=9)).bounds([OUTPUT])
