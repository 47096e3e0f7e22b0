"""How a newcomer joins a group: at once, and only once more than it must."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from kafka.clients import Diary, config_for, opened, poll_until
from support.clock import Clock
from support.topics import Topics

from enricher.errors import Fenced, TransactionTrouble
from enricher.worker.kafka.assignment import Assignment
from enricher.worker.kafka.membership import Heartbeats, Rebalances
from enricher.worker.kafka.properties import HEARTBEAT_INTERVAL_MS
from enricher.worker.kafka.source import KafkaSource
from enricher.worker.records import Partition


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


def test_a_newcomer_that_gets_nothing_joins_again_before_its_assignment(client: Client) -> None:
    """After the assignment the client would apply the subscription only when something has changed: never."""
    client.calls("on_assign")
    assert ["subscribe", "subscribe", "assign 0"] == client.told


def test_it_joins_again_only_once_in_a_row_of_rebalances(client: Client, clock: Clock) -> None:
    """Each joining makes a rebalance, in which transactions under way are made twice."""
    client.calls("on_assign")
    clock.now_s += 60  # a member that was slow to join
    client.calls("on_assign")
    client.calls("on_assign", 1, 2)
    client.calls("on_revoke", 1)
    client.calls("on_assign")
    assert 2 == client.told.count("subscribe")


def test_a_member_that_keeps_what_it_has_joins_the_second_rebalance_at_once(client: Client, clock: Clock) -> None:
    """Else partitions that others give up stand still for a second, until it joins."""
    client.calls("on_assign", 1, 2)
    clock.now_s += 60
    client.calls("on_assign")
    clock.now_s += 1
    client.calls("on_assign")
    assert ["subscribe", "assign 2", "subscribe", "assign 0", "assign 0"] == client.told


def test_a_member_that_gives_up_partitions_leaves_joining_again_to_the_client(client: Client, clock: Clock) -> None:
    """The client does it at once."""
    client.calls("on_assign", 1, 2)
    clock.now_s += 60
    client.calls("on_revoke", 1)
    client.calls("on_assign")
    clock.now_s += 1
    client.calls("on_assign")
    assert 1 == client.told.count("subscribe")


def test_a_member_joins_again_three_times_in_half_a_minute_at_most(client: Client, clock: Clock) -> None:
    """If each rebalance takes long, each may look like the first of two; the group must not go on by itself for ever."""
    client.calls("on_assign", 1)
    for _ in range(30):
        clock.now_s += 3
        client.calls("on_assign")
    assert 1 + 3 * 3 >= client.told.count("subscribe") > 1 + 3


def test_members_that_join_again_come_to_rest() -> None:
    """One rebalance in which nobody gets anything makes one more, and that one none, however slow some members are."""
    chosen = Random(7)
    for _ in range(200):
        clock, members = Clock(), [Client() for _ in range(chosen.randint(1, 6))]
        for member in members:
            Rebalances(cast("Assignment", member), Diary(), clock).subscribe(cast("Consumer", member), ["articles"])
            member.calls("on_assign", 1)
        clock.now_s += 60
        rounds, asked = 0, [1] * len(members)
        while rounds == 0 or asked != [each.told.count("subscribe") for each in members]:
            rounds, asked = rounds + 1, [each.told.count("subscribe") for each in members]
            for member in chosen.sample(members, len(members)):
                clock.now_s += chosen.choice((0.0, 0.1, 3.0))
                member.calls("on_assign")
        assert 2 == rounds


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
    newcomer = KafkaSource(replace(config, instance="worker-1"))
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
    for number in range(3):
        own = replace(config, instance=f"worker-{number + 1}", session_timeout_s=2)
        newcomer, other = KafkaSource(own), Diary()
        newcomer.open(other)
        poll_until(owner, lambda: not newcomer.poll(10, 0.001) and bool(other.events))  # noqa: B023  called at once
        newcomer.close()
        poll_until(owner, lambda: len(diary.owned) == 4)
    owner.close()
