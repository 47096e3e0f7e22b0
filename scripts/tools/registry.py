"""A real schema registry with Confluent's API for the tests: Apicurio, without containers.

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

from pathlib import Path

from tools.java_server import HOST, JavaServer, fetch
from tools.kafka.keeper import SERVER_PROPERTIES

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


class Registry(JavaServer):
    """One server, with its schemas in memory.

    Raises `NotFetched` if it cannot be fetched, and `ClusterError` if it does not start.
    """

    NAME = "registry"
    LOCK_PATH = LOCK_PATH
    HEAP = ("-Xms128m", "-Xmx384m")

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}{_API}"

    @property
    def _health_url(self) -> str:
        return f"{self.url}/subjects"

    def _arguments(self, folder: Path) -> tuple[str, ...]:
        properties = folder / SERVER_PROPERTIES
        properties.write_text(_SERVER_PROPERTIES.format(host=HOST, port=self.port), encoding="utf-8")
        # The properties come last too, for the keeper; the server ignores this argument.
        return (
            *(f"-Dquarkus.config.locations={properties.as_uri()}", "-jar", str(self._program / "quarkus-run.jar")),
            str(properties),
        )


if __name__ == "__main__":
    fetch(LOCK_PATH)
