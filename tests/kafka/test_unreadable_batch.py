"""Intact batches that the client cannot decompress become dead letters without a value, and reading continues."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

import pytest
from commands.cli_runner import run
from confluent_kafka import KafkaError, Producer
from kafka.clients import config_for, finished, opened, records_of
from kafka.harness import Sent, as_sent, assert_exactly_once, headers_of, publish, short_articles, transaction
from kafka.limited_worker import LIMIT, LIMITED_WORKER
from support.batches import broken_snappy, produce
from support.forked import Forked
from support.patience import PATIENCE_S, wait_until
from support.reading import committed_and_ends, read_all
from support.topics import Topics

from enricher.errors import BrokerError, TransactionTrouble
from enricher.worker.articles import Encoder
from enricher.worker.kafka.reading import unreadable
from enricher.worker.kafka.reading.damage import Damage
from enricher.worker.kafka.reading.unreadable import UnreadableBatches
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.records import DeadLetter, Partition, RawRecord, Unreadable

PLACE = Partition("articles", 3)
UNREADABLE = KafkaError(KafkaError._BAD_COMPRESSION, "Decompression (codec 0x4) of message at 7 of 3088 bytes failed")
GZIP = KafkaError(KafkaError._BAD_COMPRESSION, "Decompression (codec 0x1) of message at 9 of 30 bytes failed")
SMALL = {"consumer.receive.message.max.bytes": 2_000_000, "consumer.fetch.max.bytes": 1_000_000}
"""A client that decompresses at most 2 MB of zstd."""
SMALL_IN_COMMANDS = {"ENRICHER_KAFKA__PROPERTIES": json.dumps(SMALL)}
MEMORY_BYTES = 1_500_000_000


def write_batch(topics: Topics, values: Sequence[bytes], *, transactional_id: str = "") -> None:
    """Write these values in one batch of zstd on partition 0, with a transaction marker behind it if asked to."""
    own = {"transactional.id": transactional_id} if transactional_id else {}
    producer = Producer(
        {
            "bootstrap.servers": topics.bootstrap_servers,
            "compression.type": "zstd",
            "message.max.bytes": 400_000_000,
            "batch.size": 400_000_000,
            "linger.ms": 30_000,  # until it is flushed: a busy machine takes long to copy such values
            **own,
        }
    )
    if own:
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
    for value in values:
        producer.produce(topics.input, value, b"k", partition=0)
    if own:
        producer.commit_transaction(PATIENCE_S)
    assert producer.flush(PATIENCE_S) == 0


def test_a_batch_that_cannot_be_unpacked_is_no_damaged_log() -> None:
    """Its checksum is valid: after the third fetch it is certain, and the worker does not end."""
    damage = Damage()
    certain = []
    for now_s in range(100):
        assert damage.is_seen(UNREADABLE, PLACE, 7, 7, float(now_s))
        certain.append(damage.is_unreadable(UNREADABLE))
    assert certain == [False, False] + [True] * 98


def test_the_rest_of_a_batch_that_was_given_up_needs_no_more_looks() -> None:
    """It is given up in parts, as capacity allows; the batch behind it gets its own fetches."""
    damage = Damage()
    for _ in range(3):
        damage.is_seen(UNREADABLE, PLACE, 7, 7, 0.0)
    damage.give_up(20, more=True)
    damage.is_seen(UNREADABLE, PLACE, 7, 20, 0.0)
    assert damage.is_unreadable(UNREADABLE)
    damage.give_up(30, more=False)
    damage.is_seen(UNREADABLE, PLACE, 30, 30, 0.0)
    assert not damage.is_unreadable(UNREADABLE)


def test_where_it_cannot_be_told_which_offsets_are_lost_the_end_is_loud(monkeypatch: pytest.MonkeyPatch) -> None:
    """The older formats name the last offset of a batch: it may hold the records before that, or they may be a gap."""
    topics = Topics("127.0.0.1:1", "articles", "entities", "dead-letters", "group", {})
    monkeypatch.setattr(unreadable, "first_leader_epoch", lambda *_: None)
    with pytest.raises(BrokerError, match=r"articles\[3\] at offset 9 .* from 7 on.*--reset-offsets"):
        UnreadableBatches(config_for(topics)).span(PLACE, 7, GZIP, 9)


def test_a_batch_that_is_met_from_its_beginning_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be another batch by now, in a recreated topic or a truncated log: its records are not lost."""
    ends = iter([107, 8])

    class Looker:
        def __init__(self, *_: object) -> None: ...

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...

        def end(self, _inside: int) -> int:
            return next(ends)

    monkeypatch.setattr(unreadable, "_BatchEndFinder", Looker)
    batches = UnreadableBatches(config_for(Topics("127.0.0.1:1", "articles", "entities", "dead-letters", "group", {})))
    assert batches.span(PLACE, 7, UNREADABLE, 7) == range(7, 107)
    assert batches.span(PLACE, 50, UNREADABLE, 7) == range(50, 107)
    assert batches.span(PLACE, 7, UNREADABLE, 7) == range(7, 8)


@pytest.mark.parametrize("looks", [1, 2, 3, 5, 13])
def test_looks_that_take_too_long_are_not_in_vain(looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch of a hundred megabytes takes long on a slow machine; if progress did not count, no attempt would end."""
    seen: list[int] = []

    def is_inside(_self: object, offset: int) -> bool:
        if len(seen) == looks:
            raise TransactionTrouble("no answer in time")
        seen.append(offset)
        return offset < 100

    monkeypatch.setattr(unreadable._BatchEndFinder, "_is_inside", is_inside)
    batches = UnreadableBatches(config_for(Topics("127.0.0.1:1", "articles", "entities", "dead-letters", "group", {})))
    expected, rounds = 0, 0
    while expected < 100:
        span = batches.span(PLACE, expected, UNREADABLE, 0)
        assert (span.start, span.stop <= 100) == (expected, True)
        expected, rounds = span.stop, rounds + 1
        seen.clear()
    assert rounds <= 100


def test_where_nobody_answers_there_is_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers that do not answer say nothing about a batch."""
    monkeypatch.setattr(unreadable, "_LOOKUP_S", 0.2)
    batches = UnreadableBatches(config_for(Topics("127.0.0.1:1", "articles", "entities", "dead-letters", "group", {})))
    with pytest.raises(TransactionTrouble, match="no answer"):
        batches.span(PLACE, 7, UNREADABLE, 7)


def test_the_dead_letter_says_where_the_batch_stands_and_has_no_value() -> None:
    """A header distinguishes it from the dead letter of a tombstone."""
    raw = RawRecord(PLACE, 8, None, None, unreadable=Unreadable(7, "no"))
    ticket = replace(finished(raw), outcome=DeadLetter("decode", "UnreadableBatch", "no"))
    encoder = Encoder(version="test", max_record_bytes=10_000, max_dead_letter_bytes=10_000, clock=lambda: 0.0)
    message = encoder.outgoing(ticket)
    headers = dict(message.headers)
    assert (message.key, message.value) == (None, None)
    assert (headers["enricher.dlq.batch.offset"], headers["enricher.dlq.source.offset"]) == (b"7", b"8")


def small(topics: Topics) -> KafkaConfig:
    """A configuration for batches that need no memory."""
    return config_for(topics, properties=SMALL)


@pytest.mark.broker
def test_one_record_stands_in_for_each_offset_of_the_batch(topics: Topics) -> None:
    """No more, even if a transaction marker follows, and none is left out if it comes in parts."""
    write_batch(topics, [b"before"])
    write_batch(topics, [b"a" * 1_000_000] * 7, transactional_id=f"{topics.group}.publisher")
    wait_until(
        lambda: committed_and_ends(topics.bootstrap_servers, "x", topics.input)[0][1] == 9, PATIENCE_S, "the marker"
    )
    write_batch(topics, [b"b" * 3_000_000])
    write_batch(topics, [b"after"])
    source, _ = opened(small(topics))
    records: list[RawRecord] = []
    while not records or records[-1].value != b"after":
        records += records_of(source, 2) if len(records) < 9 else records_of(source, 1)
    assert [(0, False), *((offset, True) for offset in range(1, 8)), (9, True), (10, False)] == [
        (record.offset, record.unreadable is not None) for record in records
    ]
    assert [1] * 7 + [9] == [record.unreadable.batch_offset for record in records if record.unreadable]


@pytest.mark.broker
@pytest.mark.parametrize("values", [[b"one"], [b"one", b"two", b"three"]], ids=["a record", "three records"])
def test_a_batch_of_another_codec_behind_the_end_of_a_transaction_is_passed_as_well(
    topics: Topics, values: Sequence[bytes]
) -> None:
    """Its format is known from the first offset of the partition, so the marker before it is no record of it."""
    with transaction(topics.bootstrap_servers, f"{topics.group}.publisher") as producer:
        producer.produce(topics.input, b"before", b"k", partition=0)
    with transaction(topics.bootstrap_servers, f"{topics.group}.publisher", commit=False) as producer:
        producer.produce(topics.input, b"aborted", b"k", partition=0)
    begins = produce(topics.bootstrap_servers, topics.input, 0, broken_snappy(values))
    write_batch(topics, [b"after"])
    source, _ = opened(small(topics))
    records = records_of(source, len(values) + 2)
    assert [0, *range(begins, begins + len(values))] == [record.offset for record in records[:-1]]
    assert [b"before", *[None] * len(values), b"after"] == [record.value for record in records]


@pytest.mark.broker
def test_reading_that_begins_inside_of_the_batch_gives_the_rest_of_it(topics: Topics) -> None:
    """A worker that follows one that had given up a part of it."""
    write_batch(topics, [b"a" * 1_000_000] * 7)
    span = UnreadableBatches(small(topics)).span(Partition(topics.input, 0), 4, UNREADABLE, 0)
    assert range(4, 7) == span


@pytest.fixture
def bombed(topics: Topics) -> tuple[Topics, dict[tuple[int, int], Sent]]:
    """Articles on all partitions; on the first one also a record of 100 MB and a batch of three of 40 MB, 3 KB each."""
    articles = [as_sent(article) for article in short_articles(40)]
    places = publish(topics.bootstrap_servers, topics.input, articles[:20])
    start = sum(partition == 0 for partition, _ in places)
    write_batch(topics, [b"a" * 100_000_000])
    write_batch(topics, [b"a" * 40_000_000] * 3)
    places |= dict.fromkeys(((0, offset) for offset in range(start, start + 4)), Sent(None, None))
    return topics, places | publish(topics.bootstrap_servers, topics.input, articles[20:])


@pytest.mark.broker
def test_a_worker_goes_past_it_exactly_once_and_the_verifier_agrees(
    bombed: tuple[Topics, dict[tuple[int, int], Sent]], tmp_path: Path
) -> None:
    """As it ships and within its memory; `lag` counts offsets meanwhile, and doctor's right to read is proved."""
    topics, places = bombed
    seen = run("lag", "--json", "--max-age-s", "3600", env=topics.environment)
    assert seen.exit_code == 0, seen.output
    before = json.loads(seen.stdout)
    assert before["behind"] == len(places)
    log = tmp_path / "log"
    run_to_the_end(topics, log)
    letters = read_all(topics.bootstrap_servers, topics.dead_letters)
    assert_exactly_once([*read_all(topics.bootstrap_servers, topics.output), *letters], places)
    assert {"UnreadableBatch"} == {(headers_of(each)["enricher.dlq.error.type"] or b"").decode() for each in letters}
    assert [None] * 4 == [each.value() for each in letters]
    assert log.read_text().count("cannot be read and become dead letters") == 2
    verified = run("verify", "--json", env=topics.environment)
    assert verified.exit_code == 0, verified.output


def run_to_the_end(topics: Topics, log: Path) -> None:
    """`enricher run --until-caught-up`, with a limit on its data, and its peak within what is promised."""
    environment = os.environ | topics.environment | {LIMIT: str(2 * MEMORY_BYTES)}
    assert 0 == Forked([LIMITED_WORKER, "run", "--until-caught-up"], environment, log).wait(PATIENCE_S)
    assert int(log.read_text().rsplit("peak ", 1)[1]) * 1024 < MEMORY_BYTES


@pytest.mark.broker
def test_a_group_in_front_of_it_is_behind_in_offsets_and_of_unknown_age(topics: Topics) -> None:
    """`lag` counts without reading records; an unknown age is not an age of 0."""
    write_batch(topics, [b"a" * 3_000_000])
    seen = run("lag", "--json", "--max-age-s", "3600", env=topics.environment | SMALL_IN_COMMANDS)
    assert seen.exit_code == 9, seen.output
    backlog = json.loads(seen.stdout)
    assert (backlog["behind"], backlog["age_s"]) == (1, None)


@pytest.mark.broker
def test_doctor_can_read_a_topic_that_holds_one(topics: Topics) -> None:
    """It is passed over; the worker decides what happens to the record."""
    write_batch(topics, [b"a" * 3_000_000])
    found = json.loads(run("doctor", "--only", "broker", "--json", env=topics.environment | SMALL_IN_COMMANDS).stdout)[
        "checks"
    ]
    assert [f"'{topics.input}' has no records yet"] == [
        each["seen"] for each in found if each["check"] == "the newest articles"
    ]
