"""A rebalance that meets a transaction: the member that stays publishes once more, with the same producer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from kafka.clients import Diary, client_of, config_for, inputs, opened, poll_until, records_of, release_of, sink_for
from kafka.harness import Sent, assert_exactly_once, is_all_committed, publish
from support.closing import CLOSING
from support.patience import PATIENCE_S, wait_until
from support.reading import committed_and_ends, read_all
from support.topics import Topics

from enricher.errors import TransactionTrouble
from enricher.worker.kafka import membership
from enricher.worker.kafka.membership import Member, StaleGeneration, is_stale, proven, successor
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.source import KafkaSource
from enricher.worker.records import RawRecord, Release


class Meets(Producer):
    """A producer to whose offsets something happens between the question for the membership and the request."""

    happens: Callable[[], object]
    times = 0

    def send_offsets_to_transaction(self, *arguments: Any) -> None:  # noqa: ANN401  whatever the sink gave
        """Let it happen, then send them."""
        if type(self).times:
            type(self).times -= 1
            type(self).happens()
        super().send_offsets_to_transaction(*arguments)


@contextmanager
def polled(config: KafkaConfig) -> Iterator[Diary]:
    """Another member, polled in a thread until the end of the context, when it leaves."""
    source, diary, leaving = KafkaSource(config), Diary(), threading.Event()

    def poll() -> None:
        source.open(diary)
        source.pause()
        while not leaving.is_set():
            source.poll(10, 0.02)
        source.close()

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield diary
    finally:
        leaving.set()
        thread.join()


def moved(source: KafkaSource, config: KafkaConfig) -> Callable[[], object]:
    """What makes another member join, and returns once the group has a newer generation of which `source` knows."""
    numbers = iter(range(1, 10))

    def happens() -> None:
        before = source.membership().generation
        CLOSING.enter_context(polled(replace(config, instance=f"worker-{next(numbers)}")))
        wait_until(lambda: source.membership().generation != before, PATIENCE_S, "a newer generation")

    return happens


def meeting(happens: Callable[[], object]) -> type[Meets]:
    """A class of producers to which it happens at their first transaction."""
    return cast("type[Meets]", type("Meeting", (Meets,), {"happens": staticmethod(happens), "times": 1}))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step counts as slow: what happens while offsets are sent takes its time."""
    monkeypatch.setattr(KafkaConfig, "retry_pause_s", 60.0)


@pytest.mark.broker
@pytest.mark.usefixtures("patient")
def test_a_transaction_that_a_rebalance_meets_is_made_once_more(topics: Topics) -> None:
    """The broker refuses the generation of before; partitions that are about to move are published first, once."""
    config = config_for(topics)
    places = publish(topics.bootstrap_servers, topics.input, inputs(40))
    source, diary = opened(config)
    sink, counters = sink_for(source, config, producer_class=meeting(moved(source, config)))
    records = records_of(source, 40)
    sink.publish(release_of(records[:20]))
    assert 1 == counters.transactions_repeated
    assert [] == [kind for kind, _ in diary.events if kind != "assigned"]
    sink.publish(release_of(records[20:]))
    assert 1 == counters.transactions_repeated
    assert 0 == counters.producers_renewed
    assert_exactly_once(read_all(topics.bootstrap_servers, topics.output), places)
    assert 20 == len(read_all(topics.bootstrap_servers, topics.output, "read_uncommitted")) - 40
    poll_until(source, lambda: len(diary.owned) == 2)
    committed = committed_and_ends(topics.bootstrap_servers, topics.group, topics.input)
    assert all(offset == end for offset, end in committed.values() if end)


@pytest.mark.broker
@pytest.mark.usefixtures("patient")
def test_offsets_alone_are_sent_once_more_too(topics: Topics) -> None:
    """A transaction without records opens with its offsets, while the end of the aborted one is still being written."""
    config = config_for(topics)
    publish(topics.bootstrap_servers, topics.input, inputs(4))
    source, _ = opened(config)
    sink, counters = sink_for(source, config, producer_class=meeting(moved(source, config)))
    [record, *_] = records_of(source, 4)
    sink.publish(Release([], {record.partition: record.offset + 1}))
    assert 1 == counters.transactions_repeated
    assert (
        record.offset + 1
        == committed_and_ends(topics.bootstrap_servers, topics.group, topics.input)[record.partition.number][0]
    )


@pytest.mark.broker
@pytest.mark.usefixtures("patient")
def test_a_member_that_is_expelled_while_it_publishes_does_not_try_again(topics: Topics) -> None:
    """Its id is refused: the partitions may be another one's, and nothing becomes visible."""
    config = config_for(topics, session_timeout_s=6, max_poll_interval_s=6, transaction_timeout_s=20)
    publish(topics.bootstrap_servers, topics.input, inputs(5))
    source, _ = opened(config)
    meets = meeting(
        lambda: wait_until(lambda: not client_of(source).memberid(), PATIENCE_S, "it has polled too seldom")
    )
    sink, counters = sink_for(source, config, producer_class=meets)
    records = records_of(source, 5)
    with pytest.raises(TransactionTrouble, match="UNKNOWN_MEMBER_ID"):
        sink.publish(release_of(records))
    assert 0 == counters.transactions_repeated
    sink.recover()
    assert [] == read_all(topics.bootstrap_servers, topics.output)


@pytest.mark.broker
def test_a_refusal_after_a_slow_request_is_left_to_a_new_producer(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow request may have been sent twice, and its repeat may arrive within the next transaction."""
    monkeypatch.setattr(KafkaConfig, "retry_pause_s", 0.0)
    config = config_for(topics)
    publish(topics.bootstrap_servers, topics.input, inputs(5))
    source, _ = opened(config)
    sink, counters = sink_for(source, config, producer_class=meeting(moved(source, config)))
    release = release_of(records_of(source, 5))
    with pytest.raises(TransactionTrouble, match="ILLEGAL_GENERATION"):
        sink.publish(release)
    assert 0 == counters.transactions_repeated
    sink.recover()
    sink.publish(release)
    assert 5 == len(read_all(topics.bootstrap_servers, topics.output))


@pytest.mark.broker
@pytest.mark.usefixtures("patient")
def test_transactions_run_on_while_members_come_and_go(topics: Topics) -> None:
    """One after the other, without a pause: no rebalance makes one fail, and nothing is lost or doubled."""
    config = config_for(topics)
    source, diary = opened(config)
    sink, _ = sink_for(source, config)
    places: dict[tuple[int, int], Sent] = {}
    waiting: list[RawRecord] = []

    def publish_what_waits(_leaving: object = ()) -> None:
        if waiting:
            sink.publish(release_of(waiting))
            waiting.clear()

    diary.on_revoked = publish_what_waits
    over = threading.Event()

    def come_and_go() -> None:
        for number in range(1, 5):
            with polled(replace(config, instance=f"worker-{number}")) as other:
                wait_until(lambda: len(other.owned) == 2, PATIENCE_S, "its partitions")
        over.set()

    visitors = threading.Thread(target=come_and_go)
    visitors.start()
    while not over.is_set():
        places |= publish(topics.bootstrap_servers, topics.input, inputs(8))
        waiting += source.poll(100, 0.02)
        publish_what_waits()
    visitors.join()
    while not is_all_committed(topics):
        waiting += source.poll(100, 0.05)
        publish_what_waits()
    assert_exactly_once(read_all(topics.bootstrap_servers, topics.output), places)


class Answers:
    """A consumer that gives these members of the group, one per question, the last one again and again."""

    def __init__(self, *members: tuple[str, int]) -> None:
        self._members = list(members)
        self._now = members[0]

    def consumer_group_metadata(self) -> bytes:
        """As librdkafka writes it."""
        self._now = self._members.pop(0) if len(self._members) > 1 else self._members[0]
        name, generation = self._now
        return b"CGMDv2:" + generation.to_bytes(4, "little", signed=True) + b"group\0" + name.encode() + b"\0\1"

    def memberid(self) -> str:
        """The present one's."""
        return self._now[0]


def refused(name: str, generation: int | None) -> StaleGeneration:
    """Offsets of this member were refused."""
    return StaleGeneration("refused", Member(b"", name, generation))


def test_it_waits_until_the_client_knows_the_newer_generation() -> None:
    """The answer of the group may come after the refusal."""
    answers = cast("Consumer", Answers(("a", 4), ("a", 4), ("a", 5)))
    assert 5 == successor(answers, refused("a", 4)).generation


@pytest.mark.parametrize(
    ("now", "before", "reason"),
    [
        (("b", 5), ("a", 4), "another member"),
        (("a", 4), ("a", 4), "not known in time"),
        (("a", 3), ("a", 4), "not known in time"),
        (("a", 5), ("a", None), "not known in time"),
        (("a", -1), ("a", 4), "not a member"),
        (("", 5), ("a", 4), "not a member"),
        (("", -1), ("a", -1), "not a member"),
    ],
)
def test_nobody_but_the_same_member_in_a_newer_generation_publishes_again(
    now: tuple[str, int], before: tuple[str, int | None], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker fences neither what has no generation and member, nor partitions that were another member's meanwhile."""
    monkeypatch.setattr(membership, "_ANSWER_S", 0.01)
    with pytest.raises(TransactionTrouble, match=reason):
        successor(cast("Consumer", Answers(now)), refused(*before))


def test_a_format_that_is_unknown_proves_a_member_by_its_id() -> None:
    """Its generation is unknown then, not 0, so no transaction is made once more."""

    class Other(Answers):
        def consumer_group_metadata(self) -> bytes:
            return b"CGMDv3:????"

    assert Member(b"CGMDv3:????", "a", None) == proven(cast("Consumer", Other(("a", 1))))


@pytest.mark.parametrize(
    ("error", "stale"),
    [
        (KafkaError(KafkaError.ILLEGAL_GENERATION, txn_requires_abort=True), True),
        (KafkaError(KafkaError.ILLEGAL_GENERATION), False),
        (KafkaError(KafkaError.ILLEGAL_GENERATION, fatal=True, txn_requires_abort=True), False),
        (KafkaError(KafkaError.UNKNOWN_MEMBER_ID, txn_requires_abort=True), False),
        (KafkaError(KafkaError.FENCED_INSTANCE_ID, txn_requires_abort=True), False),
        (KafkaError(KafkaError._FENCED, fatal=True), False),
        (KafkaError(KafkaError._TIMED_OUT, retriable=True), False),
    ],
)
def test_only_a_refused_generation_is_stale(error: KafkaError, stale: bool) -> None:  # noqa: FBT001  a parameter of the test
    """After any other error nobody knows what arrived, or the group does not know this member."""
    assert stale == is_stale(KafkaException(error))
