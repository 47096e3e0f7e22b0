"""A real schema registry with Confluent's API for development and the tests: Apicurio, without containers.

    from tools.registry import Registry

    with Registry() as registry:
        print(registry.url)

This module knows the server and nothing of `enricher`; `enricher` never imports it.

Apicurio Registry 3.3.3 answers `/apis/ccompat/v7` and `v8` as Confluent's registry does, except here:

- It has no GUIDs. Header ids (`__value_schema_id`) need the proxy of the tests (`tests/support/registry_proxy.py`), which
  makes GUIDs up from ids: that a registry assigns them is not tested.
- `POST /compatibility/...` gives no reasons, even with `verbose=true`; the default level is NONE.
- A Protobuf schema comes back as it was registered (Confluent's serializer for Python registers a base64
  `FileDescriptorProto`), and with `format=serialized` some give 500. An Avro schema comes back without its white space,
  unless it has references.
- A JSON Schema without `$schema` or another sign of it is refused with 422.
- `error_code` 0 in 500s; 409 instead of a five-digit code; a path that does not exist is a 404 with an empty body. So only
  codes that begin with 404 mean "unknown".
"""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path

from tools.archives import ArchiveError, ArchiveLock, unpacked
from tools.java_server import HOST, JavaServer, commands_of, status_of
from tools.kafka.keeper import SERVER_PROPERTIES
from tools.local_service import run


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


app = commands_of(
    Registry,
    "A real schema registry (Apicurio, Confluent's API) on this machine. It keeps its schemas until stop --erase.",
    name="the registry",
    variable="ENRICHER_REGISTRY__URL",
    lock_path=LOCK_PATH,
)


def main() -> None:
    run(app, "scripts/registry", RegistryError, ArchiveError)


if __name__ == "__main__":
    main()
