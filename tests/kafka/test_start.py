"""Where a partition without a committed offset begins: behind its outputs, or nowhere if they cannot tell."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import pytest
from kafka.clients import (
    Diary,
    begin,
    begun,
    config_for,
    dead,
    ends_for,
    finished,
    grow,
    inputs,
    opened,
    poll_until,
    records_of,
    release_of,
    sink_for,
)
from kafka.harness import Sent, as_sent, assert_all_is_there_once, is_all_committed, publish, short_articles, worker
from support.closing import CLOSING
from support.operating import admin_of, commit, delete_group, delete_records, expel, write
from support.patience import PATIENCE_S, wait_until
from support.reading import commit_of, committed_and_ends, read_all
from support.topics import Topics

from enricher.errors import SettingsError
from enricher.worker.kafka.reading import start_offsets, tails
from enricher.worker.kafka.reading.source import KafkaSource
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.kafka.shared.metadata import topic_id_of
from enricher.worker.records import Mark, Partition, RawRecord, Release, Start
from enricher.worker.rules.commit_metadata import CommitMetadata

pytestmark = pytest.mark.broker


def output(number: int, topic: bytes, offset: int) -> dict[str, Any]:
    """An output of this input in the partition of its number, as arguments of `produce`."""
    place = {"topic": topic, "partition": b"%d" % number, "offset": b"%d" % offset}
    headers = [(f"enricher.source.{name}", value) for name, value in place.items()]
    return {"value": b"{}", "key": b"k", "partition": number, "headers": headers}


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


def first_of(source: KafkaSource, count: int) -> list[tuple[int, int]]:
    """Partition and offset of the next records, sorted."""
    return sorted((record.partition.number, record.offset) for record in records_of(source, count))


@pytest.mark.parametrize("dead_letters", [0, 2])
def test_a_group_whose_offsets_are_gone_goes_on_behind_its_outputs(topics: Topics, dead_letters: int) -> None:
    """The newest output of each partition, or its newest dead letter, says where the group stood: nothing comes twice."""
    config = config_for(topics)
    publish(topics.bootstrap_servers, topics.input, inputs(40))
    enrich(config, 40, dead_letters=dead_letters)
    delete_group(topics.bootstrap_servers, topics.group)
    places = publish(topics.bootstrap_servers, topics.input, inputs(20))
    source, _ = opened(config)
    assert sorted(places) == first_of(source, 20)


def test_where_the_group_stood_is_told(topics: Topics, caplog: pytest.LogCaptureFixture) -> None:
    """The log says what happened, where reading continues, and how to begin again on purpose."""
    config = config_for(topics)
    publish(topics.bootstrap_servers, topics.input, inputs(40))
    enrich(config, 40)
    delete_group(topics.bootstrap_servers, topics.group)
    opened(config)
    [line] = [record.getMessage() for record in caplog.records if "no committed offsets" in record.getMessage()]
    assert topics.group in line
    assert "kafka.start=beginning" in line


@pytest.mark.parametrize("start", ["beginning", "end"])
def test_the_start_may_be_said(topics: Topics, start: str) -> None:
    """`beginning` reads all of it again, `end` only what is published from now on."""
    before = publish(topics.bootstrap_servers, topics.input, inputs(40))
    enrich(config_for(topics), 40)
    delete_group(topics.bootstrap_servers, topics.group)
    source, _, _ = begun(config_for(topics, start=start))
    after = publish(topics.bootstrap_servers, topics.input, inputs(20))
    expected = [*before, *after] if start == "beginning" else after
    assert sorted(expected) == first_of(source, len(expected))


def test_outputs_that_were_deleted_cannot_tell(topics: Topics) -> None:
    """Retention has emptied the output topic as well: a guess would double or lose, so the worker does not start."""
    config = config_for(topics)
    publish(topics.bootstrap_servers, topics.input, inputs(40))
    enrich(config, 40)
    delete_records(topics.bootstrap_servers, topics.output, dict.fromkeys(range(4), -1))
    delete_group(topics.bootstrap_servers, topics.group)
    with pytest.raises(SettingsError, match=r"deleted.*--reset-offsets.*kafka\.start"):
        opened(config)


def test_outputs_of_others_in_the_same_topic_are_passed_over(topics: Topics) -> None:
    """A dead-letter topic may be shared: records of others behind ours are skipped."""
    config = config_for(topics)
    publish(topics.bootstrap_servers, topics.input, inputs(40))
    records = enrich(config, 40)
    write(
        topics.bootstrap_servers,
        topics.output,
        (output(number, b"other", offset + 1_000) for number in range(4) for offset in range(200)),
    )
    delete_group(topics.bootstrap_servers, topics.group)
    source, _ = opened(config)
    expected = {number: len(in_partition(records, number)) for number in range(4)}
    poll_until(source, lambda: all(source.start_of(Partition(topics.input, number)) for number in range(4)))
    assert expected == {
        number: getattr(source.start_of(Partition(topics.input, number)), "offset", 0) for number in range(4)
    }


def test_outputs_beyond_the_end_of_the_input_belong_to_an_earlier_topic(topics: Topics) -> None:
    """Without a topic id nothing else tells it: outputs of offsets that the input has never had."""
    config = config_for(topics)
    write(topics.bootstrap_servers, topics.output, [output(0, topics.input.encode(), 99)])
    with pytest.raises(SettingsError, match="ends at 0"):
        opened(config)


def test_a_partition_that_is_new_begins_at_its_beginning(topics: Topics) -> None:
    """The input grows while the group works; partitions that the outputs do not have yet have no tail."""
    config = config_for(topics, allow_fewer_partitions=True)
    publish(topics.bootstrap_servers, topics.input, inputs(20))
    enrich(config, 20)
    grow(topics, 5, topics.input)
    source, diary = opened(config)
    poll_until(source, lambda: len(diary.owned) == 5)
    poll_until(source, lambda: source.start_of(Partition(topics.input, 4)) is not None)
    assert Start(0) == source.start_of(Partition(topics.input, 4))


def test_what_stands_beside_an_offset_is_read_back(topics: Topics) -> None:
    """The topic's id, its partitions, the mark and the leader's epoch are committed with the offset, and found again."""
    config = config_for(topics)
    publish(topics.bootstrap_servers, topics.input, [Sent(b"k", b"v")] * 5)
    source, sink = ends_for(config)
    record = records_of(source, 5)[0]
    sink.publish(Release([finished(record)], {record.partition: 1}, {record.partition: Mark(2, 1)}))
    number = record.partition.number
    committed = commit_of(topics.bootstrap_servers, topics.group, topics.input, number)
    assert CommitMetadata(source.watch.topic_id, Mark(2, 1), began_with=4) == CommitMetadata.decode(committed.metadata)
    assert 0 == committed.leader_epoch
    source.rewind()
    poll_until(source, lambda: source.start_of(record.partition) is not None)
    assert Start(1, Mark(2, 1)) == source.start_of(record.partition)


def test_fewer_output_partitions_are_refused_at_the_start(topics: Topics) -> None:
    """Order per key would be given up silently; the message says what to do."""
    grow(topics, 6, topics.input)
    with pytest.raises(SettingsError, match=r"6 partitions.*allow_fewer_partitions"):
        opened(config_for(topics))


def test_fewer_output_partitions_refuse_no_first_start(topics: Topics) -> None:
    """Outputs that are not there hide nothing. Once there is one, it may be that of any partition beyond the fewest."""
    grow(topics, 6, topics.input)
    publish(topics.bootstrap_servers, topics.input, inputs(40))
    config = config_for(topics, allow_fewer_partitions=True)
    source, diary = opened(config)
    assert {0} == {start.offset for start in map(source.start_of, diary.owned) if start}
    assert 6 == len(diary.owned)
    source.close()
    publish_to(topics, 0, 1, topics.dead_letters)
    with pytest.raises(SettingsError, match="has only 4 partitions"):
        opened(config)


def test_output_partitions_that_are_added_change_nothing(topics: Topics) -> None:
    """Outputs go to the input's partition, with any producer: a key stays where it was."""
    config = config_for(topics)
    publish(topics.bootstrap_servers, topics.input, inputs(40))
    source, sink = ends_for(config)
    sink.publish(release_of(records_of(source, 40)))
    grow(topics, 6, topics.output, topics.dead_letters)
    sink.recover()
    publish(topics.bootstrap_servers, topics.input, inputs(40))
    sink.publish(release_of(records_of(source, 40)))
    homes: dict[bytes | str | None, set[int | None]] = {}
    for message in read_all(topics.bootstrap_servers, topics.output):
        homes.setdefault(message.key(), set()).add(message.partition())
    assert {1} == {len(partitions) for partitions in homes.values()}
    assert len(set(source.watch.partitions.values())) > 1


def publish_to(topics: Topics, number: int, count: int, topic: str | None = None) -> None:
    """Write this many records, which name no input, to one partition of the input or of another topic."""
    record = {"value": b"v", "key": b"k", "partition": number}
    write(topics.bootstrap_servers, topic or topics.input, repeat(record, count))


def test_the_end_is_determined_once(topics: Topics) -> None:
    """A rewind after the first records goes back to the end that was committed, not to the end as it is then."""
    publish(topics.bootstrap_servers, topics.input, inputs(40))
    source, _, _ = begun(config_for(topics, start="end"))
    after = publish(topics.bootstrap_servers, topics.input, inputs(20))
    assert sorted(after) == first_of(source, 20)
    source.rewind()
    assert sorted(after) == first_of(source, 20)


def test_nothing_is_read_before_the_end_is_committed(topics: Topics) -> None:
    """A crash before the first transaction would otherwise skip what was read; until then a rewind keeps the same end."""
    publish(topics.bootstrap_servers, topics.input, inputs(40))
    config = config_for(topics, start="end")
    source, diary = KafkaSource(config), Diary()
    CLOSING.callback(source.close)
    source.open(diary)
    assert [] == poll_until(source, lambda: len(source.positions(diary.owned)) == 4)
    determined = source.positions(diary.owned)
    after = publish(topics.bootstrap_servers, topics.input, inputs(20))
    source.rewind()
    assert [] == poll_until(source, lambda: len(source.positions(diary.owned)) == 4)
    assert determined == source.positions(diary.owned)
    sink, _ = sink_for(source, config)
    sink.publish(Release((), determined))
    assert sorted(after) == first_of(source, 20)


def test_a_worker_that_dies_before_its_first_record_loses_none(topics: Topics) -> None:
    """The ends are committed as soon as they are known, however rarely the worker publishes; the next one goes on there."""
    publish(topics.bootstrap_servers, topics.input, map(as_sent, short_articles(40)))
    quick = {"ENRICHER_KAFKA__SESSION_TIMEOUT_S": "6", "ENRICHER_KAFKA__TRANSACTION_TIMEOUT_S": "5"}
    begins = topics.environment | quick | {"ENRICHER_KAFKA__START": "end"}
    with worker(begins | {"ENRICHER_WORKER__PUBLISH_INTERVAL_MS": "60000"}, stub=True):
        wait_until(lambda: is_all_committed(topics), PATIENCE_S, "the ends are committed")
    expel(topics.bootstrap_servers, topics.group)
    places = publish(topics.bootstrap_servers, topics.input, map(as_sent, short_articles(20, seed=2)))
    with worker(begins, "--until-caught-up", stub=True) as process:
        assert 0 == process.wait(PATIENCE_S)
    assert_all_is_there_once(topics, places)


@pytest.mark.parametrize("start", ["resume", "end"])
def test_what_came_into_an_added_partition_before_its_discovery_is_read(topics: Topics, start: str) -> None:
    """The partition did not exist when the group began, so it begins at its beginning, whatever `kafka.start` says."""
    publish(topics.bootstrap_servers, topics.input, inputs(20))
    config = config_for(topics, start=start, properties={"consumer.topic.metadata.refresh.interval.ms": 500})
    source, sink, diary = begun(config)
    if start == "resume":
        records_of(source, 20)
    grow(topics, 5, topics.output, topics.dead_letters, topics.input)
    publish_to(topics, 4, 20)
    begin(source, sink, diary, partitions=5)
    records = records_of(source, 20)
    assert [(4, offset) for offset in range(20)] == [(record.partition.number, record.offset) for record in records]
    sink.publish(release_of(records))
    committed = commit_of(topics.bootstrap_servers, topics.group, topics.input, 4)
    assert 4 == CommitMetadata.decode(committed.metadata).began_with


def test_an_added_partition_needs_no_outputs_to_tell(topics: Topics) -> None:
    """Another pipeline writes to the output topic, where the first records are deleted: the group goes on all the same."""
    config = config_for(topics)
    publish(topics.bootstrap_servers, topics.input, inputs(40))
    enrich(config, 40)
    grow(topics, 5, topics.output, topics.dead_letters, topics.input)
    publish_to(topics, 4, 10, topics.output)
    delete_records(topics.bootstrap_servers, topics.output, {4: 5})
    publish_to(topics, 4, 3)
    source, _ = opened(config)
    assert [(4, 0), (4, 1), (4, 2)] == first_of(source, 3)


@pytest.mark.parametrize("start", ["resume", "end"])
@pytest.mark.parametrize("began_with", [4, None])
def test_a_partition_without_an_offset_is_not_taken_for_an_added_one(
    topics: Topics, start: str, began_with: int | None
) -> None:
    """While a group begins, or resumes, its first member commits before the others: their partitions are not new."""
    publish(topics.bootstrap_servers, topics.input, inputs(40))
    enrich(config_for(topics), 40)
    delete_group(topics.bootstrap_servers, topics.group)
    topic_id = topic_id_of(admin_of(topics.bootstrap_servers), topics.input, 10)
    metadata = CommitMetadata(topic_id, began_with=began_with).encode()
    commit(topics.bootstrap_servers, topics.group, topics.input, {0: 0}, metadata)  # as the first member does, alone
    source, _, _ = begun(config_for(topics, start=start))
    ends = committed_and_ends(topics.bootstrap_servers, topics.group, topics.input)
    expected = {number: end for number, (_, end) in ends.items() if number}
    starts = {number: source.start_of(Partition(topics.input, number)) for number in expected}
    assert expected == {number: start.offset for number, start in starts.items() if start}


def add_foreign(topics: Topics, count: int, topic: str | None = None) -> None:
    """Records of another pipeline behind our outputs, in the output topic or in another one."""
    for number in range(4):
        publish_to(topics, number, count, topic or topics.output)


@pytest.mark.parametrize("shared", [["output"], ["dead_letters"], ["output", "dead_letters"]])
def test_a_search_goes_on_where_the_last_look_stopped(
    topics: Topics, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, shared: list[str]
) -> None:
    """The loop does not wait for the whole search, which reads all that another pipeline has written since.

    What the search in one topic has found is kept during the search in the other.
    """
    caplog.set_level("INFO")
    monkeypatch.setattr(start_offsets, "_LOOK_S", 0.0)
    publish(topics.bootstrap_servers, topics.input, inputs(40))
    records = enrich(config_for(topics), 40, dead_letters=2)
    for name in shared:
        add_foreign(topics, 1_000, getattr(topics, name))
    delete_group(topics.bootstrap_servers, topics.group)
    source, _ = opened(config_for(topics))
    expected = {number: len(in_partition(records, number)) for number in range(4)}
    starts = {number: source.start_of(Partition(topics.input, number)) for number in range(4)}
    assert expected == {number: start.offset for number, start in starts.items() if start}
    assert any("records read so far" in record.getMessage() for record in caplog.records)


def test_a_search_that_takes_too_long_ends_in_words(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of another pipeline may have any length: the worker says that the outputs do not tell, instead of going on."""
    monkeypatch.setattr(start_offsets, "_LOOK_S", 0.0)
    monkeypatch.setattr(tails, "_SEARCH_S", 0.0)
    add_foreign(topics, 1_000)
    with pytest.raises(SettingsError, match=r"newest records.*kafka\.start"):
        opened(config_for(topics))
