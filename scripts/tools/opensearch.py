"""A real OpenSearch for the demo and the tests, without containers.

    from tools.opensearch import OpenSearch

    with OpenSearch() as server:
        print(server.url)

This module knows the server and nothing of `enricher`; `enricher` never imports it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path

from tools.java_server import HOST, ArchiveLock, JavaServer, fetch, status_of, unpacked
from tools.kafka.java import LOG4J_2
from tools.kafka.keeper import SERVER_PROPERTIES
from tools.ports import free_ports


class OpenSearchError(Exception):
    """The local OpenSearch cannot be set up, started or reached; the message says why and what to do."""


LOCK_PATH = Path(__file__).with_name("opensearch.lock.toml")
_NO_NATIVE_CODE = ("-Djna.nounpack=true", "-Djna.nosys=true", "-Djna.boot.library.path=")
"""OpenSearch refuses to run as root, as containers often do, where its native code tells it the user. All else that this
code does is to lock memory and to filter system calls, which a node for tests needs not."""


class OpenSearch(JavaServer):
    """One node, without the plugins that a cluster in production has: no TLS, no users.

    `settings`: further ones of the node, such as `thread_pool.write.queue_size`.
    Raises `ArchiveMissing` if it cannot be fetched, and `OpenSearchError` if it does not start.
    """

    NAME = "opensearch"
    ERROR = OpenSearchError
    HEAP = ("-Xms256m", "-Xmx512m")

    def __init__(self, settings: Mapping[str, object] | None = None) -> None:
        super().__init__()
        self._settings = settings or {}
        [self._transport_port] = free_ports(1)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def answers(self) -> bool:
        """Whether it answers, and its indices can be searched."""
        return status_of(f"{self.url}/_cluster/health?wait_for_status=yellow&timeout=1s") == HTTPStatus.OK

    def restart(self, settings: Mapping[str, object] | None = None) -> None:
        """Kill the node and start it with its data; `settings` replace those that it had."""
        self.kill()
        self._settings = self._settings if settings is None else settings
        self._start_in(self._folder)

    def _fetch(self) -> None:
        lock = ArchiveLock.read(LOCK_PATH)
        self._program = unpacked(lock, lock.cache_folder) / f"opensearch-{lock.version}"

    def _arguments(self, folder: Path) -> tuple[str, ...]:
        self._folder = folder
        config = _config_file(folder).parent
        config.mkdir(exist_ok=True)
        (config / "log4j2.properties").write_text(LOG4J_2, encoding="utf-8")
        lines = (f"{name}: {value}" for name, value in self._node_settings(folder).items())
        _config_file(folder).write_text("\n".join(lines) + "\n", encoding="utf-8")
        # Its agent, which watches what plugins do, is not attached: a node needs only the classes that it brings.
        jars = (*self._program.glob("lib/*.jar"), *self._program.glob("agent/*.jar"))
        return (
            *_NO_NATIVE_CODE,
            f"-Dopensearch.path.home={self._program}",
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
            **self._settings,
        }


def _config_file(folder: Path) -> Path:
    return folder / "config" / "opensearch.yml"


if __name__ == "__main__":
    fetch(LOCK_PATH)
