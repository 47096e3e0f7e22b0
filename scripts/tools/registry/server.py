"""The schema registry: Apicurio on loopback, from a locked archive."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path

from tools.archives import ArchiveLock, unpacked
from tools.java_server import HOST, JavaServer, status_of
from tools.kafka.keeper import SERVER_PROPERTIES


class RegistryError(Exception):
    """The local registry cannot be set up, started or reached; the message says why and what to do."""


LOCK_PATH = Path(__file__).with_name("registry.lock.toml")
_API = "/apis/ccompat/v7"
"""The path at which the server answers as Confluent's registry does."""
_SERVER_PROPERTIES = """\
quarkus.http.host={host}
quarkus.http.port={port}
quarkus.management.host={host}
quarkus.management.port=0
quarkus.banner.enabled=false
quarkus.http.access-log.enabled=false
quarkus.log.level=WARN
"""
_KEPT_SCHEMAS = "apicurio.datasource.url=jdbc:h2:file:{file};WRITE_DELAY=0;TRACE_LEVEL_FILE=0\n"
"""H2, the server's own database, in a file instead of in memory, without another one for its trace.

It survives that the server is killed.
"""


class Registry(JavaServer):
    """One server. With `data` it keeps its schemas there; without it, they are gone at the end.

    Raises `ArchiveMissing` if it cannot be fetched, and `RegistryError` if it does not start.
    """

    NAME = "registry"
    ERROR = RegistryError
    HEAP = ("-Xms128m", "-Xmx384m")
    DATA = "schemas.mv.db"
    USUAL_PORT = 8081  # that of Confluent's registry

    @staticmethod
    def url_of(port: int) -> str:
        return f"http://{HOST}:{port}{_API}"

    @staticmethod
    def port_in(folder: Path) -> int:
        lines = (folder / SERVER_PROPERTIES).read_text(encoding="utf-8").splitlines()
        return int(next(line.partition("=")[2] for line in lines if line.startswith("quarkus.http.port=")))

    @staticmethod
    def answers(url: str) -> bool:
        return status_of(f"{url}/subjects") == HTTPStatus.OK

    def _fetch(self) -> None:
        lock = ArchiveLock.read(LOCK_PATH)
        self._program = unpacked(lock, lock.cache_folder)

    def _arguments(self, folder: Path) -> tuple[str, ...]:
        properties = folder / SERVER_PROPERTIES
        settings = _SERVER_PROPERTIES.format(host=HOST, port=self.port)
        if not self.is_temporary:
            settings += _KEPT_SCHEMAS.format(file=(folder / self.DATA.removesuffix(".mv.db")).as_posix())
        properties.write_text(settings, encoding="utf-8")
        # The properties come last too, for the keeper; the server ignores this argument.
        return (
            *(f"-Dquarkus.config.locations={properties.as_uri()}", "-jar", str(self._program / "quarkus-run.jar")),
            str(properties),
        )
