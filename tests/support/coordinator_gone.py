"""A negative control: without two defences a worker hangs in send_offsets forever when its group's coordinator is gone.

librdkafka (issues 5511, 5456) caches a group's coordinator. When that broker leaves the metadata, the client ends the
broker's thread but keeps the cache entry; a request for the coordinator then waits for a connection that is never made,
until *any* broker connection comes or goes, and its timeout is never checked. So the scenario here stops the coordinator
while the worker is idle, makes the worker's producer ask for metadata afterwards, and keeps all connections unchanged
once there is work again.
"""

from __future__ import annotations

import signal
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from support.crews import forked
from support.flaws import CLIENT_DEFAULTS, NO_WATCHDOG, PATIENT_BROKER
from support.lives import Job
from support.patience import PATIENCE_S
from tools.chaos.crew import Crew
from tools.chaos.proxy import Proxy
from tools.chaos.rules import Answered, Api, Cut, Match, Rule, Watch
from tools.chaos.scene import java_hash, settings_of
from tools.chaos.worker import POLL_INTERVAL_S
from tools.kafka import Cluster, Node
from tools.topics import Topics as Names
from tools.waiting import wait_until

FIRST, REST = 1, 3
"""How many articles each worker gets before the coordinator goes, and afterwards."""
HANGS, WATCHED, AS_IT_IS = "hangs", "watched", "as-it-is"
FLAWS = {HANGS: [CLIENT_DEFAULTS, NO_WATCHDOG], WATCHED: [CLIENT_DEFAULTS], AS_IT_IS: [PATIENT_BROKER]}


class World:
    """Three brokers behind a proxy: one to stop, one that leads the topics, one that coordinates transactions."""

    def __init__(self, proxy: Proxy, cluster: Cluster) -> None:
        self.proxy, self.cluster = proxy, cluster
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        self.gone = self._leaders("__consumer_offsets")[0]
        self.transactions = next(node for node in self._leaders("__transaction_state") if node is not self.gone)
        (self.leader,) = (node for node in cluster.nodes if node not in {self.gone, self.transactions})
        self.bootstrap_servers = f"{self.leader.address},{self.transactions.address}"
        self.jobs = {worker: Job(proxy, self.bootstrap_servers, self._made(worker), worker) for worker in FLAWS}

    def settings(self, worker: str) -> Mapping[str, Any]:
        """A worker's settings, with client ids that tell its two clients apart."""
        settings = settings_of(self.proxy.addresses, self.jobs[worker].names, worker)
        clients = {f"{kind}.client.id": kind for kind in ("consumer", "producer")}
        # The longest there is: a member that is thrown out meanwhile gets a new producer before there is work.
        kafka = {**settings["kafka"], "session_timeout_s": POLL_INTERVAL_S, "properties": clients}
        return {**settings, "kafka": kafka}

    def watched(self, *rules: Rule) -> Sequence[Rule]:
        """Apply the rules and return them."""
        for rule in rules:
            self.proxy.apply(rule)
        return rules

    def match(self, client: str, api: Api, *nodes: Node) -> Match:
        """Match a client's requests of a kind, to these nodes or to any."""
        return Match({api}, client, {self.cluster.nodes.index(node) for node in nodes} or None)

    def knows_the_gone(self, node: Node) -> bool:
        """Whether that node's metadata still contains the stopped broker."""
        admin = AdminClient({"bootstrap.servers": node.address, "log_level": 0})
        return self.gone.node_id in admin.list_topics(timeout=PATIENCE_S).brokers

    def _made(self, worker: str) -> Names:
        """Create topics and a group for which the brokers have the intended roles."""
        groups = (f"{worker}-{uuid.uuid4().hex[:8]}" for _ in count())
        group = next(group for group in groups if self._suits(group, worker))
        names = Names.named(self.bootstrap_servers, group)
        replicas = [[node.node_id for node in (self.leader, self.transactions, self.gone)]]
        new = [NewTopic(topic, num_partitions=1, replica_assignment=replicas) for topic in names.all]
        for future in self._admin.create_topics(new).values():
            future.result(PATIENCE_S)
        return names

    def _suits(self, group: str, worker: str) -> bool:
        keys = {"__consumer_offsets": group, "__transaction_state": f"{group}/{worker}"}
        leaders = [(self._leaders(topic), java_hash(key)) for topic, key in keys.items()]
        return [nodes[number % len(nodes)] for nodes, number in leaders] == [self.gone, self.transactions]

    def _leaders(self, topic: str) -> Sequence[Node]:
        """The leader of each partition, in their order."""
        partitions = self._admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
        nodes = {node.node_id: node for node in self.cluster.nodes}
        return [nodes[partitions[number].leader] for number in sorted(partitions)]


def rest_with_the_coordinator_cached(world: World, crew: Crew) -> None:
    """Every worker publishes something and rests: its producer knows the coordinators."""
    to_the_gone = [Answered(world.match(f"producer-{name}", Api.TXN_OFFSET_COMMIT, world.gone)) for name in FLAWS]
    world.watched(*to_the_gone)
    for name, flaws in FLAWS.items():
        world.jobs[name].publish(FIRST)
        crew.add(name, flaws)
    for name, sent in zip(FLAWS, to_the_gone, strict=True):
        world.jobs[name].wait_until_committed()
        assert sent.caught.is_set(), "another broker coordinates the group"


def let_the_coordinator_go(world: World) -> None:
    """It leaves the metadata; then the producers ask for metadata, because another connection of theirs is cut.

    That is the one to the transactions' coordinator, which they keep up themselves: it is back before there is work.
    """
    world.gone.stop()
    assert wait_until(lambda: not any(map(world.knows_the_gone, (world.leader, world.transactions))), PATIENCE_S)
    defaults = (HANGS, WATCHED)
    asked_metadata = [Answered(world.match(f"producer-{name}", Api.METADATA, world.leader)) for name in defaults]
    back = [Answered(world.match(f"producer-{name}", Api.API_VERSIONS, world.transactions)) for name in defaults]
    world.watched(*asked_metadata)
    world.proxy.apply(cut := Cut(Match(None, "producer-", {world.cluster.nodes.index(world.transactions)})))
    assert all(rule.caught.wait(PATIENCE_S) for rule in asked_metadata)
    world.watched(*back)
    world.proxy.lift(cut)
    members = [Answered(world.match(f"consumer-{name}", Api.HEARTBEAT), nth=2) for name in FLAWS]
    assert all(rule.caught.wait(PATIENCE_S) for rule in (*back, *world.watched(*members)))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of all workers. `then`: when the watchdog had ended its worker and the coordinator was back."""

    exits_then: Mapping[str, Sequence[int]]
    offsets_sent_then: Mapping[str, bool]
    committed_then: Mapping[str, int]
    exits: Mapping[str, Sequence[int]]
    committed: Mapping[str, int]
    failed: Mapping[str, Sequence[str]]


def exits_of(crew: Crew) -> Mapping[str, Sequence[int]]:
    """Exit codes so far, by worker."""
    return {name: [end.code for end in crew.exits if end.name == name] for name in FLAWS}


def worked(world: World, crew: Crew) -> Outcome:
    """Publish work for all workers, and wait for the results."""
    added = [Answered(world.match(f"producer-{name}", Api.ADD_OFFSETS_TO_TXN)) for name in FLAWS]
    offsets = {name: Watch(world.match(f"producer-{name}", Api.TXN_OFFSET_COMMIT)) for name in FLAWS}
    world.watched(*added, *offsets.values())
    for job in world.jobs.values():
        job.publish(REST)
    assert all(rule.caught.wait(PATIENCE_S) for rule in added)
    crew.slots[HANGS].send(signal.SIGTERM)  # it could still stop gracefully until the kill below
    world.jobs[AS_IT_IS].wait_until_committed()
    assert wait_until(lambda: bool(exits_of(crew)[WATCHED]), PATIENCE_S), "the watchdog ended nobody"
    world.gone.start()
    world.jobs[WATCHED].wait_until_committed()
    exits_then, committed_then = exits_of(crew), {name: job.committed() for name, job in world.jobs.items()}
    offsets_sent_then = {name: rule.caught.is_set() for name, rule in offsets.items()}
    crew.slots[HANGS].send(signal.SIGKILL)
    world.jobs[HANGS].wait_until_committed()
    committed = {name: job.committed() for name, job in world.jobs.items()}
    failed = {name: job.failed() for name, job in world.jobs.items()}
    return Outcome(exits_then, offsets_sent_then, committed_then, exits_of(crew), committed, failed)


def scenario(proxy: Proxy, cluster: Cluster, folder: Path) -> Outcome:
    """All three workers in parallel: most of it is waiting for the watchdog."""
    world = World(proxy, cluster)
    with Crew([], world.settings, folder, launch=forked) as crew:
        rest_with_the_coordinator_cached(world, crew)
        let_the_coordinator_go(world)
        return worked(world, crew)
