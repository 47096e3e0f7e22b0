"""A local Kafka for development: started by one command, stopped by another, with its topics kept in between.

Processes are found by their folder (see `keeper.processes_of`), so there is no pid file that could be stale.
"""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import product
from typing import TYPE_CHECKING

import psutil
from confluent_kafka import KafkaException
from platformdirs import user_state_path

from tools.kafka.cluster import Cluster
from tools.kafka.keeper import end, processes_of, wait_until_gone
from tools.kafka.node import STOP_TIMEOUT_S, quiet_admin
from tools.kafka.versions import DEFAULT, VERSIONS, ClusterError
from tools.ports import is_free

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_PORT = 9092  # Kafka's default port
_ANSWER_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class Running:
    """Facts about the running cluster that `start` recorded."""

    nodes: int
    bootstrap_servers: str
    version: str = DEFAULT


def default_folder() -> Path:
    """Default folder for topics and state."""
    return user_state_path("enricher") / "kafka"


class Service:
    """The cluster of one folder, seen from outside its processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._note = self.folder / "running.json"

    def processes(self) -> list[psutil.Process]:
        """The nodes' processes; empty if nothing runs."""
        return list(processes_of(self.folder))

    def running(self) -> Running | None:
        """The running cluster; None also if it was killed and its record is still there."""
        if not self._note.exists() or not self.processes():
            return None
        return Running(**json.loads(self._note.read_text(encoding="utf-8")))

    def answers(self, running: Running) -> bool:
        """Whether a client gets an answer within three seconds."""
        try:
            quiet_admin(running.bootstrap_servers).list_topics(timeout=_ANSWER_TIMEOUT_S)
        except KafkaException:
            return False
        return True

    def start(self, nodes: int, port: int | None, version: str = DEFAULT) -> Running:
        """Start nodes that outlive this process; raises `ClusterError` on failure, and then leaves nothing running."""
        cluster = Cluster(nodes, version=version, data=self._data(nodes, version), port=_choose_port(nodes, port))
        cluster.start()
        running = Running(nodes, cluster.bootstrap_servers, cluster.version)
        self._note.write_text(json.dumps(asdict(running)), encoding="utf-8")
        cluster.detach()
        return running

    def stop(self) -> int:
        """SIGTERM to all nodes, then SIGKILL to what remains; returns the number of processes."""
        count = len(self.processes())
        for process in processes_of(self.folder):
            with suppress(psutil.NoSuchProcess):
                process.resume()  # a suspended one would not see SIGTERM
                process.terminate()
        wait_until_gone(self.folder, STOP_TIMEOUT_S)
        end(self.folder)
        self._note.unlink(missing_ok=True)
        return count

    def erase(self) -> None:
        """Remove topics and state, but only what this class wrote: the user's folder may hold other things."""
        for nodes, version in product((1, 3), VERSIONS):
            shutil.rmtree(self._data(nodes, version), ignore_errors=True)

    def _data(self, nodes: int, version: str) -> Path:
        """The data folder for this cluster size and version: node metadata names the peers and cannot be changed.

        An older version cannot read what a newer one wrote, so each has its folder; only the default version continues with
        the data of the previous default.
        """
        return self.folder / (f"{nodes}-nodes" if version == DEFAULT else f"{nodes}-nodes-{version}")


def _choose_port(nodes: int, wanted: int | None) -> int | None:
    """The requested port, or ClusterError if taken; without a request Kafka's usual port, or None if taken."""
    first = DEFAULT_PORT if wanted is None else wanted
    taken = [port for port in range(first, first + nodes) if not is_free(port)]
    if not taken:
        return first
    if wanted is None:
        return None
    raise ClusterError(f"port {taken[0]} is taken; name another with --port, or leave --port out")
