"""Where a partition without a committed offset begins: at its beginning, or nowhere if it may have outputs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import pytest
from kafka.clients import (
    begin,
    begun,
    commit_starts,
    config_for,
    dead,
    ends_for,
    finished,
    grow,
    inputs,
    joined,
    opened,
    poll_until,
    records_of,
    release_of,
)
from kafka.harness import Sent, as_sent, publish, short_articles, transaction, worker
from support.operating import commit, delete_group, delete_records, write
from support.patience import PATIENCE_S, wait_until
from support.reading import commit_of, committed_and_ends
from support.topics import Topics, make_topics

from enricher.errors import SettingsError
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.records import Mark, Partition, RawRecord, Release, Start
from enricher.worker.rules.commit_metadata import CommitMetadata

pytestmark = pytest.mark.broker


def enrich(config: KafkaConfig, count: int, *, dead_letters: int = 0) -> list[RawRecord]:
    """Publish outputs of the next `count` inputs, the last ones of each partition as dead letters; leave the group."""
    source, sink = ends_for(config)
    records = records_of(source, count)
    last = {id(record) for number in range(4) for record in in_partition(records, number)[-dead_letters:]}
    sink.publish(release_of(records, lambda raw: dead(raw) if dead_letters and id(raw) in last else finished(raw)))
    source.close()
    return records


def in_partition(records: Sequence[RawRecord], number: int) -> list[RawRecord]:
    """Those of one partition."""
    return [record for record in records if record.partition.number == number]


@pytest.mark.parametrize(
    ("dead_letters", "deleted", "kept", "command"),
    [
        pytest.param(0, {}, {}, "--at behind-outputs;? ?", id="all of them"),
        pytest.param(40, {}, {}, "--at behind-outputs;? ?", id="all, of a group that wrote dead letters only"),
        pytest.param(0, dict.fromkeys(range(4), -1), {}, "--at behind-outputs", id="all, and retention its outputs"),
        pytest.param(0, {}, {0: 3, 1: 4, 3: 5}, r"--at behind-outputs --partition 2\.", id="one, which is named"),
    ],
)
def test_a_group_that_has_lost_offsets_is_refused(
    topics: Topics, dead_letters: int, deleted: dict[int, int], kept: dict[int, int], command: str
) -> None:
    """A guess would lose or double; only a partition that was never written shows that a group is new."""
    config = config_for(topics)
    publish(topics.bootstrap_servers, topics.input, inputs(40))
    enrich(config, 40, dead_letters=dead_letters)
    if deleted:
        delete_records(topics.bootstrap_servers, topics.output, deleted)
    delete_group(topics.bootstrap_servers, topics.group)
    if kept:
        commit(topics.bootstrap_servers, topics.group, topics.input, kept)
    with pytest.raises(SettingsError, match=f"offsets set {topics.group} {topics.input} {command}") as end:
        opened(config)
    assert bool(kept) == ("--partition" in str(end.value))
    assert 2 == end.value.exit_code


def test_a_partition_without_records_begins_whoever_writes_to_the_outputs(topics: Topics) -> None:
    """No record of it can have an output. A dead-letter topic may be shared, and a worker started before publishers."""
    publish_to(topics, 0, 5, topics.dead_letters)
    publish_to(topics, 0, 5)
    delete_records(topics.bootstrap_servers, topics.input, {0: -1})
    source, _ = opened(config_for(topics))
    assert Start(5) == source.start_of(Partition(topics.input, 0))


def test_a_group_whose_first_transaction_was_aborted_goes_on(topics: Topics) -> None:
    """Its outputs left markers, but its start was committed before it read anything."""
    config = config_for(topics)
    publish(topics.bootstrap_servers, topics.input, inputs(40))
    opened(config)[0].close()
    for topic in (topics.output, topics.dead_letters):
        with transaction(topics.bootstrap_servers, f"{topics.group}.aborted", commit=False) as producer:
            for number in range(4):
                producer.produce(topic, b"v", partition=number)
            assert producer.flush(PATIENCE_S) == 0
    source, _ = opened(config)
    assert 40 == len(records_of(source, 40))


def test_an_added_partition_begins_at_its_beginning(topics: Topics) -> None:
    """The input grows while the group works, and the outputs may follow later."""
    config = config_for(topics, properties={"consumer.topic.metadata.refresh.interval.ms": 500})
    publish(topics.bootstrap_servers, topics.input, inputs(20))
    source, sink, diary = begun(config)
    sink.publish(release_of(records_of(source, 20)))
    grow(topics, 5, topics.input)
    publish_to(topics, 4, 20)
    begin(source, diary, config, partitions=5)
    records = records_of(source, 20)
    assert [(4, offset) for offset in range(20)] == [(record.partition.number, record.offset) for record in records]


def test_what_stands_beside_an_offset_is_read_back(topics: Topics) -> None:
    """The topic's id, the mark and the leader's epoch are committed with the offset, and found again."""
    config = config_for(topics)
    publish(topics.bootstrap_servers, topics.input, [Sent(b"k", b"v")] * 5)
    source, sink = ends_for(config)
    record = records_of(source, 5)[0]
    sink.publish(Release([finished(record)], {record.partition: 1}, {record.partition: Mark(2, 1)}))
    number = record.partition.number
    committed = commit_of(topics.bootstrap_servers, topics.group, topics.input, number)
    assert CommitMetadata(source.watch.topic_id, Mark(2, 1)) == CommitMetadata.decode(committed.metadata)
    assert 0 == committed.leader_epoch
    source.rewind()
    poll_until(source, lambda: source.start_of(record.partition) is not None)
    assert Start(1, Mark(2, 1)) == source.start_of(record.partition)


def test_two_input_topics_that_share_output_partitions_begin_together(topics: Topics) -> None:
    """Each member looks before it joins, so the outputs of the first topic do not keep the second from beginning."""
    other = make_topics(topics.bootstrap_servers)
    publish(topics.bootstrap_servers, topics.input, inputs(8))
    publish(topics.bootstrap_servers, other.input, inputs(8))
    config = config_for(topics, other_inputs=(other.input,))
    source, diary = joined(config)
    for number in range(4):
        publish_to(topics, number, 1, topics.output)  # as another member does, with inputs of the other topic
    begin(source, diary, config, partitions=8)
    assert 16 == len(records_of(source, 16))


def publish_to(topics: Topics, number: int, count: int, topic: str | None = None) -> None:
    """Write this many records, which name no input, to one partition of the input or of another topic."""
    record = {"value": b"v", "key": b"k", "partition": number}
    write(topics.bootstrap_servers, topic or topics.input, repeat(record, count))


def test_nothing_is_read_before_the_start_is_committed(topics: Topics) -> None:
    """Outputs without a committed offset, even aborted ones, would be taken for those of a group that has lost its own."""
    publish(topics.bootstrap_servers, topics.input, inputs(40))
    config = config_for(topics)
    source, diary = joined(config)
    for _ in range(2):
        assert [] == poll_until(source, lambda: len(source.positions(diary.owned)) == 4)
        assert dict.fromkeys(diary.owned, 0) == source.positions(diary.owned)
        assert source.waits_for_commit
        source.rewind()
    poll_until(source, lambda: len(source.positions(diary.owned)) == 4)
    commit_starts(source, config, source.positions(diary.owned))
    assert 40 == len(records_of(source, 40))
    assert not source.waits_for_commit


def test_the_start_is_committed_as_soon_as_it_is_known(topics: Topics) -> None:
    """However rarely the worker publishes: nothing is read before."""
    publish(topics.bootstrap_servers, topics.input, map(as_sent, short_articles(40)))

    def all_begun() -> bool:
        committed = committed_and_ends(topics.bootstrap_servers, topics.group, topics.input)
        return all(offset >= 0 for offset, _end in committed.values())

    with worker(topics.environment | {"ENRICHER_WORKER__PUBLISH_INTERVAL_MS": "60000"}, stub=True):
        wait_until(all_begun, PATIENCE_S, "the starts are committed")
