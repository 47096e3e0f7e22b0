"""A real OpenSearch for the demo and the tests, without containers.

    from tools.opensearch import OpenSearch

    with OpenSearch() as server:
        print(server.url)

This module knows the server and nothing of `enricher`; `enricher` never imports it.
"""

from __future__ import annotations

import os
from pathlib import Path

from tools.java_server import HOST, ArchiveLock, JavaServer, fetch
from tools.kafka.java import LOG4J_2
from tools.kafka.keeper import SERVER_PROPERTIES
from tools.ports import free_ports

LOCK_PATH = Path(__file__).with_name("opensearch.lock.toml")
_NO_NATIVE_CODE = ("-Djna.nounpack=true", "-Djna.nosys=true", "-Djna.boot.library.path=")
"""OpenSearch refuses to run as root, as containers often do, where its native code tells it the user. All else that this
code does is to lock memory and to filter system calls, which a node for tests needs not."""


class OpenSearch(JavaServer):
    """One node, without the plugins that a cluster in production has: no TLS, no users.

    Raises `NotFetched` if it cannot be fetched, and `ClusterError` if it does not start.
    """

    NAME = "opensearch"
    LOCK_PATH = LOCK_PATH
    HEAP = ("-Xms256m", "-Xmx512m")

    def __init__(self) -> None:
        super().__init__()
        [self._transport_port] = free_ports(1)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def _health_url(self) -> str:
        """Its indices can be searched, too."""
        return f"{self.url}/_cluster/health?wait_for_status=yellow&timeout=1s"

    def _arguments(self, folder: Path) -> tuple[str, ...]:
        home = self._program / f"opensearch-{ArchiveLock.read(LOCK_PATH).version}"
        config = folder / "config"
        config.mkdir(exist_ok=True)
        (config / "log4j2.properties").write_text(LOG4J_2, encoding="utf-8")
        lines = (f"{name}: {value}\n" for name, value in self._node_settings(folder).items())
        (config / "opensearch.yml").write_text("".join(lines), encoding="utf-8")
        # Its agent, which watches what plugins do, is not attached: a node needs only the classes that it brings.
        jars = (*home.glob("lib/*.jar"), *home.glob("agent/*.jar"))
        return (
            *_NO_NATIVE_CODE,
            f"-Dopensearch.path.home={home}",
            f"-Dopensearch.path.conf={config}",
            *("-Dopensearch.distribution.type=zip", "-Dopensearch.bundled_jdk=false"),
            *("-cp", os.pathsep.join(map(str, sorted(jars))), "org.opensearch.bootstrap.OpenSearch"),
            # The keeper finds a process by a last argument of this name, and the node takes none but its options'.
            *("--pidfile", str(folder / SERVER_PROPERTIES)),
        )

    def _node_settings(self, folder: Path) -> dict[str, object]:
        return {
            "cluster.name": "enricher",
            "node.name": "enricher",
            "discovery.type": "single-node",
            "network.host": HOST,
            "http.port": self.port,
            "transport.port": self._transport_port,
            "path.data": folder / "data",
            "path.logs": folder,
            # Otherwise a disk that is nearly full makes every index read-only.
            "cluster.routing.allocation.disk.threshold_enabled": "false",
        }


if __name__ == "__main__":
    fetch(LOCK_PATH)
