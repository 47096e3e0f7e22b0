"""The reader of the output topic on a real broker: what it commits, and when it gives up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from typing import ClassVar

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from kafka.clients import config_for
from kafka.harness import Sent, publish
from support.closing import CLOSING
from support.made_again import make_again
from support.patience import PATIENCE_S, wait_until
from support.reading import committed_and_ends
from support.topics import Topics

from enricher.errors import RecoveryExhausted, TransactionTrouble
from enricher.indexing import output_reader
from enricher.indexing.output_reader import OutputReader
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.topicwatch import TopicReplaced
from enricher.worker.records import RawRecord
from tools.chaos.proxy import Proxy
from tools.chaos.rules import Cut, Match

pytestmark = pytest.mark.broker


@pytest.fixture
def config(topics: Topics) -> KafkaConfig:
    """The indexers' group reads the output topic."""
    letters = topics.dead_letters
    return replace(
        config_for(topics), group_id=f"{topics.group}.index", input_topic=topics.output, output_topic=letters
    )


def opened(config: KafkaConfig, give_up_s: float = 60.0, index_id: str = "an-index") -> OutputReader:
    """A reader in the group."""
    reader = OutputReader(config, give_up_s=give_up_s, most_row=10)
    reader.open(index_id)
    return reader


def read(reader: OutputReader, count: int) -> list[RawRecord]:
    """So many records."""
    records: list[RawRecord] = []

    def are_there() -> bool:
        records.extend(reader.poll(100, 0.1))
        return len(records) >= count

    wait_until(are_there, PATIENCE_S, f"{count} records", 0.0)
    return records


@pytest.fixture
def three_records(topics: Topics) -> None:
    """Of one key, so in one partition."""
    publish(topics.bootstrap_servers, topics.output, [Sent(b"k", b"%d" % number) for number in range(3)])


@pytest.fixture
def reader(config: KafkaConfig, three_records: None) -> Iterator[OutputReader]:
    """A reader that has read three records."""
    del three_records
    with closing(opened(config)) as reader:
        assert [b"0", b"1", b"2"] == [each.value for each in read(reader, 3)]
        yield reader


def committed(topics: Topics) -> int:
    """How many offsets the group has committed."""
    places = committed_and_ends(topics.bootstrap_servers, f"{topics.group}.index", topics.output)
    return sum(max(0, offset) for offset, _ in places.values())


def test_nothing_is_committed_before_it_is_asked_for(topics: Topics, reader: OutputReader, config: KafkaConfig) -> None:
    """And what was is not read again by the next member."""
    reader.poll(100, 0.1)
    assert committed(topics) == 0
    reader.row = 7
    reader.commit()
    assert committed(topics) == 3
    reader.close()
    publish(topics.bootstrap_servers, topics.output, [Sent(b"k", b"new")])
    successor = CLOSING.enter_context(closing(opened(config)))
    assert [b"new"] == [each.value for each in read(successor, 1)]
    assert successor.row == 7, "dead letters in a row are counted on"


class NeverPauses(Consumer):
    """A client that still delivers what it had fetched when it was paused. `during_pauses`: what, of all of them."""

    during_pauses: ClassVar[list[Message]] = []
    is_paused = False

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Only remember it."""
        del partitions
        self.is_paused = True

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Read as a consumer does, and note what comes during a pause."""
        messages = super().consume(num_messages, timeout)
        self.during_pauses.extend(each for each in messages if self.is_paused and not each.error())
        return messages


def test_what_comes_during_a_pause_is_not_committed_and_read_afterwards(
    monkeypatch: pytest.MonkeyPatch, topics: Topics, config: KafkaConfig, three_records: None
) -> None:
    """Nothing of it is in the index when the documents in hand are."""
    del three_records
    monkeypatch.setattr(output_reader, "Consumer", NeverPauses)
    with closing(opened(config)) as reader:
        read(reader, 3)
        publish(topics.bootstrap_servers, topics.output, [Sent(b"k", b"%d" % number) for number in range(3, 6)])

        def have_come() -> bool:
            reader.serve(0.1)
            return len(NeverPauses.during_pauses) == 3

        wait_until(have_come, PATIENCE_S, "three come during a pause", 0.0)
        reader.commit()
        assert committed(topics) == 3
        assert [b"3", b"4", b"5"] == [each.value for each in read(reader, 3)]
        reader.commit()
        assert committed(topics) == 6


def test_a_topic_that_is_made_again_is_read_from_its_beginning(
    topics: Topics, reader: OutputReader, config: KafkaConfig
) -> None:
    """Also behind an offset that was committed for the one before."""
    reader.commit()
    make_again(topics.bootstrap_servers, topics.output)
    publish(topics.bootstrap_servers, topics.output, [Sent(b"k", b"again-%d" % number) for number in range(5)])

    def is_noticed() -> bool:
        try:
            reader.poll(100, 0.1)
            reader.commit()
        except TopicReplaced:
            return True
        except TransactionTrouble:
            pass  # a rebalance while there is no such topic: the coordinator may not answer in time
        return False

    wait_until(is_noticed, PATIENCE_S, "it is noticed", 0.2)
    with suppress(TransactionTrouble):
        reader.close()
    successor = CLOSING.enter_context(closing(opened(config)))
    assert [b"again-%d" % number for number in range(5)] == [each.value for each in read(successor, 5)]


def test_commits_that_fail_for_too_long_end_the_indexer(config: KafkaConfig, proxy: Proxy, three_records: None) -> None:
    """The broker is away from then on."""
    del three_records
    beyond = replace(config, bootstrap_servers=proxy.addresses, request_timeout_s=1.0)
    reader = opened(beyond, give_up_s=0.5)
    read(reader, 3)
    proxy.apply(Cut(Match()))

    def has_given_up() -> bool:
        try:
            reader.commit()
        except RecoveryExhausted as error:
            return "could not be committed for 0.5 s" in str(error)
        return False

    wait_until(has_given_up, PATIENCE_S, "it gives up", 0.1)
