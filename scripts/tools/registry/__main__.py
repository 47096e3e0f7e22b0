"""`scripts/registry`: a local schema registry. Results go to standard output, progress to standard error."""

from __future__ import annotations

from tools.archives import ArchiveError
from tools.java_server import commands_of
from tools.local_service import run
from tools.registry.server import LOCK_PATH, Registry, RegistryError

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
