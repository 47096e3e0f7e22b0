"""The consumer on a real broker: rewinds, catching up, lost partitions, and logs that no publisher means to write."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from kafka.clients import (
    Diary,
    begun,
    client_of,
    config_for,
    ends_for,
    inputs,
    opened,
    poll_until,
    records_of,
    release_of,
    sink_for,
)
from kafka.harness import Sent, assert_all_is_there_once, publish, transaction
from support.closing import leave_group
from support.made_again import make_again
from support.operating import delete_records
from support.patience import PATIENCE_S, wait_until
from support.reading import committed_and_ends
from support.topics import Topics

from enricher.errors import Stalled
from enricher.operate.lag import read_backlog
from enricher.worker.kafka.source import KafkaSource
from enricher.worker.kafka.topicwatch import TopicReplaced
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


def fill(topics: Topics, count: int) -> int:
    """This many records, spread over the partitions by their keys."""
    sent = [Sent(f"k{number}".encode(), b"v") for number in range(count)]
    return len(publish(topics.bootstrap_servers, topics.input, sent))


def test_a_member_without_work_notices_that_the_topic_was_made_again(topics: Topics) -> None:
    """It makes no transactions, which would detect it, and waits for offsets that nobody will ever commit."""
    fill(topics, 40)
    source, _ = opened(config_for(topics), until_caught_up=True)
    source.pause()
    make_again(topics.bootstrap_servers, topics.input)
    with pytest.raises(TopicReplaced):
        poll_until(source, source.caught_up)


_SOON_FAST = 200
"""Calls after which the interpreter has optimised a place and no longer checks whether an exception is pending."""


class Librdkafka:
    """A producer through the C library: the Python client writes only UTF-8."""

    PARTITION, VALUE, TIMESTAMP, HEADER, TOPIC = 3, 4, 8, 9, 1  # RD_KAFKA_VTYPE_* of rdkafka.h

    def __init__(self, bootstrap_servers: str) -> None:
        folder = Path(confluent_kafka.__file__).parent
        library = next(folder.parent.glob("confluent_kafka.libs/librdkafka*"), None)
        if library is None:
            pytest.skip("this build of the client has no library of its own")
        self._c = ctypes.CDLL(str(library))
        self._c.rd_kafka_conf_new.restype = self._c.rd_kafka_new.restype = ctypes.c_void_p
        reason = ctypes.create_string_buffer(512)
        conf = ctypes.c_void_p(self._c.rd_kafka_conf_new())
        assert self._c.rd_kafka_conf_set(conf, b"bootstrap.servers", bootstrap_servers.encode(), reason, 512) == 0
        self._handle = ctypes.c_void_p(self._c.rd_kafka_new(0, conf, reason, 512))
        assert self._handle.value, reason.value

    def write(self, topic: str, value: bytes, *, header: bytes, timestamp_ms: int = 0) -> None:
        """One record on partition 0; `timestamp_ms` 0 is now."""
        failed = self._c.rd_kafka_producev(
            self._handle,
            *(self.TOPIC, topic.encode()),
            *(self.PARTITION, ctypes.c_int32(0)),
            *(self.VALUE, value, ctypes.c_size_t(len(value))),
            *(self.TIMESTAMP, ctypes.c_int64(timestamp_ms)),
            *(self.HEADER, header, b"h", ctypes.c_ssize_t(1)),
            0,
        )
        assert failed == 0
        assert self._c.rd_kafka_flush(self._handle, 20_000) == 0

    def close(self) -> None:
        """Close the connection."""
        self._c.rd_kafka_destroy(self._handle)


def test_headers_whose_names_are_no_text_are_left_out(topics: Topics, caplog: pytest.LogCaptureFixture) -> None:
    """The client cannot deliver these headers; the record is enriched all the same, and no worker ends."""
    publisher = Librdkafka(topics.bootstrap_servers)
    for _ in range(_SOON_FAST):
        publisher.write(topics.input, b"usual", header=b"name")
    publisher.write(topics.input, b"odd", header=b"\xff\xfe")
    publisher.write(topics.input, b"usual", header=b"name")
    publisher.close()
    source, _ = opened(config_for(topics))
    *_, before, odd, after = records_of(source, _SOON_FAST + 2)
    assert (odd.value, odd.headers) == (b"odd", ())
    assert (b"usual", (("name", b"h"),)) == (before.value, before.headers) == (after.value, after.headers)
    assert f"{topics.input}[0] offset {_SOON_FAST}: its headers are left out" in caplog.text


def test_a_record_with_a_time_that_nobody_means_has_none(topics: Topics) -> None:
    """Seconds for milliseconds: no age of half a century that scales up to the maximum."""
    publisher = Librdkafka(topics.bootstrap_servers)
    publisher.write(topics.input, b"timeless", header=b"name", timestamp_ms=1_790_000_000)
    publisher.close()
    source, _ = opened(config_for(topics))
    (record,) = records_of(source, 1)
    assert record.timestamp_s is None
    seen = read_backlog(config_for(topics))
    assert (1, None) == (seen.behind, seen.age_s)


@pytest.fixture
def _quiet_client() -> Iterator[None]:
    """The client's log as the command line configures it: errors only."""
    client = logging.getLogger("librdkafka")
    before = client.level
    client.setLevel(logging.ERROR)
    yield
    client.setLevel(before)


@pytest.mark.usefixtures("_quiet_client")
def test_records_that_were_deleted_unread_are_told(topics: Topics, caplog: pytest.LogCaptureFixture) -> None:
    """Retention was faster than the group: reading continues at the first record left, and a warning says so."""
    config = config_for(topics)
    publish(topics.bootstrap_servers, topics.input, [Sent(b"k", b"v")] * 20)
    source, sink = ends_for(config)
    read = records_of(source, 20)
    sink.publish(release_of(read[:5]))
    partition = read[0].partition
    delete_records(topics.bootstrap_servers, topics.input, {partition.number: 12})
    source.rewind()
    assert list(range(12, 20)) == [record.offset for record in records_of(source, 8)]
    poll_until(source, lambda: "offset reset (at offset 5" in caplog.text)


BOUND_S = 2
"""Enough for a partition that is read: one that is late because the machine is busy is read alone, and delivers."""


def lose(source: KafkaSource, topics: Topics) -> None:
    """Stop the client from fetching without the source's knowledge, as librdkafka 5586, 5591 and 2190 do."""
    source.pause()  # else records may come meanwhile
    places = [Partition(topics.input, number) for number in range(4)]
    poll_until(source, lambda: all(source.start_of(place) for place in places))
    source.resume()
    client_of(source).pause([TopicPartition(topics.input, number) for number in range(4)])


def read_on(source: KafkaSource) -> None:
    """Poll for ever, as the loop does."""

    def hold_nothing() -> bool:
        source.hold(())
        return False

    poll_until(source, hold_nothing)


def test_a_lost_partition_ends_the_process_and_a_restart_reads_it(topics: Topics) -> None:
    """No other sign exists: it is assigned, the group is stable, and the client logs nothing."""
    config = config_for(topics, partition_timeout_s=BOUND_S)
    source, sink, diary = begun(config)
    places = publish(topics.bootstrap_servers, topics.input, inputs(20))
    sink.publish(release_of(records_of(source, 20)))
    lose(source, topics)
    places |= publish(topics.bootstrap_servers, topics.input, inputs(20))
    diary.events.clear()
    with pytest.raises(Stalled, match=r"it has more records.*a restart reads") as end:
        read_on(source)
    assert end.value.undelivered
    assert source.connection().silent_s > 0
    assert [] == diary.events, "attempts can be taken back: nothing was given up"
    source.close()
    sink.close()
    restarted, again = ends_for(config)
    again.publish(release_of(records_of(restarted, 20)))
    assert 0.0 == restarted.connection().silent_s
    assert_all_is_there_once(topics, places)
