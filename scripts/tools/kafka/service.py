"""A local Kafka for development: started by one command, stopped by another, with its topics kept in between."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

from confluent_kafka import KafkaException

from tools import local_service
from tools.kafka.cluster import Cluster
from tools.kafka.node import quiet_admin
from tools.kafka.versions import DEFAULT, VERSIONS, ClusterError

_ANSWER_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class Running:
    """Facts about the running cluster that `start` recorded."""

    nodes: int
    bootstrap_servers: str
    version: str = DEFAULT


class Service(local_service.Service):
    """The cluster of one folder."""

    NAME = "kafka"
    ERROR = ClusterError
    USUAL_PORT = 9092  # Kafka's default port

    def __init__(self, folder: Path | None) -> None:
        super().__init__(folder)
        self._note = self.folder / "running.json"

    def running(self) -> Running | None:
        """The running cluster; None also if it was killed and its record is still there."""
        if not self._note.exists() or not self.processes():
            return None
        return Running(**json.loads(self._note.read_text(encoding="utf-8")))

    @property
    def title(self) -> str:
        running = self.running()
        return f"Kafka {running.version}" if running else "Kafka"

    def address(self) -> str | None:
        running = self.running()
        return running.bootstrap_servers if running else None

    def answers(self, address: str) -> bool:
        try:
            quiet_admin(address).list_topics(timeout=_ANSWER_TIMEOUT_S)
        except KafkaException:
            return False
        return True

    def start(self, nodes: int, port: int | None, version: str = DEFAULT) -> str:
        """Start nodes that outlive this process; returns their addresses.

        Raises `ClusterError` on failure, and then leaves nothing running.
        """
        self.stop()  # removes what a killed start may have left
        port = self.choose_port(port, nodes)
        cluster = Cluster(nodes, version=version, data=self._data(nodes, version), port=port)
        cluster.start()
        running = Running(nodes, cluster.bootstrap_servers, cluster.version)
        self._note.write_text(json.dumps(asdict(running)), encoding="utf-8")
        cluster.detach()
        return running.bootstrap_servers

    def stop(self) -> bool:
        """Stop the nodes, and forget what `start` recorded."""
        ran = super().stop()
        self._note.unlink(missing_ok=True)
        return ran

    def kept(self) -> Iterable[Path]:
        return [self._data(nodes, version) for nodes, version in product((1, 3), VERSIONS)]

    def _data(self, nodes: int, version: str) -> Path:
        """The data folder for this cluster size and version: node metadata names the peers and cannot be changed.

        An older version cannot read what a newer one wrote, so each has its folder; only the default version continues with
        the data of the previous default.
        """
        return self.folder / (f"{nodes}-nodes" if version == DEFAULT else f"{nodes}-nodes-{version}")
