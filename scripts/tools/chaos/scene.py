"""Everything that a fault may touch: brokers, topics, and workers, publisher and timeline that end with the scene."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import AdminClient, NewPartitions

from enricher.worker.kafka.metadata import COORDINATOR_LIMIT_S
from tools.chaos.check import Incarnation, topic_id_of
from tools.chaos.crew import Crew, Launch, environment_of, launch
from tools.chaos.proxy import Proxy
from tools.chaos.rules import Api, Match, Watch
from tools.chaos.workload import Articles, Workload
from tools.kafka import Cluster, Node
from tools.reading import Follower, InputId, Reader, source_of
from tools.topics import Topics, make_topics
from tools.waiting import Closing, wait_until

PARTITIONS = 6
SESSION_S, TRANSACTION_S, ENGINE_S = 6.0, 5.0, 15.0
"""The workers' timeouts: the shortest that their settings allow, so that many faults fit into a run."""
_WHOLE_S = 30.0
_LOOK_FOR_PARTITIONS_S = 3.0
_ASK_S = 60.0
_TRY_S = 5.0
_EMPTY_S = 120.0
"""A killed worker stays a group member until its session ends, and only an empty group can be deleted."""


class Scene(Closing):
    """Running brokers and workers; `rate_per_s` articles per second are published once `workload` is resumed.

    `brokers`: as `nodes_behind_a_proxy` yields them. `launch`: as `Crew` takes it.
    """

    def __init__(
        self,
        folder: Path,
        brokers: tuple[Proxy, Cluster],
        *,
        workers: int = 3,
        rate_per_s: float = 100.0,
        launch: Launch = launch,
    ) -> None:
        self.proxy, self.cluster = brokers
        self.folder = folder
        self.launch = launch
        servers = self.cluster.bootstrap_servers
        name = f"c{uuid.uuid4().hex[:6]}"
        self.names = Topics.named(servers, name)
        self.topics = TopicKeeper(self.names, PARTITIONS, replicas=len(self.cluster.nodes))
        self._reader, self._admin = self.topics.reader, self.topics.admin
        self.topics.make_all()
        with ExitStack() as stack:
            self.timeline = stack.enter_context(Timeline(servers, [self.names.output, self.names.dead_letters]))
            instances = [f"worker-{number}" for number in range(workers)]
            self.crew = stack.enter_context(Crew(instances, self._settings_of, folder, launch=launch))
            articles = Articles(name)
            self.workload = stack.enter_context(Workload(servers, self.names.input, articles, rate_per_s))
            self._closing = stack.pop_all()

    def _settings_of(self, instance: str) -> Mapping[str, Any]:
        return settings_of(self.proxy.addresses, self.names, instance)

    def close(self) -> None:
        """End what the scene began; the brokers go on."""
        self._closing.close()

    @property
    def partitions(self) -> int:
        return self.topics.partitions

    def set_offsets(self) -> int:
        """Set the group's offsets behind its outputs, as workers say that refuse to start; the exit code. None may run."""
        command = ("enricher", "offsets", "set", self.names.group, self.names.input, "--at", "behind-outputs")
        return self.launch(command, environment_of({}) | self.names.variables(), self.folder / "offsets.log").wait()

    # ---- who is where

    def leader_of(self, topic: str, partition: int) -> Node:
        leader = self._admin.list_topics(topic, timeout=_ASK_S).topics[topic].partitions[partition].leader
        return next(node for node in self.cluster.nodes if node.node_id == leader)

    def group_coordinator(self) -> Node:
        return self._coordinator("__consumer_offsets", self.names.group)

    def transaction_coordinator(self, worker: str) -> Node:
        return self._coordinator("__transaction_state", self.transactional_id(worker))

    def transactional_id(self, worker: str) -> str:
        return f"{self.names.group}/{worker}"

    def _coordinator(self, topic: str, key: str) -> Node:
        partitions = len(self._admin.list_topics(topic, timeout=_ASK_S).topics[topic].partitions)
        return self.leader_of(topic, java_hash(key) % partitions)

    # ---- progress

    def wait_until_whole(self) -> bool:
        """Wait until every worker has ended a transaction once more; returns whether they did in time."""
        watches = [Watch(Match({Api.END_TXN}, slot.client_id)) for slot in list(self.crew.slots.values())]
        for watch in watches:
            self.proxy.apply(watch)
        whole = wait_until(lambda: all(watch.caught.is_set() for watch in watches), _WHOLE_S)
        self.proxy.lift(*watches)
        return whole

    def all_is_seen(self) -> bool:
        """Whether the timeline has read all outputs that a read_committed consumer can see."""
        topics = (self.names.output, self.names.dead_letters)
        stable = {topic: self._reader.stable_and_ends(topic) for topic in topics}
        ends = {(topic, number): end for topic in topics for number, (end, _) in stable[topic].items()}
        return self.timeline.has_seen(ends)

    def ends(self) -> Mapping[int, int]:
        return {number: end for number, (_, end) in self._reader.committed_and_ends(self.names.input).items()}

    def backlog(self) -> int:
        """How many input offsets the group has not committed yet."""
        return self._reader.lag(self.names.input)


def settings_of(bootstrap_servers: str, names: Topics, instance: str) -> Mapping[str, Any]:
    """A worker's settings: short timeouts, otherwise the defaults. `bootstrap_servers`: the brokers or their proxy."""
    return {
        "kafka": {
            **names.kafka_settings(instance),
            "bootstrap_servers": bootstrap_servers,
            "session_timeout_s": SESSION_S,
            "transaction_timeout_s": TRANSACTION_S,
            "request_timeout_s": 5.0,
            # How soon a consumer looks for new partitions; the default of five minutes is too long for a run.
            "properties": {"topic.metadata.refresh.interval.ms": 3_000},
        },
        "worker": {
            "engine_timeout_s": ENGINE_S,
            "stall_timeout_s": 20.0,
            "drain_timeout_s": 5.0,
            "recovery_timeout_s": 60.0,
            "max_in_flight_articles": 500,
            "publish_interval_ms": 400.0,
        },
        # Counted and committed, but never reached: some faults make all that is read dead letters.
        "dead_letters": {"max_in_a_row": 1_000_000, "max_ratio": 1.0},
    }


def java_hash(text: str) -> int:
    """The hash with which Kafka chooses the partition of a group or transaction: `Utils.abs(String.hashCode)`."""
    value = 0
    for unit in text.encode("utf-16-be")[1::2]:
        value = (31 * value + unit) & 0xFFFFFFFF
    # The absolute value, not the lower 31 bits; 0 for the one number that has no absolute value in 32 bits.
    return 0 if value == 1 << 31 else min(value, (1 << 32) - value)


class Timeline(Closing):
    """Records what becomes visible in `topics`, past the proxy and in a thread of its own."""

    def __init__(self, bootstrap_servers: str, topics: list[str]) -> None:
        self.began_s = time.monotonic()
        self.seen: Counter[InputId] = Counter()
        """How often an output of each input was seen."""
        self.since_s = float("inf")
        self.moved_s: dict[int, float] = {}
        """When each input partition first published something that was written at `since_s` or later (both epoch)."""
        self._follower = Follower(
            bootstrap_servers,
            topics,
            self._note,
            name="timeline",
            look_every_s=_LOOK_FOR_PARTITIONS_S,
            properties={"enable.partition.eof": True},
        )

    @property
    def total(self) -> int:
        return self.seen.total()

    def watch_from_now(self) -> None:
        """Record which partitions publish from now on."""
        self.since_s, self.moved_s = time.time(), {}

    def has_seen(self, ends: Mapping[tuple[str, int], int]) -> bool:
        """Whether the reader has reached these offsets."""
        return all(self._follower.ends.get(partition, 0) >= end for partition, end in ends.items())

    def close(self) -> None:
        self._follower.close()

    def _note(self, message: Message) -> None:
        source = source_of(message)
        self.seen[source] += 1
        if message.timestamp()[1] / 1000 >= self.since_s:
            self.moved_s.setdefault(source.partition, time.time())


class TopicKeeper:
    """Manages the three topics of a run, as faults need it.

    `partitions`: of each topic at first. `replicas`: of each partition.
    """

    def __init__(self, names: Topics, partitions: int, *, replicas: int) -> None:
        self._servers = names.bootstrap_servers
        self._names = names
        self._replicas = replicas
        self.admin = AdminClient({"bootstrap.servers": names.bootstrap_servers, "log_level": 0})
        self.reader = Reader(names.bootstrap_servers, names.group)
        self.partitions = partitions
        """How many partitions the input has now."""
        self.past: list[Incarnation] = []
        """The deleted input topics, oldest first."""

    def make_all(self) -> None:
        self._make(*self._names.all)

    def add_partition(self) -> None:
        """Add one partition to each topic: outputs first, so that every input partition always has its counterpart."""
        self.partitions += 1
        for topic in (self._names.output, self._names.dead_letters, self._names.input):
            self.admin.create_partitions([NewPartitions(topic, self.partitions)])[topic].result(_ASK_S)

    def remember_input(self) -> Incarnation:
        """Read the whole input topic before it is deleted: afterwards nothing else knows what it contained."""
        incarnation = Incarnation(topic_id_of(self._servers, self._names.input))
        incarnation.add(self.reader.records(self._names.input))
        self.past.append(incarnation)
        return incarnation

    def remember_the_rest(self, incarnation: Incarnation) -> None:
        """Read what was published since, and the group's committed offsets."""
        topic = self._names.input
        incarnation.add(self.reader.records(topic, begins=incarnation.nexts))
        committed = self.reader.committed_and_ends(topic)
        incarnation.committed = {partition: offset for partition, (offset, _) in committed.items()}

    def delete_input(self) -> None:
        topic = self._names.input
        self.admin.delete_topics([topic], operation_timeout=_ASK_S)[topic].result(_ASK_S)
        assert wait_until(lambda: topic not in self.admin.list_topics(timeout=_ASK_S).topics, _ASK_S), (
            "the topic still exists"
        )

    def create_input(self) -> None:
        """Create an empty input topic with the same name and number of partitions."""
        self._make(self._names.input)

    def forget_offsets(self) -> None:
        """Delete the group with its committed offsets. Only while no worker runs."""
        assert wait_until(self._group_is_deleted, _EMPTY_S, 0.5), "the group could not be deleted"

    def wait_until_empty(self) -> None:
        """Wait until the group has no members: on a busy broker a member stays for a moment after its process has ended."""
        assert wait_until(self._group_is_empty, _EMPTY_S, 0.5), "the group still has members"

    # ---- inside

    def _group_is_empty(self) -> bool:
        group = self._names.group
        described = self.admin.describe_consumer_groups([group], request_timeout=COORDINATOR_LIMIT_S)[group]
        try:
            return not described.result(_TRY_S).members
        except (KafkaException, TimeoutError):  # the coordinator may have just gone: try again
            return False

    def _group_is_deleted(self) -> bool:
        group = self._names.group
        # A new client: one that has cached the group's coordinator may wait for it after it is gone (librdkafka 5511).
        admin = AdminClient({"bootstrap.servers": self._servers, "log_level": 0})
        try:
            admin.delete_consumer_groups([group], request_timeout=COORDINATOR_LIMIT_S)[group].result(_TRY_S)
        except KafkaException as exception:
            return bool(exception.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND)
        except TimeoutError:  # the coordinator may have just gone: try again
            return False
        return True

    def _make(self, *topics: str) -> None:
        make_topics(self._servers, topics, self.partitions, replicas=self._replicas)
