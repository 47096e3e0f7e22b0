"""Logs and records that no well-behaved publisher writes, and that a worker must survive."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from kafka.clients import client_of, config_for, ends_for, opened, poll_until, records_of, release_of
from kafka.harness import Sent, publish
from support.operating import delete_records
from support.topics import Topics

from enricher.errors import TransactionTrouble
from enricher.operate.lag import read_backlog

pytestmark = pytest.mark.broker


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


@pytest.mark.parametrize("timestamp_ms", [-1, 1, 1_790_000_000])
def test_a_record_with_a_time_that_nobody_means_has_none(topics: Topics, timestamp_ms: int) -> None:
    """Kafka's -1, a clock that was never set, seconds: no age of half a century that scales up to the maximum."""
    publisher = Librdkafka(topics.bootstrap_servers)
    publisher.write(topics.input, b"timeless", header=b"name", timestamp_ms=timestamp_ms)
    publisher.close()
    source, _ = opened(config_for(topics))
    (record,) = records_of(source, 1)
    assert record.timestamp_s is None
    seen = read_backlog(config_for(topics))
    assert (1, None) == (seen.behind, seen.age_s)


def test_a_log_that_begins_anew_is_trouble_to_recover_from(topics: Topics) -> None:
    """A recreated topic begins at offset 0 again: what is in flight belongs to a log that no longer exists."""
    publish(topics.bootstrap_servers, topics.input, [Sent(b"k", b"v")] * 20)
    source, _ = opened(config_for(topics))
    records = records_of(source, 20)
    # What the client does by itself when the broker no longer knows the offset.
    client_of(source).seek(TopicPartition(topics.input, records[-1].partition.number, 0))
    with pytest.raises(TransactionTrouble, match="continues at offset 0 after 20"):
        poll_until(source, lambda: False)
    source.rewind()
    assert [record.offset for record in records] == [record.offset for record in records_of(source, 20)]


def test_an_end_before_the_last_record_is_trouble_as_well(topics: Topics) -> None:
    """The log was truncated, or recreated and empty: its end must not replace the committed offset."""
    publish(topics.bootstrap_servers, topics.input, [Sent(b"k", b"v")] * 20)
    source, _ = opened(config_for(topics))
    partition = records_of(source, 20)[-1].partition
    source._partitions[partition].next = 25
    with pytest.raises(TransactionTrouble, match="continues at offset 20 after 25"):
        poll_until(source, lambda: False)


def test_a_first_record_before_the_committed_offset_is_trouble(topics: Topics) -> None:
    """A damaged batch sends the client to the beginning, also right after it went back to the committed offset."""
    publish(topics.bootstrap_servers, topics.input, [Sent(b"k", b"v")] * 20)
    source, sink = ends_for(config_for(topics))
    records = records_of(source, 20)
    sink.publish(release_of(records[:12]))
    source.rewind()
    client_of(source).seek(TopicPartition(topics.input, records[-1].partition.number, 0))
    with pytest.raises(TransactionTrouble, match="continues at offset 0 after 12"):
        poll_until(source, lambda: False)
    source.rewind()
    assert list(range(12, 20)) == [record.offset for record in records_of(source, 8)]


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
