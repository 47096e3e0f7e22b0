"""Which members of a real group are newer processes with our name."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from kafka.clients import config_for
from kafka.harness import worker
from support.closing import leave_group
from support.patience import PATIENCE_S
from support.topics import Topics

from enricher.errors import Fenced, TransactionTrouble
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.kafka.writing.rivals import LOOK_S, Rivals
from enricher.worker.runtime.wakeup import StopEvent
from tools.chaos.proxy import Proxy
from tools.chaos.rules import Direction, Match, Silence
from tools.waiting import wait_until

pytestmark = pytest.mark.broker


class Member:
    """A member of the group of `config` that does nothing, with the client id of its instance."""

    def __init__(self, config: KafkaConfig) -> None:
        self._consumer = Consumer(config.consumer() | {"log_level": 0})
        self._consumer.subscribe([config.input_topic])
        assert wait_until(lambda: self._consumer.poll(0.05) is None and bool(self.id), PATIENCE_S)

    @property
    def id(self) -> str:
        """Its member id."""
        return self._consumer.memberid() or ""

    def has_joined(self) -> bool:
        """Rejoin if the group asks for it; whether it has partitions then."""
        self._consumer.poll(0.05)
        return bool(self._consumer.assignment())

    def close(self) -> None:
        """Leave the group."""
        leave_group(self._consumer)


def join_all(config: KafkaConfig, members: list[Member]) -> None:
    """Let all of them join. The group may keep a member that closes while it rejoins for a session."""

    def are_joined() -> bool:
        joined = [member.has_joined() for member in members]
        states = [group.state for group in admin.list_groups(config.group_id, timeout=PATIENCE_S)]
        return all(joined) and ["Stable"] == states

    admin = AdminClient({"bootstrap.servers": config.bootstrap_servers})
    assert wait_until(are_joined, PATIENCE_S)


def leave(config: KafkaConfig, member: Member) -> None:
    """Let it leave. On a busy machine the client gives up before the group has answered, and it stays for a session."""

    def is_gone() -> bool:
        groups = admin.list_groups(config.group_id, timeout=PATIENCE_S)
        return all(name != each.id for group in groups for each in group.members)

    admin, name = AdminClient({"bootstrap.servers": config.bootstrap_servers}), member.id
    member.close()
    assert wait_until(is_gone, config.session_timeout_s + PATIENCE_S)


@pytest.fixture
def config(topics: Topics) -> KafkaConfig:
    """The worker's configuration. Sessions are long: a member that is not closed stays."""
    return config_for(topics, session_timeout_s=60, max_poll_interval_s=120)


@pytest.fixture
def members() -> Iterator[list[Member]]:
    """Members that a test creates; they leave with it."""
    made: list[Member] = []
    yield made
    for member in made:
        member.close()


class Clock(StopEvent):
    """A clock, and a stop event that nobody sets: a wait moves the clock, `faster` times as far, and takes no time."""

    def __init__(self, faster: float = 1.0) -> None:
        super().__init__()
        self._faster = faster
        self._now_s = 0.0

    def __call__(self) -> float:
        """The time."""
        return self._now_s

    def wait(self, timeout_s: float | None = None) -> bool:
        """Move the clock."""
        assert timeout_s is not None
        self._now_s += self._faster * timeout_s
        return False


@pytest.fixture
def clock() -> Clock:
    """The time in a test begins with 0."""
    return Clock()


def test_without_anybody_of_our_name_nobody_fenced_us_once_a_look_is_over(
    config: KafkaConfig, members: list[Member], clock: Clock
) -> None:
    """Our own member does not count, nor does a worker with another name; a second lookup is short."""
    own = Member(config)
    members += [own, Member(replace(config, instance="worker-00"))]
    asked = Rivals(config, lambda: own.id, clock=clock)
    asked.rule_out(0.0, clock)
    ended_s = clock()
    assert LOOK_S <= ended_s
    asked.rule_out(0.0, clock)
    assert ended_s == clock()


def test_who_joined_after_us_is_a_rival_and_is_named(config: KafkaConfig, members: list[Member], clock: Clock) -> None:
    """The message has its member id and host, and what to do."""
    asked = Rivals(config, lambda: members[0].id, clock=clock)
    asked.begin()
    members += [Member(config), Member(config)]
    with pytest.raises(Fenced, match=rf"'worker-0': {members[1].id} at 127\.0\.0\.1.*kafka\.instance"):
        asked.rule_out(0.0, clock)


def test_who_was_there_before_us_is_no_rival(config: KafkaConfig, members: list[Member], clock: Clock) -> None:
    """A killed predecessor stays a member until its session ends; a live one was fenced by us and must exit."""
    ghost = Member(config)
    asked = Rivals(config, lambda: members[1].id, clock=clock)
    asked.begin()
    members += [ghost, Member(config)]
    asked.begin()  # of a second attempt to start: who came in between stays newer
    asked.rule_out(0.0, clock)
    with pytest.raises(Fenced):
        Rivals(config, lambda: ghost.id, clock=clock).rule_out(clock(), clock)


def test_a_rival_that_joins_a_moment_after_it_fenced_us_is_found(config: KafkaConfig, members: list[Member]) -> None:
    """A process fences first and joins later; the lookup lasts long enough for it."""
    looks = 0

    class Slow(Clock):
        def wait(self, timeout_s: float | None = None) -> bool:
            nonlocal looks
            looks += 1
            if looks == 2:
                members.append(Member(config))
            return super().wait(timeout_s)

    clock = Slow()
    members.append(Member(config))
    asked = Rivals(config, lambda: members[0].id, clock=clock)
    asked.begin()
    with pytest.raises(Fenced):
        asked.rule_out(0.0, clock)
    assert looks >= 2


def test_what_the_group_called_us_before_is_not_another_process(
    config: KafkaConfig, members: list[Member], clock: Clock
) -> None:
    """A member that was expelled without leaving is in the group twice for a while."""
    before = Member(config)
    members.append(before)
    asked = Rivals(config, lambda: members[-1].id, {before.id}, clock=clock)
    members.append(Member(config))
    asked.rule_out(0.0, clock)


def test_of_two_that_started_together_and_were_fenced_one_leaves_at_once_and_the_other_stays(
    config: KafkaConfig, members: list[Member], clock: Clock
) -> None:
    """Each takes the other for newer; the one with the smaller id exits, and the other sees that."""
    asked = [Rivals(config, lambda: members[0].id, clock=clock), Rivals(config, lambda: members[1].id, clock=clock)]
    for each in asked:
        each.begin()
    members += [Member(config), Member(config)]
    join_all(config, members)
    goes, stays = (0, 1) if members[0].id < members[1].id else (1, 0)
    with pytest.raises(Fenced):
        asked[goes].rule_out(0.0, clock)
    assert clock() < LOOK_S
    leave(config, members[goes])
    asked[stays].rule_out(0.0, clock)


class Idle:
    """An idle worker that looks for rivals, by a clock that the test moves."""

    def __init__(self, config: KafkaConfig, members: list[Member], own: int) -> None:
        self.now_s, self.generation = 0.0, 1
        self.rivals = Rivals(
            config, lambda: members[own].id, generation=lambda: self.generation, clock=lambda: self.now_s
        )

    def look(self, times: int = 1, apart_s: float = LOOK_S) -> None:
        """Look so many times."""
        for _ in range(times):
            self.now_s += apart_s
            self.rivals.look()


def test_an_idle_worker_finds_a_newer_one_of_its_name(config: KafkaConfig, members: list[Member]) -> None:
    """Its producer was fenced, but it publishes nothing. It asks after a rebalance, and believes what lasts."""
    idle = Idle(config, members, own=0)
    idle.rivals.begin()
    members += [Member(config), Member(replace(config, instance="worker-00"))]
    idle.look(20)
    members.append(Member(config))
    idle.look(20)  # nothing has changed in the group, as far as this worker knows
    idle.generation = 2
    idle.look(12)  # a dead process would be in the group for so long
    with pytest.raises(Fenced, match=rf"'worker-0': {members[2].id}"):
        idle.look(5)


def test_of_two_idle_workers_that_take_each_other_for_newer_one_stays(
    config: KafkaConfig, members: list[Member]
) -> None:
    """The one with the smaller id leaves first, and is gone when the other one would."""
    workers = [Idle(config, members, own=0), Idle(config, members, own=1)]
    for each in workers:
        each.rivals.begin()
    members += [Member(config), Member(config)]
    join_all(config, members)
    goes, stays = (0, 1) if members[0].id < members[1].id else (1, 0)
    workers[stays].look(14)
    workers[goes].look(13)
    with pytest.raises(Fenced):
        workers[goes].look()
    leave(config, members[goes])
    workers[stays].look(5)


def test_a_member_that_leaves_meanwhile_was_no_rival(config: KafkaConfig, members: list[Member]) -> None:
    """A former member of this process, for instance, or one that its own lookup has ended."""
    members.append(Member(config))
    idle, ghost = Idle(config, members, own=0), Member(config)
    join_all(config, [*members, ghost])
    idle.look(10)
    leave(config, ghost)
    idle.look(10)


def test_workers_with_one_client_id_are_told_apart(config: KafkaConfig, members: list[Member], clock: Clock) -> None:
    """`client.id` may be set for all of them together: the instance is appended, so another worker is no rival."""
    shared = replace(config, properties={"client.id": "news", "producer.client.id": "writers"})
    other = replace(shared, instance="worker-1")
    members.append(Member(shared))
    asked = Rivals(shared, lambda: members[0].id, clock=clock)
    asked.begin()
    members.append(Member(other))
    asked.rule_out(0.0, clock)
    assert ("news-worker-1", "writers-worker-1") == (other.consumer()["client.id"], other.producer()["client.id"])
    members.append(Member(shared))
    with pytest.raises(Fenced):
        asked.rule_out(clock(), clock)


def test_two_idle_workers_of_one_name_do_not_both_stay(topics: Topics, tmp_path: Path) -> None:
    """Without any traffic the older one ends with code 5."""
    environment = topics.environment | {
        "ENRICHER_KAFKA__SESSION_TIMEOUT_S": "6",
        "ENRICHER_KAFKA__TRANSACTION_TIMEOUT_S": "5",
    }
    with worker(environment, log=tmp_path / "older.log", stub=True) as older:
        assert wait_until(lambda: "partitions assigned" in (tmp_path / "older.log").read_text(), PATIENCE_S)
        with worker(environment, log=tmp_path / "newer.log", stub=True) as newer:
            assert older.wait(PATIENCE_S) == 5, (tmp_path / "older.log").read_text()
            assert newer.poll() is None, (tmp_path / "newer.log").read_text()


def test_a_group_that_does_not_know_us_tells_nothing(config: KafkaConfig, clock: Clock) -> None:
    """Its coordinator may be loading, and not know other members either: try again, within the bound of a recovery."""
    asked = Rivals(replace(config, request_timeout_s=1), lambda: "enricher-worker-0-0123", clock=clock)
    with pytest.raises(TransactionTrouble, match="it is unknown whether"):
        asked.rule_out(-LOOK_S, clock)


def test_while_no_broker_answers_nobody_knows(config: KafkaConfig, proxy: Proxy) -> None:
    """Neither at the start, which goes on, nor after fencing, which is trouble like any other."""
    beyond = replace(config, bootstrap_servers=proxy.addresses, request_timeout_s=1)
    proxy.apply(Silence(Match(), set(Direction)))
    clock = Clock(faster=20)
    asked = Rivals(beyond, str, clock=clock)
    asked.begin()
    with pytest.raises(TransactionTrouble, match="it is unknown whether"):
        asked.rule_out(-LOOK_S, clock)


def test_a_worker_that_is_asked_to_stop_does_not_look_on(config: KafkaConfig) -> None:
    """It ends in order, without a result."""
    stopping = StopEvent()
    stopping.set()
    with pytest.raises(TransactionTrouble, match="asked to stop"):
        Rivals(config, str).rule_out(time.monotonic(), stopping)
