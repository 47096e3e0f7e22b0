"""When it is asked where partitions begin, and what an answer that does not come means."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import pytest
from confluent_kafka import Consumer
from kafka.quiet import CLIENT_ERRORS, CONFIG, OTHER, PLACE, Quiet

from enricher.errors import SettingsError, TransactionTrouble
from enricher.worker.kafka.reading import start_offsets
from enricher.worker.kafka.reading.lookups import Lookups
from enricher.worker.kafka.reading.partition import State
from enricher.worker.kafka.reading.partitions import Partitions
from enricher.worker.kafka.reading.resume_errors import HiddenOutputs, StillSearching
from enricher.worker.kafka.reading.start_offsets import StartFinders, StartOffset
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.kafka.shared.topicwatch import TopicReplaced
from enricher.worker.records import Mark, Partition, Start

BEGINNING = StartOffset(Start(0, Mark()))


class Starts:
    """A finder that knows some committed offsets, and raises what it is told to."""

    def __init__(self) -> None:
        self.committed: dict[Partition, StartOffset] = {}
        self.trouble: Exception | None = None
        self.hidden: frozenset[Partition] = frozenset()
        self.asked = 0

    def find(self, partitions: Sequence[Partition], _timeout_s: float) -> Mapping[Partition, StartOffset]:
        """Those with a committed offset."""
        self.asked += 1
        return {each: self.committed[each] for each in partitions if each in self.committed}

    def determine(self, partitions: Sequence[Partition]) -> Mapping[Partition, StartOffset]:
        """All others begin at their beginning."""
        if self.trouble:
            raise self.trouble
        if hidden := self.hidden.intersection(partitions):
            message = "a transaction is open"
            raise HiddenOutputs(message, hidden)
        return dict.fromkeys(partitions, BEGINNING)


class Stage:
    """Two partitions that wait for their starts since 0 seconds."""

    def __init__(self) -> None:
        self.starts = Starts()
        self.partitions = Partitions(lambda _name: 10, bound_s=60, start_bound_s=80)
        self.partitions.add([PLACE, OTHER], 0.0)
        self.lookups = Lookups(self.partitions, cast("StartFinders", self.starts), Quiet().watch)
        self.now_s = time.monotonic()

    def look(self, after_s: float) -> Mapping[Partition, StartOffset]:
        """One turn of the loop, so long after the present."""
        return self.lookups.look(self.now_s + after_s)


@pytest.fixture
def stage() -> Stage:
    """The first look is due."""
    return Stage()


def test_committed_starts_come_before_those_that_are_determined(stage: Stage) -> None:
    """Only what has no committed offset is looked for elsewhere."""
    stage.starts.committed[PLACE] = at_7 = StartOffset(Start(7, Mark()))
    assert {PLACE: at_7, OTHER: BEGINNING} == stage.look(0)


def test_nothing_is_asked_while_none_waits_or_the_last_look_was_just_now(stage: Stage) -> None:
    """The loop turns a thousand times a second."""
    stage.look(0)
    assert {} == stage.look(0)
    assert 1 == stage.starts.asked
    stage.lookups.hurry()
    stage.look(0)
    assert 2 == stage.starts.asked
    stage.partitions.remove([PLACE, OTHER])
    stage.look(5)
    assert 2 == stage.starts.asked


def test_partitions_with_a_committed_offset_begin_although_the_others_cannot_be_determined(stage: Stage) -> None:
    """One missing answer holds up nobody else."""
    stage.starts.committed[PLACE] = BEGINNING
    stage.starts.trouble = TransactionTrouble("no broker answers")
    assert {PLACE: BEGINNING} == stage.look(0)
    assert stage.starts.trouble is stage.lookups.failure
    stage.starts.trouble = None
    assert {PLACE: BEGINNING, OTHER: BEGINNING} == stage.look(5)
    assert stage.lookups.failure is None


def test_only_those_whose_outputs_are_hidden_wait_for_the_transaction(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """That is said once for a while, and is progress, since the transaction has a bound of its own."""
    stage.starts.hidden = frozenset([PLACE])
    for after_s in (0, 5, 10):
        assert {OTHER: BEGINNING} == stage.look(after_s)
    assert [PLACE] == stage.partitions.of(State.HIDDEN)
    assert stage.now_s + 10 == stage.partitions[PLACE].progress_s
    assert 1 == caplog.text.count("a transaction is open")


def test_a_search_that_goes_on_is_progress_and_a_missing_answer_is_none(stage: Stage) -> None:
    """The search has a bound of its own."""
    stage.starts.trouble = StillSearching("not yet")
    stage.look(5)
    stage.starts.trouble = TransactionTrouble("no broker answers")
    stage.look(10)
    assert stage.now_s + 5 == stage.partitions[PLACE].progress_s


def test_a_failure_is_a_warning_once_that_lasts(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing of the partitions is read meanwhile. A look that fails once, as in many a rebalance, is none."""
    stage.partitions.add([PLACE, OTHER], stage.now_s)
    stage.starts.trouble = TransactionTrouble("no broker answers")
    stage.look(1)
    assert "" == caplog.text
    for after_s in (31, 32, 33):
        stage.look(after_s)
    warning = "the start of articles 3 4 has not been known for 31 s: no broker answers"
    assert 1 == caplog.text.count(warning) == caplog.text.count("known for")


@pytest.mark.parametrize("error", [TopicReplaced("another topic"), SettingsError("which offset?")])
def test_what_no_look_solves_is_raised(stage: Stage, error: Exception) -> None:
    """The caller recovers, or ends."""
    stage.starts.trouble = error
    with pytest.raises(type(error)):
        stage.look(0)


NOW = Partition("now", 0)


@pytest.fixture
def finders(monkeypatch: pytest.MonkeyPatch) -> dict[str, Starts]:
    """The finders of two topics, which `both` asks."""
    made: dict[str, Starts] = {}

    def new(_consumer: object, config: KafkaConfig, *_others: object) -> Starts:
        return made.setdefault(config.input_topic, Starts())

    monkeypatch.setattr(start_offsets, "StartFinder", new)
    return made


@pytest.fixture
def both(finders: dict[str, Starts]) -> StartFinders:
    """What a worker with two input topics asks."""
    quiet = Quiet()
    made = StartFinders(cast("Consumer", quiet), replace(CONFIG, other_inputs=(NOW.topic,)), quiet.watch, CLIENT_ERRORS)
    assert {PLACE.topic, NOW.topic} == finders.keys()
    return made


def test_what_hides_outputs_is_told_of_all_topics(finders: dict[str, Starts], both: StartFinders) -> None:
    """Else the partitions of the second topic would be given up on long before the transaction ends."""
    for finder, partition in zip(finders.values(), (PLACE, NOW), strict=True):
        finder.hidden = frozenset({partition})
    with pytest.raises(HiddenOutputs) as found:
        both.determine([PLACE, NOW])
    assert {PLACE, NOW} == found.value.partitions


def test_a_topic_that_cannot_tell_yet_holds_up_no_other(finders: dict[str, Starts], both: StartFinders) -> None:
    """It says so once it is alone."""
    finders[PLACE.topic].trouble = StillSearching("not yet")
    assert {NOW: BEGINNING} == both.determine([PLACE, NOW])
    with pytest.raises(StillSearching):
        both.determine([PLACE])
