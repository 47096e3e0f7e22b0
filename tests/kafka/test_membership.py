"""Rebalances: who joins again at once, and a transaction that one meets, which the member that stays makes once more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka.clients import Diary, config_for, inputs, opened, poll_until, records_of, release_of, sink_for
from kafka.harness import assert_exactly_once, publish
from support.clock import Clock
from support.closing import CLOSING
from support.patience import PATIENCE_S, wait_until
from support.reading import committed_and_ends, read_all
from support.topics import Topics

from enricher.errors import Fenced, TransactionTrouble
from enricher.worker.kafka import membership
from enricher.worker.kafka.assignment import Assignment
from enricher.worker.kafka.membership import (
    Heartbeats,
    Member,
    Rebalances,
    StaleGeneration,
    is_stale,
    proven,
    successor,
)
from enricher.worker.kafka.properties import HEARTBEAT_INTERVAL_MS, KafkaConfig
from enricher.worker.kafka.source import KafkaSource
from enricher.worker.records import Partition, Release


class Client:
    """A consumer and its assignment: notes what it is told, and can refuse a subscription."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.callbacks: dict[str, Any] = {}
        self.refuses = self.leaving = False

    def subscribe(self, _topics: Sequence[str], **callbacks: Any) -> None:  # noqa: ANN401  the client's callbacks
        """Join the group, or apply it after the callback."""
        self.told.append("subscribe")
        if self.refuses:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.callbacks = callbacks

    def add(self, partitions: Sequence[TopicPartition]) -> None:
        """Assigned."""
        self.told.append(f"assign {len(partitions)}")

    def remove(self, partitions: Sequence[object]) -> None:
        """Revoked."""
        self.told.append(f"unassign {len(partitions)}")

    def calls(self, name: str, *numbers: int) -> None:
        """Call back with these partitions."""
        self.callbacks[name](self, [TopicPartition("articles", number) for number in numbers])


@pytest.fixture
def clock() -> Clock:
    """The clock of the client."""
    return Clock()


@pytest.fixture
def client(clock: Clock) -> Client:
    """A client that has subscribed."""
    client = Client()
    Rebalances(cast("Assignment", client), Diary(), clock).subscribe(cast("Consumer", client), ["articles"])
    return client


@pytest.mark.parametrize(
    ("rebalances", "told"),
    [
        pytest.param([(0, "on_assign")], ["subscribe", "assign 0"], id="a newcomer, before its assignment"),
        pytest.param(
            [(0, "on_assign", 1, 2), (60, "on_assign"), (1, "on_assign")],
            ["assign 2", "subscribe", "assign 0", "assign 0"],
            id="a member that keeps what it has, in the second rebalance",
        ),
        pytest.param(
            [(0, "on_assign", 1, 2), (60, "on_revoke", 1), (0, "on_assign"), (1, "on_assign")],
            ["assign 2", "unassign 1", "assign 0", "assign 0"],
            id="not a member that gives up partitions: its client joins at once",
        ),
        pytest.param(
            [(0, "on_assign"), (60, "on_assign"), (0, "on_assign", 1, 2), (0, "on_revoke", 1), (0, "on_assign")],
            ["subscribe", "assign 0", "assign 0", "assign 2", "unassign 1", "assign 0"],
            id="only once in a row, however slow a member was to join",
        ),
    ],
)
def test_who_joins_again_at_once(
    client: Client, clock: Clock, rebalances: Sequence[tuple[Any, ...]], told: list[str]
) -> None:
    """Else partitions stand still for a second; but each joining makes a rebalance, which meets transactions.

    After the assignment the client would apply a subscription only when something has changed: never.
    """
    for after_s, name, *numbers in rebalances:
        clock.now_s += after_s
        client.calls(name, *numbers)
    assert ["subscribe", *told] == client.told


def test_a_member_joins_again_three_times_in_half_a_minute_at_most(client: Client, clock: Clock) -> None:
    """If each rebalance takes long, each may look like the first of two; the group must not go on by itself for ever."""
    client.calls("on_assign", 1)
    for _ in range(30):
        clock.now_s += 3
        client.calls("on_assign")
    assert 1 + 3 * 3 >= client.told.count("subscribe") > 1 + 3


def test_a_newcomer_that_is_being_closed_does_not_join_again(client: Client) -> None:
    """The client would abort the process."""
    client.leaving = True
    client.calls("on_assign")
    assert ["subscribe", "assign 0"] == client.told


def test_a_refused_subscription_is_no_trouble(client: Client) -> None:
    """The newcomer joins later then, after a heartbeat."""
    client.refuses = True
    client.calls("on_assign")
    assert "assign 0" == client.told[-1]


class OfAFencedWorker(Diary):
    """The listener of a worker that hears that it was fenced when it publishes what it gives up."""

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """Refuse."""
        raise Fenced(f"a newer process has {partitions}")

    def assigned(self, partitions: Sequence[Partition]) -> None:
        """Take the first ones, and fail afterwards."""
        if self.events:
            raise TransactionTrouble("the consequence")
        super().assigned(partitions)


def test_of_two_callbacks_that_fail_the_first_counts(clock: Clock) -> None:
    """A worker that was fenced while its partitions were revoked is fenced, though they came back in the same poll."""
    client = Client()
    rebalances = Rebalances(cast("Assignment", client), OfAFencedWorker(), clock)
    rebalances.subscribe(cast("Consumer", client), ["articles"])
    client.calls("on_assign", 0)
    rebalances.begin_turn()
    client.calls("on_revoke", 0)
    client.calls("on_assign", 0)
    with pytest.raises(Fenced):
        rebalances.check()
    rebalances.check()


def test_the_client_is_woken_once_per_interval() -> None:
    """A poll may wait until then; the answer says whether the worker is a member."""
    asked: list[str] = []

    class Member:
        def memberid(self) -> str:
            asked.append("who am I?")
            return "a"

    member, heartbeats = cast("Consumer", Member()), Heartbeats()
    interval_s = HEARTBEAT_INTERVAL_MS / 1000
    assert heartbeats.prompt(member, 100.0) is True
    assert interval_s == pytest.approx(heartbeats.left_s(100.0))
    assert heartbeats.prompt(member, 100.0 + interval_s / 2) is None
    assert heartbeats.prompt(member, 100.0 + interval_s) is True
    assert 2 == len(asked)


@pytest.mark.broker
def test_a_newcomer_gets_its_partitions_in_the_second_rebalance(topics: Topics) -> None:
    """The owner gives up two of four partitions in one step; the newcomer gets both in one step, and nothing before.

    Whether it hears of its first, empty assignment depends on how soon the second rebalance begins.
    """
    config = config_for(topics)
    owner, diary = opened(config)
    newcomer, other = KafkaSource(replace(config, instance="worker-1")), Diary()
    newcomer.open(other)
    poll_until(owner, lambda: not newcomer.poll(10, 0.05) and len(other.owned) == 2)
    assert [2] == [len(partitions) for kind, partitions in diary.events if kind == "revoked"]
    assert [2] == [len(partitions) for kind, partitions in other.events if kind == "assigned" and partitions]
    owner.close()
    poll_until(newcomer, lambda: len(other.owned) == 4)  # a client that is closed while it rejoins may never return
    newcomer.close()


@pytest.mark.broker
def test_a_newcomer_that_is_stopped_before_its_first_callback_leaves(topics: Topics) -> None:
    """Its assignment, and with it the subscription, comes while it closes; the owner gets everything back."""
    config = config_for(topics)
    owner, diary = opened(config)
    newcomer = KafkaSource(replace(config, instance="worker-1", session_timeout_s=2))
    newcomer.open(Diary())
    poll_until(owner, lambda: len(diary.owned) == 2)  # it is a member, and has not polled since it joined
    newcomer.close()
    poll_until(owner, lambda: len(diary.owned) == 4)
    owner.close()


@pytest.mark.broker
def test_a_newcomer_that_is_stopped_right_after_its_first_callback_leaves(topics: Topics) -> None:
    """The client closes while it joins again, and may not say that it leaves: its session expires."""
    config = config_for(topics)
    owner, diary = opened(config)
    newcomer, other = KafkaSource(replace(config, instance="worker-1", session_timeout_s=2)), Diary()
    newcomer.open(other)
    poll_until(owner, lambda: not newcomer.poll(10, 0.001) and bool(other.events))
    newcomer.close()
    poll_until(owner, lambda: len(diary.owned) == 4)
    owner.close()


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
