"""An input topic that is recreated under a running worker is detected by its id and read from its beginning."""

from __future__ import annotations

import pytest
from kafka.clients import begin, begun, config_for, ends_for, opened, poll_until, records_of, release_of
from kafka.harness import Sent, publish
from support.made_again import make_again
from support.operating import admin_of, commit
from support.patience import PATIENCE_S, retry
from support.reading import committed_and_ends
from support.topics import Topics, make_topics

from enricher.errors import TransactionTrouble
from enricher.worker.kafka.source import KafkaSource
from enricher.worker.rules.commit_metadata import CommitMetadata
from tools.kafka import Cluster

pytestmark = pytest.mark.broker


def fill(topics: Topics, partition_records: int) -> int:
    """So many records in each of the four partitions; returns how many that is in all."""
    keys = [f"k{number}".encode() for number in range(4 * partition_records)]
    return len(publish(topics.bootstrap_servers, topics.input, [Sent(key, b"v") for key in keys]))


def recover_until(source: KafkaSource) -> None:
    """As the recovery does: retry while the topic is missing, or not known to every broker."""
    retry(source.rewind, TransactionTrouble)


def test_records_of_a_new_topic_are_not_committed_as_those_of_the_old_one(topics: Topics) -> None:
    """If the new log has grown past the old position, the client reads on there; the transaction detects it."""
    config = config_for(topics)
    before = fill(topics, 10)
    source, sink, diary = begun(config)
    sink.publish(release_of(records_of(source, before)))
    old_id = source.watch.topic_id
    make_again(topics.bootstrap_servers, topics.input)
    after = fill(topics, 40)
    with pytest.raises(TransactionTrouble, match="created again"):
        sink.publish(release_of(records_of(source, 1)))
    sink.recover()
    recover_until(source)
    begin(source, diary, config, partitions=4)
    records = records_of(source, after)
    assert {0} == {min(r.offset for r in records if r.partition.number == number) for number in range(4)}
    assert {source.watch.topic_id} == {record.topic_id for record in records}
    assert source.watch.topic_id != old_id
    sink.publish(release_of(records))
    ends = committed_and_ends(topics.bootstrap_servers, topics.group, topics.input)
    assert all(committed == end for committed, end in ends.values())


@pytest.mark.long
def test_a_topic_made_again_on_another_broker_is_read_from_there() -> None:
    """The client has seen higher leader epochs of the old topic, and never accepts those of the new one."""
    with Cluster(nodes=3) as cluster:
        topics = make_topics(cluster.bootstrap_servers)
        make_again(topics.bootstrap_servers, topics.input, leader=2)
        cluster.nodes[1].stop()
        cluster.nodes[1].start()  # which makes its epoch a higher one
        before = fill(topics, 5)
        config = config_for(topics, partition_timeout_s=6)
        source, diary = opened(config)
        records_of(source, before)
        make_again(topics.bootstrap_servers, topics.input, leader=1)
        after = fill(topics, 3)
        recover_until(source)
        begin(source, diary, config)
        assert after == len(records_of(source, after))
        source.close()


def test_an_offset_of_an_earlier_topic_counts_as_none(topics: Topics) -> None:
    """Brokers may keep offsets of a topic that was deleted; the id beside them says which topic they belong to."""
    fill(topics, 10)
    stale = CommitMetadata("AnotherTopicsIdAAAAAAA").encode()
    commit(topics.bootstrap_servers, topics.group, topics.input, dict.fromkeys(range(4), 5), stale)
    source, _ = opened(config_for(topics))
    records = records_of(source, 40)
    assert {0} == {min(r.offset for r in records if r.partition.number == number) for number in range(4)}


def test_a_topic_that_is_there_no_more_is_trouble_not_the_end(topics: Topics) -> None:
    """Between deletion and creation nothing is committed, and the worker does not exit."""
    config = config_for(topics, request_timeout_s=2)
    before = fill(topics, 5)
    source, sink = ends_for(config)
    records = records_of(source, before)
    admin = admin_of(topics.bootstrap_servers)
    [deleted] = admin.delete_topics([topics.input]).values()
    deleted.result(timeout=PATIENCE_S)
    poll_until(source, lambda: topics.input not in admin.list_topics(timeout=PATIENCE_S).topics)
    with pytest.raises(TransactionTrouble):
        sink.publish(release_of(records))
    with pytest.raises(TransactionTrouble, match=r"no topic|asking"):
        source.rewind()
