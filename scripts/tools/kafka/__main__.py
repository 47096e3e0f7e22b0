"""`scripts/kafka`: a local Kafka for development. Results go to standard output, progress to standard error."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from tools.command_line import NOT_RUNNING, remark, run
from tools.kafka.cluster import record_classes
from tools.kafka.java import MAIN_CLASSES, run_tool
from tools.kafka.service import Running, Service, default_folder
from tools.kafka.versions import DEFAULT, VERSIONS, ClusterError, JarLock, class_path, find
from tools.kafka.versions import default_folder as jar_folder

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="A real Apache Kafka on this machine, without Java or containers. Topics survive stop and start.",
)
Data = Annotated[
    Path | None, typer.Option("--data", help="Folder for topics and state; pass the same one to every command.")
]
Nodes = Annotated[int, typer.Option("--nodes", help="1, or 3 for a replicated cluster (about 700 MB of memory).")]
Port = Annotated[
    int | None, typer.Option("--port", help="Port of the first node [default: 9092, or a free one if that is taken].")
]
_VERSIONS = f"One of {', '.join(VERSIONS)}; or a line (3.9), oldest, newest, default."
Version = Annotated[str, typer.Option("--version", help=_VERSIONS)]


@app.command()
def start(version: Version = DEFAULT, nodes: Nodes = 1, port: Port = None, data: Data = None) -> None:
    """Start Kafka and return when it answers. Prints the line that points the worker at it; nothing if it runs."""
    version = find(version)
    service = _service(data)
    running = service.running()
    if running is None:
        service.stop()  # removes what a killed start may have left
        running = _start(service, nodes, port, version)
    else:
        remark(f"Kafka is already running ({_describe(service, running)}); nothing to do.")
        if running.nodes != nodes:
            raise ClusterError(f"it has {running.nodes} node(s), not {nodes}: stop it first with `scripts/kafka stop`")
        if running.version != version:
            raise ClusterError(f"it is {running.version}, not {version}: stop it first with `scripts/kafka stop`")
    print(f"export ENRICHER_KAFKA__BOOTSTRAP_SERVERS={running.bootstrap_servers}")


@app.command()
def stop(
    data: Data = None,
    erase: Annotated[bool, typer.Option("--erase", help="Remove topics and state too.")] = False,  # noqa: FBT002  typer's way
) -> None:
    """Stop Kafka; topics are kept unless --erase is given. Does nothing if none runs."""
    service = _service(data)
    count = service.stop()
    remark("Kafka has been stopped." if count else f"No Kafka is running with data in {service.folder}; nothing to do.")
    if erase:
        service.erase()
        remark(f"Topics and state under {service.folder} have been removed.")


@app.command()
def status(data: Data = None) -> None:
    """Tell whether Kafka runs and answers: exit code 0 if so, 3 if not."""
    service = _service(data)
    running = service.running()
    if running is None:
        print(f"not running (data in {service.folder})")
        raise typer.Exit(NOT_RUNNING)
    answers = service.answers(running)
    print(f"{'running' if answers else 'does not answer'}: {_describe(service, running)}")
    if not answers:
        raise typer.Exit(NOT_RUNNING)


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
    running = _service(data).running()
    raise typer.Exit(run_tool(name, context.args, running.bootstrap_servers if running else None))


def _start(service: Service, nodes: int, port: int | None, version: str) -> Running:
    remark(f"Starting Kafka {version} ...")
    started_s = time.monotonic()
    running = service.start(nodes, port, version)
    remark(f"Kafka answers after {time.monotonic() - started_s:.1f} s: {_describe(service, running)}.")
    return running


def _service(data: Path | None) -> Service:
    return Service(default_folder() if data is None else data)


def _describe(service: Service, running: Running) -> str:
    pids = ", ".join(str(process.pid) for process in service.processes())
    return f"Kafka {running.version}, {running.bootstrap_servers}, process {pids}, data in {service.folder}"


def main() -> None:
    run(app, "scripts/kafka", ClusterError)


if __name__ == "__main__":
    main()
