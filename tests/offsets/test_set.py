"""`enricher offsets set`: what it commits and refuses, and what outputs tell about a group whose offsets are gone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from datetime import UTC, datetime

import pytest
from commands.cli_runner import enriched_record, run
from confluent_kafka import Producer
from confluent_kafka.admin import ResourceType
from kafka.clients import config_for, dead, ends_for, finished, grow, inputs, joined, poll_until, records_of, release_of
from kafka.harness import Sent, publish, transaction
from kafka.test_start import enrich, publish_to
from support.operating import alter, commit, delete_group, delete_records, write
from support.patience import PATIENCE_S, wait_until
from support.reading import commit_of, committed_and_ends, read_all
from support.topics import Topics

from enricher.errors import BrokerError, FatalError, NoAnswer, SettingsError
from enricher.operate import behind_outputs as setting
from enricher.operate.behind_outputs import BehindOutputs
from enricher.operate.inspector import Inspector
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.records import Mark, RawRecord, ReachedLimit, Ticket, Tombstone
from enricher.worker.rules.commit_metadata import CommitMetadata
from tools.kafka import Cluster

pytestmark = pytest.mark.broker

COUNT = 40
CANNOT_TELL = r"do not show where the group stood: .*{}.*--at OFFSET"


@pytest.fixture
def config(topics: Topics) -> KafkaConfig:
    """The worker's configuration, and 40 inputs to enrich."""
    publish(topics.bootstrap_servers, topics.input, inputs(COUNT))
    return config_for(topics)


def searched(config: KafkaConfig, numbers: Sequence[int] = range(4)) -> dict[int, int]:
    """Where the outputs say that the group goes on."""
    with closing(Inspector(config)) as ask:
        return BehindOutputs(config, ask, lambda *_: None).next_offsets(numbers)


def ends_of(records: Sequence[RawRecord]) -> dict[int, int]:
    """The offset behind the last record of each partition."""
    return {record.partition.number: record.offset + 1 for record in records}


@contextmanager
def left_open(topics: Topics, topic: str, name: str) -> Iterator[Producer]:
    """A record of another producer in each partition, in a transaction that is open; aborted in the end."""
    with transaction(topics.bootstrap_servers, f"{topics.group}.{name}", commit=False) as producer:
        for number in range(4):
            producer.produce(topic, b"another producer's", b"k", partition=number)
        assert producer.flush(PATIENCE_S) == 0
        yield producer


def enrich_behind(
    producer_of: AbstractContextManager[Producer], config: KafkaConfig, opening: ExitStack
) -> list[RawRecord]:
    """Enrich all inputs, after `opening` has begun a transaction of another producer."""
    source, sink = ends_for(config)
    records = records_of(source, COUNT)
    opening.enter_context(producer_of)
    sink.publish(release_of(records, lambda raw: dead(raw) if raw.offset % 3 else finished(raw)))
    source.close()
    return records


@pytest.mark.parametrize(
    ("policy", "dead_letters", "others", "aborted", "more"),
    [
        pytest.param("delete", 0, 0, "", False, id="enriched records"),
        pytest.param("delete", 2, 0, "", False, id="dead letters as well"),
        pytest.param("delete", 2, 1_000, "", False, id="a thousand records of others behind ours"),
        pytest.param("delete", 0, 0, "output", True, id="aborted outputs, where nothing is compacted"),
        pytest.param("delete", 0, 0, "dead_letters", True, id="aborted letters, where nothing is compacted"),
        pytest.param("compact,delete", 0, 100, "", True, id="a compacted topic without a gap at its end"),
        pytest.param("compact", 0, 0, "output", False, id="a compacted topic, at the end of the input"),
    ],
)
def test_the_newest_output_or_dead_letter_says_where_the_group_stood(
    topics: Topics, config: KafkaConfig, policy: str, dead_letters: int, others: int, aborted: str, *, more: bool
) -> None:
    """Offsets without a record are ends of transactions and aborted records, unless they may have been compacted away.

    At the end of the input nothing could be written again. `more`: inputs that came later.
    """
    alter(topics.bootstrap_servers, topics.output, {"cleanup.policy": policy})
    records = enrich(config, COUNT, dead_letters=dead_letters)
    for number in range(4):
        publish_to(topics, number, others, topics.output)
    if aborted:
        with left_open(topics, getattr(topics, aborted), "aborted"):
            pass
    if more:
        publish(topics.bootstrap_servers, topics.input, inputs(COUNT))
    assert ends_of(records) == searched(config)


def test_headers_that_no_worker_writes_say_nothing(topics: Topics, config: KafkaConfig) -> None:
    """Whoever may write to the topic chooses them: more digits than Python reads, or an id that is no text."""
    records = enrich(config, COUNT)
    [odd, other] = [enriched_record("k", (topics.input, 0, 99)) for _ in range(2)]
    odd["headers"][2] = ("enricher.source.offset", b"9" * 5_000)
    other["headers"].append(("enricher.source.topic.id", b"\xff"))
    write(topics.bootstrap_servers, topics.output, [odd, other])
    assert ends_of(records) == searched(config)


def test_outputs_that_were_deleted_cannot_tell(topics: Topics, config: KafkaConfig) -> None:
    """Retention has emptied the output topic as well: a guess would double or lose."""
    enrich(config, COUNT)
    delete_records(topics.bootstrap_servers, topics.output, dict.fromkeys(range(4), -1))
    with pytest.raises(BrokerError, match=CANNOT_TELL.format("deleted")):
        searched(config)


def test_outputs_beyond_the_end_of_the_input_are_of_an_earlier_topic(topics: Topics) -> None:
    """Without a topic id nothing else tells it: outputs of offsets that the input has never had."""
    write(topics.bootstrap_servers, topics.output, [enriched_record("k", (topics.input, 0, 99))])
    with pytest.raises(BrokerError, match=CANNOT_TELL.format("ends at 0")):
        searched(config_for(topics))


@pytest.mark.parametrize("written", [[], ["AnotherTopicsIdAAAAAAA"]], ids=["none", "those of an earlier topic"])
def test_where_nothing_was_enriched_the_group_begins_at_the_beginning(
    topics: Topics, config: KafkaConfig, written: list[str]
) -> None:
    """Also in compacted topics. The id of an earlier topic differs: what the new one has was never enriched."""
    alter(topics.bootstrap_servers, topics.output, {"cleanup.policy": "compact"})
    old = [enriched_record("k", (topics.input, 0, 99), topic_id) for topic_id in written]
    write(topics.bootstrap_servers, topics.output, old)
    assert {} == searched(config)


def test_partitions_that_the_outputs_do_not_have_cannot_be_told(topics: Topics, config: KafkaConfig) -> None:
    """Their outputs may be in any partition."""
    enrich(config, COUNT)
    grow(topics, 5, topics.input)
    with pytest.raises(BrokerError, match=CANNOT_TELL.format("has only 4 partitions")):
        searched(config, [4])


@pytest.mark.parametrize("role", ["output", "dead_letters"])
def test_outputs_behind_an_open_transaction_are_waited_for(topics: Topics, config: KafkaConfig, role: str) -> None:
    """A reader of committed records cannot see them, so what they say would come too early, and be doubled."""
    with ExitStack() as opening:
        records = enrich_behind(left_open(topics, getattr(topics, role), "open"), config, opening)

        def show(step: str, done: int, total: int) -> None:
            if "waiting for open transactions" in step and done < total:
                opening.close()

        with closing(Inspector(config)) as ask:
            assert ends_of(records) == BehindOutputs(config, ask, show).next_offsets(range(4))


def test_a_transaction_that_does_not_end_is_refused(
    topics: Topics, config: KafkaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the tool that ends it."""
    monkeypatch.setattr(setting, "_OPEN_S", -config.transaction_timeout_s)
    with ExitStack() as opening:
        enrich_behind(left_open(topics, topics.output, "open"), config, opening)
        with pytest.raises(NoAnswer, match=r"partitions 0, 1, 2, 3, hides.*kafka-transactions"):
            searched(config)


def deleted(raw: RawRecord) -> Ticket:
    """A ticket of an article, or of its deletion if the record has no value."""
    if raw.value is not None:
        return finished(raw)
    ticket = Ticket(raw, arrived_s=0.0)
    ticket.finish(Tombstone())
    return ticket


@pytest.fixture
def quick_cleaner(broker: Cluster, topics: Topics) -> Iterator[None]:
    """The broker's log cleaner looks for work ten times a second instead of every 15 s."""
    node = str(broker.nodes[0].node_id)
    alter(topics.bootstrap_servers, node, {"log.cleaner.backoff.ms": "100"}, ResourceType.BROKER)
    yield
    alter(topics.bootstrap_servers, node, {"log.cleaner.backoff.ms": None}, ResourceType.BROKER)


COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.0",
    "delete.retention.ms": "0",
}


@pytest.mark.usefixtures("quick_cleaner")
def test_outputs_that_compaction_removed_cannot_tell(topics: Topics) -> None:
    """The last outputs were deletions, which the cleaner removes in the end: the newest one left is only a lower bound."""
    alter(topics.bootstrap_servers, topics.output, COMPACTED)
    keys = [b"k%d" % number for number in range(20)]
    publish(topics.bootstrap_servers, topics.input, [Sent(key, b"v") for key in keys])
    publish(topics.bootstrap_servers, topics.input, [Sent(key, None) for key in keys[:10]])
    config = config_for(topics)
    source, sink = ends_for(config)
    sink.publish(release_of(records_of(source, 30), deleted))
    source.close()

    def cleaned() -> bool:
        for number in range(4):  # a segment ends with the next record
            publish_to(topics, number, 1, topics.output)
        return not {*keys[:10]}.intersection(
            message.key() for message in read_all(topics.bootstrap_servers, topics.output)
        )

    wait_until(cleaned, PATIENCE_S, "the cleaner has removed the deletions")
    with pytest.raises(BrokerError, match=CANNOT_TELL.format("compacted")):
        searched(config)


def test_without_the_right_to_ask_a_topic_may_be_compacted(
    topics: Topics, config: KafkaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without DESCRIBE_CONFIGS the broker does not say."""
    monkeypatch.setattr(Inspector, "is_compacted", lambda *_: None)
    enrich(config, COUNT)
    with left_open(topics, topics.dead_letters, "aborted"):
        pass
    delete_group(topics.bootstrap_servers, topics.group)
    publish(topics.bootstrap_servers, topics.input, inputs(COUNT))
    with pytest.raises(BrokerError, match=CANNOT_TELL.format("DESCRIBE_CONFIGS")):
        searched(config)


def set_at(topics: Topics, at: str, *options: str) -> list[dict[str, int | None]]:
    """Run it; returns the printed lines. Raises its error."""
    result = run("offsets", "set", topics.group, topics.input, "--at", at, *options, env=topics.environment)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert 0 == result.exit_code, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def committed(topics: Topics) -> dict[int, int]:
    """The group's offset of each partition; -1001 if it has none."""
    return {n: at for n, (at, _) in committed_and_ends(topics.bootstrap_servers, topics.group, topics.input).items()}


def test_a_group_with_members_is_refused(topics: Topics) -> None:
    """Its workers would go on where they are, and commit that."""
    publish(topics.bootstrap_servers, topics.input, inputs(40))
    source, diary = joined(config_for(topics))
    poll_until(source, lambda: bool(diary.owned))
    with pytest.raises(FatalError, match="has members: stop its workers"):
        set_at(topics, "beginning")


def test_beginning_and_end_are_those_that_retention_and_publishers_left(topics: Topics) -> None:
    """The old offsets are printed beside the new ones, null where there was none."""
    publish(topics.bootstrap_servers, topics.input, inputs(40))
    found = committed_and_ends(topics.bootstrap_servers, topics.group, topics.input)
    ends = {number: end for number, (_, end) in found.items()}
    delete_records(topics.bootstrap_servers, topics.input, {0: 2})
    assert [{"partition": n, "from": None, "to": ends[n]} for n in range(4)] == set_at(topics, "end")
    assert ends == committed(topics)
    assert [{"partition": n, "from": ends[n], "to": 2 if n == 0 else 0} for n in range(4)] == set_at(
        topics, "beginning"
    )
    assert {0: 2, 1: 0, 2: 0, 3: 0} == committed(topics)


def test_a_dry_run_commits_nothing_and_prints_the_offsets(topics: Topics) -> None:
    """Each can be given by itself; partitions that are left out stay as they are."""
    config = config_for(topics)
    publish(topics.bootstrap_servers, topics.input, inputs(40))
    records = enrich(config, 40)
    delete_group(topics.bootstrap_servers, topics.group)
    rows = set_at(topics, "behind-outputs", "--dry-run")
    assert {-1001} == {*committed(topics).values()}
    assert {r.partition.number: r.offset + 1 for r in records} == {row["partition"]: row["to"] for row in rows}
    assert rows[2:3] == set_at(topics, str(rows[2]["to"]), "--partition", "2")
    assert [-1001, -1001, rows[2]["to"], -1001] == [*committed(topics).values()]


def test_one_partition_is_set_beside_others(topics: Topics) -> None:
    """As the refusal of a single lost offset names it."""
    publish(topics.bootstrap_servers, topics.input, inputs(40))
    commit(topics.bootstrap_servers, topics.group, topics.input, {0: 1, 1: 2, 3: 3})
    assert [{"partition": 2, "from": None, "to": 0}] == set_at(topics, "behind-outputs", "--partition", "2")
    assert {0: 1, 1: 2, 2: 0, 3: 3} == committed(topics)


def test_a_time_is_that_of_records_and_the_end_where_none_is_later(topics: Topics) -> None:
    """A time that is to come would be a typing error."""
    publish(topics.bootstrap_servers, topics.input, inputs(40))
    found = committed_and_ends(topics.bootstrap_servers, topics.group, topics.input)
    set_at(topics, "2020-01-01")
    assert {0} == {*committed(topics).values()}
    with pytest.raises(SettingsError, match="is in the future"):
        set_at(topics, "2130-01-01T00:00Z")
    set_at(topics, datetime.now(UTC).isoformat())
    assert {number: end for number, (_, end) in found.items()} == committed(topics)


def test_a_word_that_is_not_understood_changes_nothing(topics: Topics) -> None:
    """A typing error must not become an offset, nor one that the topic does not have: workers would start elsewhere."""
    publish(topics.bootstrap_servers, topics.input, inputs(40))
    for words, error, message in (
        (("begining",), SettingsError, "--at begining: it is beginning"),
        (("4711",), SettingsError, "the offset of one --partition"),
        (("0", "--partition", "0", "--partition", "1"), SettingsError, "the offset of one --partition"),
        (("0", "--partition", "4"), SettingsError, "has 4 partitions, not 4"),
        (("100", "--partition", "1"), BrokerError, r"has offsets 0 to \d+, not 100"),
        (("9" * 30, "--partition", "1"), SettingsError, "the offset of one --partition"),
    ):
        with pytest.raises(error, match=message):
            set_at(topics, *words)
    assert {-1001} == {*committed(topics).values()}


def test_what_stands_beside_an_offset_is_kept_but_attempts(topics: Topics) -> None:
    """A limit of dead letters belongs to the group, attempts to one record."""
    publish(topics.bootstrap_servers, topics.input, inputs(40))
    before = CommitMetadata(None, Mark(2, 1), reached_limit=ReachedLimit(3, 4, "why"))
    commit(topics.bootstrap_servers, topics.group, topics.input, {1: 2}, before.encode())
    set_at(topics, "beginning", "--partition", "1")
    after = CommitMetadata.decode(commit_of(topics.bootstrap_servers, topics.group, topics.input, 1).metadata)
    assert (ReachedLimit(3, 4, "why"), Mark()) == (after.reached_limit, after.mark)
    assert after.topic_id is not None
