"""The partitions of outputs while partitions are added, which brokers learn one after another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Producer
from kafka.clients import config_for, finished, grow, opened, poll_until, records_of, release_of, sink_for
from kafka.harness import read_all, source_of
from support.topics import Topics

from enricher.errors import TransactionTrouble
from enricher.kafka.client import KafkaConfig
from enricher.kafka.placement import Placement
from enricher.kafka.topicwatch import TopicWatch
from enricher.records import Partition, RawRecord, Ticket

INPUT, OUTPUT, LETTERS = "articles", "entities", "dead-letters"
ANY = -1
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


def placed(brokers: Brokers, number: int) -> Iterator[int]:
    """Where one output after the other of an input partition goes, with a count that was learnt before."""
    brokers.partitions = OLD
    placement = Placement(config(), lambda: cast("TopicWatch", brokers))
    producer = cast("Producer", brokers)
    placement.learn(producer)
    while True:
        placement.check(producer, [ticket(number)])
        yield placement.partition_of(ticket(number), OUTPUT)


def test_an_output_goes_to_its_inputs_partition_without_a_question() -> None:
    """There are as many as ever."""
    brokers = Brokers([NEW])
    assert next(placed(brokers, 5)) == 5
    assert brokers.asked == 0


def test_a_count_that_is_too_small_is_asked_for_until_the_brokers_have_heard_of_the_partition() -> None:
    """A broker that does not know the input's partition says nothing about the output's."""
    brokers = Brokers([OLD, OLD, NEW])
    assert next(placed(brokers, 6)) == 6
    assert brokers.asked == 3


def test_an_output_is_placed_by_its_key_where_there_are_really_fewer_partitions() -> None:
    """The broker that says so knows the input's partition. It is asked once."""
    brokers = Brokers([GREW_ALONE])
    places = placed(brokers, 6)
    assert [ANY, ANY] == [next(places), next(places)]
    assert brokers.asked == 1


def test_partitions_that_are_added_later_are_used() -> None:
    """Every transaction hears the counts."""
    brokers = Brokers([GREW_ALONE])
    places = placed(brokers, 6)
    assert next(places) == ANY
    brokers.answers = [NEW]
    brokers.confirm()
    assert next(places) == 6


def test_a_new_producer_whose_broker_has_not_heard_asks_again() -> None:
    """What another producer knew says nothing about this one."""
    brokers = Brokers([GREW_ALONE])
    brokers.partitions = OLD
    placement, producer = Placement(config(), lambda: cast("TopicWatch", brokers)), cast("Producer", brokers)
    placement.learn(producer)
    placement.check(producer, [ticket(6)])
    brokers.partitions = GREW_ALONE | {OUTPUT: 5}
    placement.learn(producer)
    brokers.partitions = GREW_ALONE
    placement.check(producer, [ticket(5), ticket(6)])
    assert brokers.asked == 2
    assert placement.partition_of(ticket(5), OUTPUT) == 5


def test_nothing_is_placed_by_its_key_while_the_brokers_have_not_heard() -> None:
    """After the request timeout it is trouble: order per key is not given up."""
    with pytest.raises(TransactionTrouble, match="not all brokers have heard of partition 6"):
        next(placed(Brokers([OLD]), 6))


@pytest.mark.broker
def test_outputs_of_added_partitions_go_there_with_a_producer_that_is_older(topics: Topics) -> None:
    """All of them, whatever their keys."""
    config = config_for(topics, properties={"topic.metadata.refresh.interval.ms": 500})
    source, diary = opened(config)
    sink, _ = sink_for(source, config)
    grow(topics, 6, topics.output, topics.dead_letters, topics.input)
    poll_until(source, lambda: len(diary.owned) == 6, 60)
    producer = Producer({"bootstrap.servers": topics.bootstrap_servers})
    for number in range(20):
        producer.produce(topics.input, b"value", b"%d" % number, partition=5)
    assert producer.flush(20) == 0
    sink.publish(release_of(records_of(source, 20)))
    outputs = read_all(topics.bootstrap_servers, topics.output)
    assert [(5, 5)] * 20 == [(message.partition(), source_of(message)[0]) for message in outputs]
