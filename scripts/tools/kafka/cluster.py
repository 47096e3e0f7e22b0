"""Runs one or three Kafka nodes on loopback as one cluster, warms them up, and removes everything that must not stay.

`node` handles single processes; `keeper` ends them if the parent process dies.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from tools.kafka.java import ClassArchive, Java
from tools.kafka.keeper import KeptFolder
from tools.kafka.node import FormattedStorage, Node, new_id, quiet_admin, wait_until_ready
from tools.kafka.properties import HOST, Listener, server_properties
from tools.kafka.versions import DEFAULT, ClusterError, JarLock, class_path, default_folder, find
from tools.ports import free_ports

_WRITTEN_TIMEOUT_S = 300.0  # for the archive of classes; 10 s are usual


class Cluster:
    """A Kafka cluster of `nodes` (1 or 3) combined brokers and controllers on loopback.

    `version`: one of `versions.VERSIONS`, or a line of it (`3.9`).

    `data`: a folder that is kept and used again by the next start; without it a temporary one, removed at the end.
    `port`: client port of the first node, the next nodes take the following ones; without it free ports.
    `properties`: server properties that override or extend ours, for every node.
    `listeners`: further listeners of each node, by name with their protocol (`{"TLS": "SSL"}`), on free ports; their
    certificates and users are in `properties`, their addresses in `address_of`.
    `advertised`: for a further listener, the port that each node advertises to clients: a proxy's.

    `archive`: the archive of classes to use or to record; by default that of the version, if there is one.

    The nodes end with this process, however it ends, unless `detach` is called.
    Raises `ClusterError` if Kafka cannot be fetched, started or reached.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        version: str = DEFAULT,
        data: Path | None = None,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        advertised: Mapping[str, Sequence[int]] | None = None,
        archive: ClassArchive | None = None,
    ) -> None:
        if nodes not in {1, 3}:
            raise ClusterError(f"a cluster has 1 or 3 nodes, not {nodes}")
        self.version = find(version)
        self.nodes: tuple[Node, ...] = ()
        self._count = nodes
        self._folder = KeptFolder(data, "enricher-kafka-")
        self._port = port
        self._properties = properties or {}
        self._listeners = listeners or {}
        self._advertised = advertised or {}
        self._archive = archive
        self._ports_of: dict[str, list[int]] = {}

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all nodes: `host:port,host:port`."""
        return ",".join(node.address for node in self.nodes)

    def address_of(self, listener: str) -> str:
        """Addresses of a further listener of all nodes: `host:port,host:port`."""
        return ",".join(f"{HOST}:{port}" for port in self._ports_of[listener])

    def ports_of(self, listener: str) -> Sequence[int]:
        """The ports on which a further listener really listens, one per node: a proxy's targets."""
        return tuple(self._ports_of[listener])

    def start(self) -> None:
        """Fetch Kafka if needed, start all nodes in parallel, wait until they see one another; cleans up on failure."""
        try:
            self._make_nodes(self._open_folder())
            with ThreadPoolExecutor(self._count) as pool:
                list(pool.map(Node.launch, self.nodes))
            wait_until_ready(self.nodes)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all nodes and remove temporary files; may be called twice."""
        # A temporary log needs no graceful end, which the last of three nodes could not have anyway (see `STOP_TIMEOUT_S`).
        with ThreadPoolExecutor(self._count) as pool:
            list(pool.map(Node.kill if self._folder.temporary else Node.stop, self.nodes))
        self._folder.close()

    def detach(self) -> None:
        """Let the nodes outlive this process; the caller must end them. Only with `data`."""
        self._folder.detach()

    def warm_up(self) -> None:
        """Do the first transaction's and first group's set-up now; see `tools.kafka.cluster`."""
        warm_up(self.bootstrap_servers)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def _open_folder(self) -> Path:
        """Create the cluster's folder, with the cluster's id."""
        folder = self._folder.open()
        id_path = folder / "cluster.id"
        if not id_path.exists():
            id_path.write_text(new_id(), encoding="utf-8")
        return folder

    def _make_nodes(self, folder: Path) -> None:
        lock = JarLock.read(self.version)
        jars = default_folder(lock)
        java = Java(self.version, class_path(lock, jars), self._archive or ClassArchive(jars))
        storage = FormattedStorage(jars / "formatted")
        controllers, clients = self._choose_ports()
        made = []
        for index, (node_id, port) in enumerate(zip(controllers, clients, strict=True)):
            home = folder / f"node-{node_id}"
            listeners = [Listener("PLAINTEXT", port), *self._further_listeners(index)]
            properties = server_properties(node_id, controllers, listeners, home / "log")
            log_path = self._folder.logs / f"node-{node_id}.log"
            made.append(Node(home, {**properties, **self._properties}, port, java, storage, log_path))
        self.nodes = tuple(made)

    def _further_listeners(self, index: int) -> list[Listener]:
        """The further listeners of node number `index`, from 0."""
        return [
            Listener(
                name, self._ports_of[name][index], self._advertised.get(name, [None] * self._count)[index], protocol
            )
            for name, protocol in self._listeners.items()
        ]

    def _choose_ports(self) -> tuple[dict[int, int], list[int]]:
        """Choose controller ports by node id, client ports in node order, and the ports of further listeners."""
        free = free_ports((2 + len(self._listeners)) * self._count)
        controllers = {node: free[node - 1] for node in range(1, self._count + 1)}
        for number, name in enumerate(self._listeners, start=2):
            self._ports_of[name] = free[number * self._count : (number + 1) * self._count]
        if self._port is None:
            return controllers, free[self._count : 2 * self._count]
        return controllers, list(range(self._port, self._port + self._count))


def record_classes(version: str) -> None:
    """Record the archive of classes unless there is one, in about 25 s of processor time. Raises `ClusterError`."""
    jars = default_folder(JarLock.read(version))
    kept = ClassArchive(jars)
    if kept.path.exists():
        return
    jars.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="classes-", dir=jars) as scratch:
        recorded = ClassArchive(Path(scratch), records=True)
        with Cluster(version=version, archive=recorded) as cluster:
            cluster.warm_up()
            cluster.nodes[0].stop(_WRITTEN_TIMEOUT_S)
        if not recorded.path.exists():
            raise ClusterError(
                f"Java has not written the classes of Kafka {version}; brokers start without them, slower"
            )
        recorded.path.replace(kept.path)


_TIMEOUT_S = 120.0


def warm_up(bootstrap_servers: str) -> None:
    """Run one transaction that commits an offset of one group; deletes its topic and group afterwards."""
    name = f"warm-up-{uuid.uuid4().hex}"
    client = quiet_admin(bootstrap_servers)
    try:
        client.create_topics([NewTopic(name, num_partitions=1)])[name].result(_TIMEOUT_S)
        _one_transaction(bootstrap_servers, name)
        client.delete_consumer_groups([name])[name].result(_TIMEOUT_S)
        client.delete_topics([name])[name].result(_TIMEOUT_S)
    except KafkaException as error:
        raise ClusterError(f"Kafka starts but does not serve: {error}") from error


def _one_transaction(bootstrap_servers: str, name: str) -> None:
    common = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
    consumer = Consumer({**common, "group.id": name, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    try:
        producer = Producer({**common, "transactional.id": name})
        producer.init_transactions(_TIMEOUT_S)
        producer.begin_transaction()
        producer.produce(name, b"warm")
        producer.commit_transaction(_TIMEOUT_S)
        consumer.subscribe([name])
        message = _first_message(consumer)
        producer.begin_transaction()
        offset = TopicPartition(name, 0, (message.offset() or 0) + 1)
        producer.send_offsets_to_transaction([offset], consumer.consumer_group_metadata(), _TIMEOUT_S)
        producer.commit_transaction(_TIMEOUT_S)
    finally:
        consumer.close()


def _first_message(consumer: Consumer) -> Message:
    deadline_s = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline_s:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            return message
    raise ClusterError("Kafka starts but no group gets a partition")
