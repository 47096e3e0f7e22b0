"""Kafka by itself for a developer's day: started by one command, ended by another, its topics kept in between.

The processes are found by their folder (see `keeper.processes_of`), so there is no pid file that could be stale.
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

from tools.kafka.cluster import Cluster, is_free
from tools.kafka.errors import ClusterError
from tools.kafka.keeper import brokers_of, end, processes_of, wait_until_gone
from tools.kafka.node import STOP_TIMEOUT_S, quiet_admin
from tools.kafka.versions import DEFAULT, VERSIONS

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_PORT = 9092  # Kafka's own, and what clients try first
_ANSWER_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class Running:
    """What `start` noted about the cluster that runs."""

    nodes: int
    bootstrap_servers: str
    version: str = DEFAULT


def default_folder() -> Path:
    """Where topics and state are kept when the user names no folder."""
    return user_state_path("enricher") / "kafka"


class Service:
    """The cluster that lives in one folder, seen from outside its processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._note = self.folder / "running.json"

    def processes(self) -> list[psutil.Process]:
        """Find the nodes' processes; none when nothing runs."""
        return list(processes_of(self.folder))

    def running(self) -> Running | None:
        """Tell what runs here; none also when it was killed and its note is still there."""
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
        """Start `nodes` nodes that outlive this process; raises `ClusterError` when that fails (nothing is left)."""
        cluster = Cluster(nodes, version=version, data=self._data(nodes, version), port=_choose_port(nodes, port))
        cluster.start()
        running = Running(nodes, cluster.bootstrap_servers, cluster.version)
        self._note.write_text(json.dumps(asdict(running)), encoding="utf-8")
        cluster.detach()
        return running

    def stop(self) -> int:
        """SIGTERM to all nodes, SIGKILL to those that stay and to a ZooKeeper; returns how many processes there were."""
        count = len(self.processes())
        for process in brokers_of(self.folder):
            with suppress(psutil.NoSuchProcess):
                process.resume()  # a suspended one would not see SIGTERM
                process.terminate()
        wait_until_gone(self.folder, STOP_TIMEOUT_S, brokers_of)
        end(self.folder)
        self._note.unlink(missing_ok=True)
        return count

    def erase(self) -> None:
        """Remove topics and state; only what this class wrote, in case the user's folder holds other things."""
        for nodes, version in product((1, 3), VERSIONS):
            shutil.rmtree(self._data(nodes, version), ignore_errors=True)

    def _data(self, nodes: int, version: str) -> Path:
        """Give each size of cluster its folder: the nodes' metadata names their peers and cannot change its mind.

        Each version too, since an older one cannot read what a newer one wrote; only the default one goes on with what
        the default before it wrote.
        """
        return self.folder / (f"{nodes}-nodes" if version == DEFAULT else f"{nodes}-nodes-{version}")


def _choose_port(nodes: int, wanted: int | None) -> int | None:
    """Take the asked port or refuse; without one Kafka's usual port, or any (none) where that is taken."""
    first = DEFAULT_PORT if wanted is None else wanted
    taken = [port for port in range(first, first + nodes) if not is_free(port)]
    if not taken:
        return first
    if wanted is None:
        return None
    raise ClusterError(f"port {taken[0]} is taken; name another with --port, or leave --port out")
