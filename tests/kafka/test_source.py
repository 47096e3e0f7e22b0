"""The consumer on a real broker: markers, rewinds, rebalances, catching up, refusals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from kafka.clients import Diary, config_for, opened, partitions_of, poll_until, records_of, release_of, sink_for
from kafka.harness import Sent, publish, transaction
from support.closing import CLOSING, leave_group
from support.patience import PATIENCE_S, wait_until
from support.reading import committed_and_ends
from support.topics import Topics

from enricher.errors import MissingTopic, TransactionTrouble
from enricher.worker.kafka.source import KafkaSource
from enricher.worker.records import Partition, RawRecord, Release

pytestmark = pytest.mark.broker


def publish_in_a_transaction(topics: Topics, partition: int, *, commit: bool) -> None:
    """Three records in an upstream transaction, committed or aborted."""
    with transaction(topics.bootstrap_servers, f"up-{topics.input}", commit=commit) as upstream:
        for number in range(3):
            upstream.produce(topics.input, b"{}", f"k{number}".encode(), partition=partition)


def poll_both(first: KafkaSource, second: KafkaSource, done: Callable[[], bool]) -> list[RawRecord]:
    """Poll both members until then; returns the records that came."""
    came: list[RawRecord] = []

    def polled() -> bool:
        came.extend([*first.poll(10, 0.05), *second.poll(10, 0.05)])
        return done()

    wait_until(polled, PATIENCE_S, "it happened", 0.0)
    return came


def test_a_record_arrives_as_it_was_published(topics: Topics) -> None:
    """Key, value, headers (repeated names, null values) and timestamp come through untouched."""
    headers = [("a", b"1"), ("a", b"2"), ("b", None)]
    publish(topics.bootstrap_servers, topics.input, [Sent(b"k", b"v", headers), Sent(None, None)])
    source, _ = opened(config_for(topics))
    first, second = sorted(records_of(source, 2), key=lambda record: record.key is None)
    source.close()
    assert (first.key, first.value, first.headers) == (b"k", b"v", tuple(headers))
    assert (second.key, second.value, second.headers) == (None, None, ())
    assert first.timestamp_s is not None


def test_positions_are_unknown_until_the_end_was_seen(topics: Topics) -> None:
    """No fresh partition, and none that was just rewound, has a position that could be committed by mistake."""
    publish(topics.bootstrap_servers, topics.input, [Sent(b"k", b"v")])
    source, _ = opened(config_for(topics))
    assert source.positions(list(partitions_of(topics))) == {}
    [record] = records_of(source, 1)
    at_end = {record.partition: record.offset + 1}
    poll_until(source, lambda: source.positions([record.partition]) == at_end)
    source.rewind()
    assert source.positions([record.partition]) == {}
    assert records_of(source, 1) == [record]
    poll_until(source, lambda: source.positions([record.partition]) == at_end)


def test_pausing_stops_records_but_not_rebalances(topics: Topics) -> None:
    """A paused source stays a member, takes new partitions paused, and goes on where it was."""
    config = config_for(topics)
    publish(topics.bootstrap_servers, topics.input, [Sent(f"k{number}".encode(), b"v") for number in range(20)])
    first, diary = opened(config)
    first.pause()
    second, other = KafkaSource(replace(config, instance="worker-1")), Diary()
    second.open(other)
    second.pause()
    came = poll_both(first, second, lambda: len(diary.owned) == len(other.owned) == 2)
    leave_group(second)
    came += poll_until(first, lambda: len(diary.owned) == 4)
    assert came == []
    first.resume()
    assert len(records_of(first, 20)) == 20


def test_a_partition_that_left_while_paused_is_read_when_it_comes_back(topics: Topics) -> None:
    """The client keeps a partition paused after it was revoked; when it comes back, it must be resumed."""
    config = config_for(topics)
    first, mine = opened(config)
    first.pause()
    second, theirs = KafkaSource(replace(config, instance="worker-1")), Diary()
    second.open(theirs)
    poll_both(first, second, lambda: len(theirs.owned) == 2)
    left = next(iter(theirs.owned))
    assert left not in mine.owned
    first.resume()
    leave_group(second)
    poll_until(first, lambda: len(mine.owned) == 4)
    publish(topics.bootstrap_servers, topics.input, [Sent(f"k{number}".encode(), b"{}") for number in range(40)])
    assert left in {record.partition for record in records_of(first, 40)}


def test_only_the_partitions_that_move_are_revoked(topics: Topics) -> None:
    """A second member takes two of four partitions; the first keeps the others without a pause (cooperative)."""
    config = config_for(topics)
    first, diary = opened(config)
    second, other = KafkaSource(replace(config, instance="worker-1")), Diary()
    second.open(other)
    poll_both(first, second, lambda: len(other.owned) == 2)
    assert [len(partitions) for kind, partitions in diary.events if kind == "revoked"] == [2]
    assert diary.owned.isdisjoint(other.owned)
    leave_group(first)
    leave_group(second)


def test_what_leaves_is_known_until_the_listener_has_published_once_more(topics: Topics) -> None:
    """Its last transaction commits the ends of idle partitions, with their starts; afterwards nothing is known of them."""
    config = config_for(topics)
    for number in range(4):
        publish_in_a_transaction(topics, number, commit=True)
    first, diary = opened(config)
    records_of(first, 4 * 3)
    poll_until(first, lambda: len(first.positions(diary.owned)) == 4)
    seen: dict[Partition, tuple[object, object]] = {}

    def look(partitions: Sequence[Partition]) -> None:
        positions = first.positions(partitions)
        seen.update({each: (positions.get(each), first.start_of(each)) for each in partitions})

    diary.on_revoked = look
    second, other = KafkaSource(replace(config, instance="worker-1")), Diary()
    CLOSING.callback(leave_group, second)
    second.open(other)
    poll_both(first, second, lambda: len(other.owned) == 2)
    assert set(seen) == other.owned
    assert all(position == 4 and start is not None for position, start in seen.values())
    assert {} == first.positions(other.owned)


def test_what_a_listener_raises_comes_out_of_poll(topics: Topics) -> None:
    """A transaction that fails inside the revocation reaches the loop, and nothing leaves the client's callback."""
    config = config_for(topics)
    first, diary = opened(config)

    def fail(_partitions: object) -> None:
        raise TransactionTrouble("while revoking")

    diary.on_revoked = fail
    second = KafkaSource(replace(config, instance="worker-1"))
    second.open(Diary())
    with pytest.raises(TransactionTrouble, match="while revoking"):
        poll_both(first, second, lambda: False)
    diary.on_revoked = lambda _partitions: None
    leave_group(first)
    leave_group(second)


def test_caught_up_means_that_the_group_committed_the_ends_seen_at_open(topics: Topics) -> None:
    """It is not enough that they were read: they must be committed, markers included; later records do not count."""
    config = config_for(topics)
    publish_in_a_transaction(topics, 0, commit=True)
    source, _ = opened(config, until_caught_up=True)
    sink, _ = sink_for(source, config)
    records = records_of(source, 3)
    assert not source.caught_up()
    sink.publish(release_of(records))
    marked = Partition(topics.input, 0)
    poll_until(source, lambda: source.positions([marked]).get(marked) == 4)
    sink.publish(Release([], source.positions([marked])))
    publish(topics.bootstrap_servers, topics.input, [Sent(b"later", b"v")])
    poll_until(source, source.caught_up)
    assert committed_and_ends(topics.bootstrap_servers, topics.group, topics.input)[0] == (4, 4)


def test_an_empty_topic_is_caught_up_at_once(topics: Topics) -> None:
    """Nothing to read is nothing to wait for."""
    source, _ = opened(config_for(topics), until_caught_up=True)
    poll_until(source, source.caught_up)


def test_membership_is_refused_before_the_group_was_joined(topics: Topics) -> None:
    """The broker would accept empty group metadata without fencing, so it is never sent."""
    source = KafkaSource(config_for(topics))
    with pytest.raises(TransactionTrouble, match="not a member"):
        source.membership()
    source.close()


def test_a_missing_topic_is_named(topics: Topics) -> None:
    """The message says which topic and how to create it."""
    source = KafkaSource(config_for(topics, input_topic="no-such-topic"))
    with pytest.raises(MissingTopic, match=r"'no-such-topic'.*topics create"):
        source.open(Diary())
    source.close()


def test_an_unreachable_broker_is_named(topics: Topics) -> None:
    """The message gives the address that did not answer."""
    source = KafkaSource(config_for(topics, bootstrap_servers="127.0.0.1:1", request_timeout_s=1))
    with pytest.raises(TransactionTrouble, match=r"127\.0\.0\.1:1"):
        source.open(Diary())
    source.close()
