"""A local registry for development: started by one command, stopped by another.

Processes are found by their folder (see `tools.kafka.keeper.processes_of`), so there is no pid file that could be stale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from platformdirs import user_state_path

from tools.kafka.keeper import SERVER_PROPERTIES, end, processes_of
from tools.ports import is_free
from tools.registry.errors import RegistryError
from tools.registry.server import SCHEMAS_FILE, Registry, url_of

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_PORT = 8081  # that of Confluent's registry


def default_folder() -> Path:
    """Default folder for settings and the log."""
    return user_state_path("enricher") / "registry"


class Service:
    """The registry of one folder, seen from outside its process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    def url(self) -> str | None:
        """URL of the running registry; None if none runs."""
        if not any(processes_of(self.folder)):
            return None
        lines = (self.folder / SERVER_PROPERTIES).read_text(encoding="utf-8").splitlines()
        port = next(line.partition("=")[2] for line in lines if line.startswith("quarkus.http.port="))
        return url_of(int(port))

    def start(self, port: int | None) -> str:
        """Start a registry that outlives this process, and return its URL; raises `RegistryError` on failure."""
        registry = Registry(data=self.folder, port=_choose_port(port))
        registry.start()
        registry.detach()
        return registry.url

    def stop(self) -> bool:
        """End the registry; returns whether one ran."""
        ran = any(processes_of(self.folder))
        end(self.folder)
        return ran

    def erase(self) -> None:
        """Remove the schemas of a registry that does not run."""
        (self.folder / SCHEMAS_FILE).unlink(missing_ok=True)


def _choose_port(wanted: int | None) -> int | None:
    """The requested port, or RegistryError if taken; without a request the usual one, or None if taken."""
    port = DEFAULT_PORT if wanted is None else wanted
    if is_free(port):
        return port
    if wanted is None:
        return None
    raise RegistryError(f"port {port} is taken; name another with --port, or leave --port out")
