"""The partitions of outputs while partitions are added, which brokers learn one after another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Producer
from kafka.clients import (
    begin,
    config_for,
    finished,
    grow,
    opened,
    records_of,
    release_of,
    sink_for,
)
from kafka.harness import source_of
from support.operating import write
from support.reading import read_all
from support.topics import Topics

from enricher.errors import SettingsError, TransactionTrouble
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.topicwatch import TopicWatch
from enricher.worker.kafka.transaction import Placement
from enricher.worker.records import Partition, RawRecord, Ticket

INPUT, OUTPUT, LETTERS = "articles", "entities", "dead-letters"
OLD, NEW = {INPUT: 6, OUTPUT: 6, LETTERS: 6}, {INPUT: 7, OUTPUT: 7, LETTERS: 7}
GREW_ALONE = NEW | {OUTPUT: 6}


@dataclass(slots=True)
class Brokers:
    """The answers to each request; the last one is repeated."""

    answers: list[Mapping[str, int]]
    partitions: Mapping[str, int] = field(default_factory=dict)
    asked: int = 0

    def ask(self) -> None:
        """Count it."""
        self.asked += 1

    def confirm(self) -> None:
        """The next answer."""
        self.partitions = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def list_topics(self, topic: str, timeout: float) -> Any:  # noqa: ANN401, ARG002  the client's own signature
        """A producer's broker answers the same."""
        partitions = dict.fromkeys(range(self.partitions[topic]))
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=partitions)})


def ticket(number: int) -> Ticket:
    """Of an input partition."""
    return finished(RawRecord(Partition(INPUT, number), 0, b"key", b"value", (), None))


def config() -> KafkaConfig:
    """A configuration with a short request timeout."""
    names = Topics("", INPUT, OUTPUT, LETTERS, "group", {})
    return config_for(names, request_timeout_s=0.5)


def check(brokers: Brokers, number: int) -> None:
    """Check twice whether an output of this input partition can be placed, with a count that was learnt before."""
    brokers.partitions = OLD
    placement = Placement(config(), lambda: cast("TopicWatch", brokers))
    producer = cast("Producer", brokers)
    placement.learn(producer)
    for _ in range(2):
        placement.check(producer, [ticket(number)])


@pytest.mark.parametrize(
    ("answers", "number", "asked"),
    [
        pytest.param([NEW], 5, 0, id="there are as many as ever"),
        pytest.param([OLD, OLD, NEW], 6, 3, id="not all brokers have heard of the partition"),
        pytest.param([GREW_ALONE, GREW_ALONE, NEW], 6, 3, id="the output grows after the input"),
    ],
)
def test_a_count_that_is_too_small_is_requested_again(
    answers: list[Mapping[str, int]], number: int, asked: int
) -> None:
    """Only the broker that knows the input's partition is believed."""
    brokers = Brokers(answers)
    check(brokers, number)
    assert asked == brokers.asked


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answers", "error", "message"),
    [
        (OLD, TransactionTrouble, "not all brokers have heard of partition 6"),
        (GREW_ALONE, SettingsError, r"has 7 partitions.*entities 6.*--alter --partitions 7"),
    ],
)
def test_no_output_is_placed_by_its_key(answers: Mapping[str, int], error: type[Exception], message: str) -> None:
    """After the request timeout it is trouble, or refused as at the start: order per key is not given up."""
    with pytest.raises(error, match=message):
        check(Brokers([answers]), 6)


@pytest.mark.broker
def test_outputs_of_added_partitions_go_there_with_an_older_producer(topics: Topics) -> None:
    """All of them, whatever their keys."""
    config = config_for(topics, properties={"topic.metadata.refresh.interval.ms": 500})
    source, diary = opened(config)
    sink, _ = sink_for(source, config)
    grow(topics, 6, topics.output, topics.dead_letters, topics.input)
    begin(source, diary, config, partitions=6)
    records = ({"value": b"value", "key": b"%d" % number, "partition": 5} for number in range(20))
    write(topics.bootstrap_servers, topics.input, records)
    sink.publish(release_of(records_of(source, 20)))
    outputs = read_all(topics.bootstrap_servers, topics.output)
    assert [(5, 5)] * 20 == [(message.partition(), source_of(message)[0]) for message in outputs]
