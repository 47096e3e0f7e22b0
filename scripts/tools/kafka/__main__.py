"""`scripts/kafka`: a local Kafka for development. Results go to standard output, progress to standard error."""

from __future__ import annotations

from typing import Annotated

import typer

from tools import local_service
from tools.kafka.cluster import record_classes
from tools.kafka.java import MAIN_CLASSES, run_tool
from tools.kafka.service import Service
from tools.kafka.versions import DEFAULT, VERSIONS, ClusterError, JarLock, class_path, find
from tools.kafka.versions import default_folder as jar_folder
from tools.local_service import Data, Port, add_commands, remark, run

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
