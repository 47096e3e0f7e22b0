"""The configuration of one node: pure functions from numbers and paths to text, without processes or network.

The values suit transactions on a laptop: small internal topics, short timers, records up to 16 MiB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
MAX_MESSAGE_BYTES = 16 * 1024 * 1024  # large records can be tried; clients still choose their own limit
_CONTROLLER = "CONTROLLER"
_SYNCED_REPLICAS = 2  # of three: one node may die and acks=all still answers

# For tests that kill nodes: a dead node is noticed after 3 s instead of 9, and may return as early. Not for daily use on a
# busy laptop, where a node that is starved for 3 s would be taken for dead.
QUICK_TO_NOTICE = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


@dataclass(frozen=True, slots=True)
class Listener:
    """A port for clients. `advertised_port`: the port that clients are sent to, if a proxy is in between.

    `protocol`: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; its other settings are in the server's properties.
    """

    name: str
    port: int
    advertised_port: int | None = None
    protocol: str = "PLAINTEXT"


def server_properties(
    node_id: int, controller_ports: Mapping[int, int], listeners: Sequence[Listener], log_folder: Path
) -> dict[str, str]:
    """The `server.properties` of a node that is broker and controller.

    `controller_ports`: controller port by node id; the first of `listeners` is used between brokers.
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


def render(properties: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def _listener_properties(opened: Sequence[Listener], listeners: Sequence[Listener]) -> dict[str, str]:
    """`opened`: all ports; `listeners`: those that are advertised, of which the first is used between brokers."""
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
    # 50 partitions each by default, all of which a fresh broker opens before the first group or transaction works.
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",  # 3 s by default, for large groups that come up together
    "group.min.session.timeout.ms": "1000",  # tests of dead members need not wait for six seconds
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "metadata.max.idle.interval.ms": "10000",  # 500 by default: a record for nobody, half of what an idle broker costs
    "replica.fetch.wait.max.ms": "3000",  # 500 by default: the same for brokers that follow others; new records come at once
    "log.cleaner.dedupe.buffer.size": "4194304",  # 128 MB by default, a third of the heap
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
}
