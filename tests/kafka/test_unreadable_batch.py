"""Batches that cannot be read: damaged ones end the worker with their place; unpackable ones are skipped by a command."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from commands.cli_runner import run
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from kafka.clients import config_for, opened, poll_until
from kafka.harness import Sent, as_sent, assert_exactly_once, headers_of, publish, short_articles, transaction
from kafka.limited_worker import LIMIT, LIMITED_WORKER
from kafka.quiet import CLIENT_ERRORS, CONFIG, PLACE, Quiet
from support.batches import broken_snappy, produce
from support.forked import Forked
from support.operating import commit
from support.patience import PATIENCE_S
from support.reading import read_all
from support.topics import Topics, make_topics

from enricher.errors import BrokerError, FatalError, TransactionTrouble
from enricher.operate import offset_commands as skipping
from enricher.worker.kafka import partition as rules
from enricher.worker.kafka import ranges
from enricher.worker.kafka.assignment import Assignment, Fetching
from enricher.worker.kafka.partition import Damage, State
from enricher.worker.kafka.partitions import Partitions
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.ranges import RangeReader, UnreadableBatches
from enricher.worker.records import Mark, Start
from tools.kafka import Cluster

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


def test_a_batch_that_cannot_be_unpacked_is_certain_after_ten_fetches() -> None:
    """Its checksum is valid, so time changes nothing; the batch behind it gets its own fetches."""
    damage = Damage()
    certain = []
    for _ in range(12):
        assert damage.is_seen(UNREADABLE, PLACE, 7, 7, 0.0)
        certain.append(bool(damage.unreadable))
    assert [False] * 9 + [True] * 3 == certain
    damage.is_seen(UNREADABLE, PLACE, 30, 30, 0.0)
    assert "" == damage.unreadable


def test_what_comes_before_it_is_committed_before_the_process_ends() -> None:
    """Else a restart would end again before it has published that, and the command would find a record to read."""
    quiet = Quiet()
    assignment = Assignment(quiet.consumer, CONFIG, quiet.watch, CLIENT_ERRORS)
    assignment.add([TopicPartition(*PLACE)])
    at = assignment.partitions[PLACE]
    at.deliver(0, None, 0.0)
    for _ in range(10):
        at.is_damaged(UNREADABLE, 1, 0.0)
    assignment.require_readable(at)
    assignment.hold([], 0.0)
    assert (State.HELD, {PLACE}) == (at.state, quiet.paused)
    assignment.note_commit({PLACE: 1})
    assignment.hold([], 0.0)
    assert (State.READING, set()) == (at.state, quiet.paused)
    with pytest.raises(
        BrokerError, match=r"articles\[3\] at the committed offset 1.*skip group articles --partition 3"
    ):
        assignment.require_readable(at)


def test_where_it_cannot_be_told_which_offsets_are_lost_the_end_is_loud(monkeypatch: pytest.MonkeyPatch) -> None:
    """The older formats name the last offset of a batch: it may hold the records before that, or they may be a gap."""
    monkeypatch.setattr(ranges, "first_leader_epoch", lambda *_: None)
    with pytest.raises(BrokerError, match=r"articles\[3\] at offset 9 .* from 7 on.*--reset-offsets"):
        UnreadableBatches(CONFIG).span(PLACE, 7, GZIP, 9)


def test_a_batch_that_is_met_from_its_beginning_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be another batch by now, in a recreated topic or a truncated log: its records are not lost."""
    ends = iter([107, 8])
    monkeypatch.setattr(ranges._BatchEndFinder, "end", lambda *_: next(ends))
    batches = UnreadableBatches(CONFIG)
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

    monkeypatch.setattr(ranges._BatchEndFinder, "_is_inside", is_inside)
    batches = UnreadableBatches(CONFIG)
    expected, rounds = 0, 0
    while expected < 100:
        span = batches.span(PLACE, expected, UNREADABLE, 0)
        assert (span.start, span.stop <= 100) == (expected, True)
        expected, rounds = span.stop, rounds + 1
        seen.clear()
    assert rounds <= 100


def small(topics: Topics) -> KafkaConfig:
    """A configuration for batches that need no memory."""
    return config_for(topics, properties=SMALL)


def skip(topics: Topics) -> dict[str, int]:
    """Step over what partition 0 has next, with a client that unpacks little; returns what the command says."""
    arguments = (topics.group, topics.input, "--partition", "0")
    result = run("offsets", "skip", *arguments, env=topics.environment | SMALL_IN_COMMANDS)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    said: dict[str, int] = json.loads(result.stdout)
    return said


def letters_of(topics: Topics) -> list[tuple[bytes | None, bytes | None]]:
    """The offset of each dead letter's input, and that of its batch."""
    found = [headers_of(each) for each in read_all(topics.bootstrap_servers, topics.dead_letters)]
    return [(each["enricher.dlq.source.offset"], each["enricher.dlq.batch.offset"]) for each in found]


@pytest.mark.broker
def test_one_letter_stands_for_each_offset_of_the_batch(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more, even if a transaction marker follows, and none is left out if it takes several transactions."""
    monkeypatch.setattr(skipping, "_PER_TRANSACTION", 3)
    write_batch(topics, [b"a" * 1_000_000] * 7, transactional_id=f"{topics.group}.publisher")
    write_batch(topics, [b"b" * 3_000_000])
    commit(topics.bootstrap_servers, topics.group, topics.input, dict.fromkeys(range(4), 0))
    assert {"partition": 0, "from": 0, "to": 7, "letters": 7} == skip(topics)
    assert [(b"%d" % offset, b"0") for offset in range(7)] == letters_of(topics)
    assert {"partition": 0, "from": 7, "to": 9, "letters": 1} == skip(topics)
    assert (b"8", b"8") == letters_of(topics)[-1]


@pytest.mark.broker
def test_a_batch_of_another_codec_behind_a_marker_is_skipped_as_well(topics: Topics) -> None:
    """Its format is known from the first offset of the partition, so the marker before it is no record of it."""
    with transaction(topics.bootstrap_servers, f"{topics.group}.publisher") as producer:
        producer.produce(topics.input, b"before", b"k", partition=0)
    begins = produce(topics.bootstrap_servers, topics.input, 0, broken_snappy([b"one", b"two", b"three"]))
    commit(topics.bootstrap_servers, topics.group, topics.input, {0: 1, 1: 0, 2: 0, 3: 0})
    assert {"partition": 0, "from": 1, "to": begins + 3, "letters": 3} == skip(topics)


@pytest.mark.broker
def test_what_can_be_read_is_not_skipped(topics: Topics) -> None:
    """A wrong partition, or a second call, must lose nothing; nor may anybody skip beside workers."""
    write_batch(topics, [b"before"])
    commit(topics.bootstrap_servers, topics.group, topics.input, dict.fromkeys(range(4), 0))
    with pytest.raises(FatalError, match="can be read: there is nothing to skip"):
        skip(topics)
    source, _ = opened(small(topics))
    with pytest.raises(FatalError, match="has 1 members: stop its workers"):
        skip(topics)
    source.close()


@pytest.fixture
def bombed(topics: Topics) -> tuple[Topics, dict[tuple[int, int], Sent]]:
    """Articles on all partitions; on the first one also a batch of three of 40 MB, 3 KB each."""
    articles = [as_sent(article) for article in short_articles(40)]
    places = publish(topics.bootstrap_servers, topics.input, articles[:20])
    start = sum(partition == 0 for partition, _ in places)
    write_batch(topics, [b"a" * 40_000_000] * 3)
    places |= dict.fromkeys(((0, offset) for offset in range(start, start + 3)), Sent(None, None))
    return topics, places | publish(topics.bootstrap_servers, topics.input, articles[20:])


@pytest.mark.broker
def test_a_worker_ends_before_it_and_goes_on_once_it_is_skipped(
    bombed: tuple[Topics, dict[tuple[int, int], Sent]], tmp_path: Path
) -> None:
    """With the command of its message: nothing is lost, doubled or out of order. `verify` agrees."""
    topics, places = bombed
    seen = run("lag", "--json", "--max-age-s", "3600", env=topics.environment)
    assert seen.exit_code == 0, seen.output
    assert len(places) == json.loads(seen.stdout)["behind"]
    assert 4 == run_to_the_end(topics, tmp_path / "ended")
    command = f"offsets skip {topics.group} {topics.input} --partition 0"
    assert f"enricher {command}" in (tmp_path / "ended").read_text()
    result = run(*command.split(), env=topics.environment)
    assert 0 == result.exit_code, result.output
    assert 0 == run_to_the_end(topics, tmp_path / "log")
    letters = read_all(topics.bootstrap_servers, topics.dead_letters)
    assert_exactly_once([*read_all(topics.bootstrap_servers, topics.output), *letters], places)
    assert {"UnreadableBatch"} == {(headers_of(each)["enricher.dlq.error.type"] or b"").decode() for each in letters}
    assert [None] * 3 == [each.value() for each in letters]
    verified = run("verify", "--json", env=topics.environment)
    assert verified.exit_code == 0, verified.output


def run_to_the_end(topics: Topics, log: Path) -> int:
    """`enricher run --until-caught-up`, with a limit on its data, and its peak within what is promised; its exit code."""
    environment = os.environ | topics.environment | {LIMIT: str(2 * MEMORY_BYTES)}
    code = Forked([LIMITED_WORKER, "run", "--until-caught-up"], environment, log).wait(PATIENCE_S)
    if code == 0:
        assert int(log.read_text().rsplit("peak ", 1)[1]) * 1024 < MEMORY_BYTES
    return code


DAMAGED = KafkaError(KafkaError._BAD_MSG, "MessageSet at offset 7 failed CRC32C check")
ENDED = KafkaError(KafkaError._PARTITION_EOF)


def test_damage_that_passes_is_waited_out() -> None:
    """A bit that flipped in the network is right in the next fetch, and many fetches take no time."""
    damage = Damage()
    assert all(damage.is_seen(DAMAGED, PLACE, 99, 7, now_s / 1_000) for now_s in range(5_000))
    damage.clear()
    assert damage.is_seen(DAMAGED, PLACE, 99, 7, 1_000.0)


def test_damage_at_another_offset_is_counted_by_itself() -> None:
    """A network that damages one batch and then another still delivers both."""
    damage = Damage()
    assert all(damage.is_seen(DAMAGED, PLACE, 99, now_s, float(now_s)) for now_s in range(100))


def test_damage_that_stays_is_final_and_says_where() -> None:
    """Topic, partition and offset, and what to do."""
    damage = Damage()
    assert all(damage.is_seen(DAMAGED, PLACE, 99, 7, now_s / 10) for now_s in range(100))
    with pytest.raises(BrokerError, match=r"offset 7 of articles\[3\].*--reset-offsets"):
        damage.is_seen(DAMAGED, PLACE, 99, 7, 10.0)


def test_where_damage_led_the_client_astray_it_looks_again() -> None:
    """Seen: a wrong next offset from the damaged batch, out of range, back at the beginning. A gap stays."""
    damage = Damage()
    assert not damage.is_seen(None, PLACE, 0, 7, 0.0), "no damage"
    damage.is_seen(DAMAGED, PLACE, 99, 7, 0.0)
    assert not damage.is_seen(None, PLACE, 7, 7, 0.0), "where it should go on"
    assert damage.is_seen(None, PLACE, 0, 7, 0.0)
    damage.is_seen(DAMAGED, PLACE, 99, 7, 1.0)
    looks = [damage.is_seen(None, PLACE, 0, 7, now_s) for now_s in (1.0, 1.1, 1.2)]
    assert [True] * 3 == looks, "too soon: this may have been under way"
    damage.is_seen(DAMAGED, PLACE, 99, 7, 2.0)
    assert damage.is_seen(None, PLACE, 0, 7, 3.5), "damaged between the looks"
    looks = [damage.is_seen(ENDED, PLACE, 60, 7, now_s) for now_s in (4.0, 5.0, 6.0)]
    assert [True, True, False] == looks, "an end may be a stray, too; after several looks it is where the log goes on"


@pytest.fixture(params=["none", "lz4"])
def damaged(request: pytest.FixtureRequest, broker: Cluster) -> Topics:
    """A topic of three batches, of one record each, of which the second has a wrong byte on the broker's disk."""
    topics = make_topics(broker.bootstrap_servers, partitions=1)
    producer = Producer({"bootstrap.servers": topics.bootstrap_servers, "compression.type": request.param})
    for number in range(3):  # a flush each: the client divides what it sends together into batches as it likes
        producer.produce(topics.input, os.urandom(20) * 400, f"k{number}".encode())
        producer.flush()
    break_batch(next((broker.nodes[0].folder / "log").glob(f"{topics.input}-0/*0000.log")), 1)
    return topics


def break_batch(segment: Path, number: int) -> None:
    """Invert one byte of a batch, under a broker that runs: it reads the file again for each fetch."""
    with segment.open("r+b") as file:
        content, at = file.read(), 0
        for _ in range(number):
            at += 12 + struct.unpack_from(">qi", content, at)[1]
        length = struct.unpack_from(">qi", content, at)[1]
        file.seek(at + length - 40)
        file.write(bytes([content[at + length - 40] ^ 0xFF]))


@pytest.mark.broker
def test_a_damaged_batch_ends_the_worker_with_its_place(damaged: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is neither read as data nor fetched for ever, compressed or not."""
    monkeypatch.setattr(rules, "_LASTS_S", 1.0)
    source, _ = opened(config_for(damaged))
    with pytest.raises(BrokerError, match=r"offset 1 of .*articles\[0\]"):
        poll_until(source, lambda: False)
    source.close()


@pytest.mark.broker
def test_a_reader_without_a_group_never_takes_a_damaged_batch_for_data(damaged: Topics) -> None:
    """`verify` and `tail` read like this; unless checksums are checked, a batch that is not compressed passes as data."""
    with (
        closing(RangeReader(config_for(damaged), committed_only=True, progress=lambda *_: None)) as reader,
        pytest.raises(BrokerError, match="reading"),
    ):
        list(reader.read(damaged.input, {0: (0, 3)}, "reading"))


def test_a_client_that_does_not_go_back_is_trouble() -> None:
    """Otherwise it would continue behind the damaged batch, and its records would be lost."""
    consumer = Consumer(CONFIG.consumer())
    consumer.assign([TopicPartition(PLACE.topic, PLACE.number)])  # never begun, for no broker is there
    partitions = Partitions(lambda _name: 10, bound_s=60, start_bound_s=80)
    partitions.add([PLACE], 0.0)
    partitions[PLACE].begin(Start(7, Mark()))
    with pytest.raises(TransactionTrouble, match=r"did not go back .*articles 3"):
        Fetching(consumer, partitions, CLIENT_ERRORS).go_back([PLACE])
    consumer.close()
