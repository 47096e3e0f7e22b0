"""`--until-caught-up` ends although the input topic changes meanwhile."""

from __future__ import annotations

import pytest
from kafka.clients import begin, config_for, opened, records_of, release_of, sink_for
from kafka.harness import Sent, publish
from support.made_again import make_again
from support.patience import PATIENCE_S, wait_until
from support.topics import Topics

from enricher.errors import TransactionTrouble
from enricher.worker.kafka.source import KafkaSource
from enricher.worker.records import RawRecord

pytestmark = pytest.mark.broker


def fill(topics: Topics, count: int) -> int:
    """This many records, spread over the partitions by their keys."""
    sent = [Sent(f"k{number}".encode(), b"v") for number in range(count)]
    return len(publish(topics.bootstrap_servers, topics.input, sent))


def turns_until_caught_up(source: KafkaSource) -> list[RawRecord]:
    """Poll, and recover from trouble as the loop does, until the source has caught up; returns what was read."""
    records: list[RawRecord] = []

    def caught_up() -> bool:
        try:
            records.extend(source.poll(100, 0.05))
        except TransactionTrouble:
            source.rewind()
        return source.caught_up()

    wait_until(caught_up, PATIENCE_S, "it has caught up", 0.0)
    return records


def test_it_ends_after_the_topic_was_made_again_shorter(topics: Topics) -> None:
    """The new topic never gets to the ends of the old one: its own ends count."""
    config = config_for(topics)
    before = fill(topics, 40)
    source, diary = opened(config, until_caught_up=True)
    sink, _ = sink_for(source, config)
    records = records_of(source, before)
    make_again(topics.bootstrap_servers, topics.input)
    after = fill(topics, 8)
    with pytest.raises(TransactionTrouble, match="created again"):
        sink.publish(release_of(records))
    sink.recover()
    source.rewind()
    assert not source.caught_up()
    begin(source, diary, config)
    sink.publish(release_of(records_of(source, after)))
    assert [] == turns_until_caught_up(source)


def test_a_member_without_work_notices_that_the_topic_was_made_again(topics: Topics) -> None:
    """It makes no transactions, which would detect it, and waits for offsets that nobody will ever commit."""
    fill(topics, 40)
    source, _ = opened(config_for(topics), until_caught_up=True)
    source.pause()
    make_again(topics.bootstrap_servers, topics.input)
    assert [] == turns_until_caught_up(source)
