"""`scripts/kafka`: a local Kafka, started by one command, stopped by another, with its topics kept in between.

Results go to standard output, progress to standard error.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Annotated

import typer
from confluent_kafka import KafkaException

from tools import local_service
from tools.kafka.cluster import Cluster, record_classes
from tools.kafka.java import MAIN_CLASSES, run_tool
from tools.kafka.node import quiet_admin
from tools.kafka.versions import DEFAULT, VERSIONS, ClusterError, JarLock, class_path, find
from tools.kafka.versions import default_folder as jar_folder
from tools.local_service import Data, Port, add_commands, remark, run

_ANSWER_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class Running:
    """Facts about the running cluster that `start` recorded."""

    nodes: int
    bootstrap_servers: str
    version: str = DEFAULT


class Service(local_service.Service):
    """The cluster of one folder."""

    NAME = "kafka"
    ERROR = ClusterError
    USUAL_PORT = 9092  # Kafka's default port

    def __init__(self, folder: Path | None) -> None:
        super().__init__(folder)
        self._note = self.folder / "running.json"

    def running(self) -> Running | None:
        """The running cluster; None also if it was killed and its record is still there."""
        if not self._note.exists() or not self.processes():
            return None
        return Running(**json.loads(self._note.read_text(encoding="utf-8")))

    @property
    def title(self) -> str:
        running = self.running()
        return f"Kafka {running.version}" if running else "Kafka"

    def address(self) -> str | None:
        running = self.running()
        return running.bootstrap_servers if running else None

    def answers(self, address: str) -> bool:
        try:
            quiet_admin(address).list_topics(timeout=_ANSWER_TIMEOUT_S)
        except KafkaException:
            return False
        return True

    def start(self, nodes: int, port: int | None, version: str = DEFAULT) -> str:
        """Start nodes that outlive this process; returns their addresses.

        Raises `ClusterError` on failure, and then leaves nothing running.
        """
        self.stop()  # removes what a killed start may have left
        port = self.choose_port(port, nodes)
        cluster = Cluster(nodes, version=version, data=self._data(nodes, version), port=port)
        cluster.start()
        running = Running(nodes, cluster.bootstrap_servers, cluster.version)
        self._note.write_text(json.dumps(asdict(running)), encoding="utf-8")
        cluster.detach()
        return running.bootstrap_servers

    def stop(self) -> bool:
        """Stop the nodes, and forget what `start` recorded."""
        ran = super().stop()
        self._note.unlink(missing_ok=True)
        return ran

    def kept(self) -> Iterable[Path]:
        return [self._data(nodes, version) for nodes, version in product((1, 3), VERSIONS)]

    def _data(self, nodes: int, version: str) -> Path:
        """The data folder for this cluster size and version: node metadata names the peers and cannot be changed.

        An older version cannot read what a newer one wrote, so each has its folder; only the default version continues with
        the data of the previous default.
        """
        return self.folder / (f"{nodes}-nodes" if version == DEFAULT else f"{nodes}-nodes-{version}")


app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="A real Apache Kafka on this machine, without Java or containers. Topics survive stop and start.",
)
Nodes = Annotated[int, typer.Option("--nodes", help="1, or 3 for a replicated cluster (about 700 MB of memory).")]
_VERSIONS = f"One of {', '.join(VERSIONS)}; or a line (3.9), oldest, newest, default."
Version = Annotated[str, typer.Option("--version", help=_VERSIONS)]


add_commands(app, Service, "Kafka")


@app.command()
def start(version: Version = DEFAULT, nodes: Nodes = 1, port: Port = None, data: Data = None) -> None:
    """Start Kafka and return when it answers. Prints the line that points the worker at it; nothing if it runs."""
    version, service = find(version), Service(data)
    address = local_service.start(service, lambda: service.start(nodes, port, version), "Kafka")
    if (running := service.running()) and running.nodes != nodes:
        raise ClusterError(f"it has {running.nodes} node(s), not {nodes}: stop it first with `scripts/kafka stop`")
    if running and running.version != version:
        raise ClusterError(f"it is {running.version}, not {version}: stop it first with `scripts/kafka stop`")
    print(f"export ENRICHER_KAFKA__BOOTSTRAP_SERVERS={address}")


@app.command()
def fetch(
    version: Annotated[list[str], typer.Option("--version", help=f"{_VERSIONS} May be repeated.")] = [DEFAULT],  # noqa: B006  typer's way
) -> None:
    """Download Kafka into the user's cache (45 MB per version, once) and verify every file; start does this if needed."""
    for each in version:
        lock = JarLock.read(find(each))
        folder = jar_folder(lock)
        class_path(lock, folder)
        remark(f"Kafka {lock.kafka_version} is complete in {folder}.")


@app.command()
def record(version: Version = DEFAULT) -> None:
    """Record the classes that a broker loads (75 MB, once, half a minute); every later start takes half the time."""
    record_classes(find(version))
    remark("The classes of Kafka are recorded.")


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def tool(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(MAIN_CLASSES)}; also as kafka-NAME.sh.")],
    data: Data = None,
) -> None:
    """Run one of Kafka's own tools, against the Kafka that runs here unless --bootstrap-server names another one."""
    raise typer.Exit(run_tool(name, context.args, Service(data).address()))


def main() -> None:
    run(app, "scripts/kafka", ClusterError)


if __name__ == "__main__":
    main()
