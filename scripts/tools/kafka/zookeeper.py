"""The one ZooKeeper process of a cluster whose brokers are older than 3.3: it keeps their metadata and elects leaders."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

from tools.kafka.errors import ClusterError
from tools.kafka.java import log_tail
from tools.kafka.keeper import SERVER_PROPERTIES
from tools.kafka.properties import HOST, render, zookeeper_properties
from tools.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tools.kafka.java import Java

_START_TIMEOUT_S = 180.0  # 1 s is usual
_STOP_TIMEOUT_S = 60.0
_POLL_S = 0.05


class ZooKeeper:
    """ZooKeeper in `folder`, listening on `port`. Its brokers must be gone before it stops."""

    def __init__(self, folder: Path, port: int, java: Java, log_path: Path) -> None:
        self.folder = folder
        self.port = port
        self.log_path = log_path
        self._java = java
        self._process: psutil.Popen | None = None

    def start(self) -> None:
        """Start it and wait until it listens; raises `ClusterError` with the end of its log when it does not."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / SERVER_PROPERTIES  # the name by which the keeper finds every process of a cluster
        path.write_text(render(zookeeper_properties(self.port, self.folder / "data")), encoding="utf-8")
        self.log_path.write_bytes(b"")
        main_class = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        process = self._process = self._java.start(self.folder, self.log_path, main_class, str(path))
        wait_until(lambda: self._listens() or process.poll() is not None, _START_TIMEOUT_S, _POLL_S)
        if not self._listens():
            raise ClusterError(f"ZooKeeper does not start. {log_tail(self.log_path)}")

    def stop(self) -> None:
        """SIGKILL, and wait until it has ended: every acknowledged change is in its log. May be called twice."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            with suppress(psutil.TimeoutExpired):
                self._process.wait(_STOP_TIMEOUT_S)

    def _listens(self) -> bool:
        try:
            socket.create_connection((HOST, self.port), timeout=1.0).close()
        except OSError:
            return False
        return True
