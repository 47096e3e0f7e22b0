"""The configuration of one node: pure functions from numbers and paths to text, no process and no network.

The values suit transactions on a laptop: small internal topics, quick timers, records up to 16 MiB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

HOST = "127.0.0.1"
MAX_MESSAGE_BYTES = 16 * 1024 * 1024  # large records can be tried; clients still choose their own limit
_CONTROLLER = "CONTROLLER"
_SYNCED_REPLICAS = 2  # of three: one node may die and acks=all still answers

# For tests that kill: a dead node is noticed after 3 s instead of 9, and let in again as early. Not for a busy laptop's
# day, where a node that only starves for 3 s would be taken for dead.
# The third is for brokers with ZooKeeper. What a version does not know, it logs and ignores.
QUICK_TO_NOTICE = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "zookeeper.session.timeout.ms": "3000",
}


@dataclass(frozen=True, slots=True)
class Listener:
    """A port for clients. `advertised_port` is where clients are told to come, when a proxy stands in between.

    `protocol` is Kafka's: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; what else it needs is in the server's properties.
    """

    name: str
    port: int
    advertised_port: int | None = None
    protocol: str = "PLAINTEXT"


def server_properties(
    node_id: int, controller_ports: Mapping[int, int], listeners: Sequence[Listener], log_folder: Path
) -> dict[str, str]:
    """Everything in `server.properties` of a node that is broker and controller.

    `controller_ports` has every node's id and controller port; the first of `listeners` is the one between brokers.
    """
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(f"{node}@{HOST}:{port}" for node, port in controller_ports.items()),
        "log.dirs": log_folder.as_posix(),
        **_listener_properties([*listeners, Listener(_CONTROLLER, controller_ports[node_id])], listeners),
        "controller.listener.names": _CONTROLLER,
        **_replication_properties(len(controller_ports)),
        **_LAPTOP,
    }


def zookeeper_broker_properties(
    broker_id: int, controller_ports: Mapping[int, int], listeners: Sequence[Listener], log_folder: Path
) -> dict[str, str]:
    """The same for a broker that keeps its metadata in ZooKeeper, which listens on the first of `controller_ports`."""
    return {
        "broker.id": str(broker_id),
        "zookeeper.connect": f"{HOST}:{controller_ports[1]}",
        "zookeeper.connection.timeout.ms": "30000",  # else the session's, which is too short for a busy machine
        "zookeeper.session.timeout.ms": "9000",  # as KRaft's brokers have it; 18 s by default
        "log.dirs": log_folder.as_posix(),
        **_listener_properties(listeners, listeners),
        **_replication_properties(len(controller_ports)),
        **_LAPTOP,
    }


def zookeeper_properties(port: int, data_folder: Path) -> dict[str, str]:
    """What a single ZooKeeper needs."""
    return {
        "dataDir": data_folder.as_posix(),
        "clientPort": str(port),
        "clientPortAddress": HOST,
        "maxClientCnxns": "0",  # 60 from one address by default
        "tickTime": "500",  # sessions may be as short as two ticks, and are noticed to be over a tick later
        "maxSessionTimeout": "60000",  # twenty ticks by default
        "admin.enableServer": "false",
    }


def render(properties: Mapping[str, str]) -> str:
    """Write the text of a Java properties file."""
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def _listener_properties(opened: Sequence[Listener], listeners: Sequence[Listener]) -> dict[str, str]:
    """`opened` are all ports, `listeners` those that clients are told of; the first of these is between brokers."""
    advertised = [f"{item.name}://{HOST}:{item.advertised_port or item.port}" for item in listeners]
    return {
        "listeners": ",".join(f"{item.name}://{HOST}:{item.port}" for item in opened),
        "advertised.listeners": ",".join(advertised),
        "listener.security.protocol.map": ",".join(f"{item.name}:{item.protocol}" for item in opened),
        "inter.broker.listener.name": listeners[0].name,
    }


def _replication_properties(nodes: int) -> dict[str, str]:
    factor, synced = str(nodes), str(min(nodes, _SYNCED_REPLICAS))
    return {
        "default.replication.factor": factor,
        "min.insync.replicas": synced,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": synced,
        "share.coordinator.state.topic.replication.factor": factor,
        "share.coordinator.state.topic.min.isr": synced,
    }


_LAPTOP: Mapping[str, str] = {
    "auto.create.topics.enable": "false",  # a misspelt topic is an error, as in production
    "num.partitions": "4",
    "message.max.bytes": str(MAX_MESSAGE_BYTES),
    "replica.fetch.max.bytes": str(MAX_MESSAGE_BYTES),
    # 50 partitions each by default: a fresh broker opens them all before the first group or transaction goes.
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",  # 3 s by default, for large groups that come up together
    "group.min.session.timeout.ms": "1000",  # tests of dead members need not wait for six seconds
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "log.cleaner.dedupe.buffer.size": "4194304",  # 128 MB by default, a third of the heap
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
}
