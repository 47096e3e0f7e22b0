"""`scripts/kafka`: a local Kafka, started by one command, stopped by another, with its topics kept in between.

Its processes are found by its folder (see `tools.kafka.keeper`), so there is no pid file that could be stale. Results go to
standard output, progress to standard error.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Annotated

import psutil
import typer
from confluent_kafka import KafkaException
from platformdirs import user_state_path

from tools.kafka.cluster import Cluster, record_classes
from tools.kafka.java import MAIN_CLASSES, run_tool
from tools.kafka.keeper import end, processes_of, wait_until_gone
from tools.kafka.node import STOP_TIMEOUT_S, quiet_admin
from tools.kafka.versions import DEFAULT, VERSIONS, ClusterError, JarLock, class_path, default_folder, find
from tools.ports import is_free
from tools.waiting import wait_until

NOT_RUNNING = 3
"""The exit code of `status`, as init scripts say it (LSB, "program is not running")."""
_USUAL_PORT = 9092
"""Kafka's default port."""
_ANSWER_TIMEOUT_S = 3.0
_CLOSES_S = 3.0
"""A process that was killed is gone from the list of processes before its sockets are closed."""


@dataclass(frozen=True, slots=True)
class Running:
    """Facts about the running cluster that `start` recorded."""

    nodes: int
    bootstrap_servers: str
    version: str = DEFAULT


class Service:
    """The cluster of one folder. `folder`: without it one in the user's state."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = (user_state_path("enricher") / "kafka" if folder is None else folder).resolve()
        self._note = self.folder / "running.json"

    def running(self) -> Running | None:
        """The running cluster; None also if it was killed and its record is still there."""
        if not self._note.exists() or not any(processes_of(self.folder)):
            return None
        return Running(**json.loads(self._note.read_text(encoding="utf-8")))

    def start(self, nodes: int, port: int | None, version: str = DEFAULT) -> Running:
        """Start nodes that outlive this process.

        Raises `ClusterError` on failure, and then leaves nothing running.
        """
        self.stop()  # removes what a killed start may have left
        port = _choose_port(port, nodes)
        cluster = Cluster(nodes, version=version, data=self._data(nodes, version), port=port)
        cluster.start()
        running = Running(nodes, cluster.bootstrap_servers, cluster.version)
        self._note.write_text(json.dumps(asdict(running)), encoding="utf-8")
        cluster.detach()
        return running

    def stop(self) -> bool:
        """SIGTERM to all nodes, then SIGKILL to what remains; forgets what `start` recorded. Returns whether any ran."""
        processes = list(processes_of(self.folder))
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.resume()  # a suspended one would not see SIGTERM
                process.terminate()
        wait_until_gone(self.folder, STOP_TIMEOUT_S)
        end(self.folder)
        self._note.unlink(missing_ok=True)
        return bool(processes)

    def erase(self) -> None:
        """Remove the topics of all versions; the user's folder may hold other things. No node may run."""
        for nodes, version in product((1, 3), VERSIONS):
            shutil.rmtree(self._data(nodes, version), ignore_errors=True)

    def describe(self, running: Running) -> str:
        pids = ", ".join(str(process.pid) for process in processes_of(self.folder))
        return f"Kafka {running.version}, {running.bootstrap_servers}, process {pids}, data in {self.folder}"

    def _data(self, nodes: int, version: str) -> Path:
        """The data folder for this cluster size and version: node metadata names the peers and cannot be changed.

        An older version cannot read what a newer one wrote, so each has its folder; only the default version continues with
        the data of the previous default.
        """
        return self.folder / (f"{nodes}-nodes" if version == DEFAULT else f"{nodes}-nodes-{version}")


def _choose_port(wanted: int | None, count: int) -> int | None:
    """The first of so many ports in a row: as asked for, or ClusterError if taken; otherwise the usual, or None if taken."""
    first = _USUAL_PORT if wanted is None else wanted
    ports = range(first, first + count)
    if wait_until(lambda: all(map(is_free, ports)), 0.0 if wanted is None else _CLOSES_S):
        return first
    if wanted is None:
        return None
    taken = next((port for port in ports if not is_free(port)), first)
    raise ClusterError(f"port {taken} is taken; name another with --port, or leave --port out")


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
Data = Annotated[
    Path | None, typer.Option("--data", help="Folder for topics and logs; pass the same one to every command.")
]
_PORT_HELP = "Port of the first node [default: 9092, or free ones if taken]."
_STOP_HELP = "Stop Kafka; topics stay unless --erase is given. Does nothing if it does not run."


@app.command()
def start(
    version: Version = DEFAULT,
    nodes: Nodes = 1,
    port: Annotated[int | None, typer.Option("--port", help=_PORT_HELP)] = None,
    data: Data = None,
) -> None:
    """Start Kafka and return when it answers. Prints the line that points the worker at it; nothing if it runs."""
    version, service = find(version), Service(data)
    running = service.running()
    if running is None:
        _remark("Starting Kafka ...")
        started_s = time.monotonic()
        running = service.start(nodes, port, version)
        _remark(f"It answers after {time.monotonic() - started_s:.1f} s: {service.describe(running)}.")
    elif running.nodes != nodes:
        raise ClusterError(f"it has {running.nodes} node(s), not {nodes}: stop it first with `scripts/kafka stop`")
    elif running.version != version:
        raise ClusterError(f"it is {running.version}, not {version}: stop it first with `scripts/kafka stop`")
    else:
        _remark(f"Kafka is already running ({service.describe(running)}); nothing to do.")
    print(f"export ENRICHER_KAFKA__BOOTSTRAP_SERVERS={running.bootstrap_servers}")


@app.command(help=_STOP_HELP)
def stop(
    *, data: Data = None, erase: Annotated[bool, typer.Option("--erase", help="Remove the topics, too.")] = False
) -> None:
    service = Service(data)
    ran = service.stop()
    _remark("Kafka has been stopped." if ran else f"Kafka is not running in {service.folder}; nothing to do.")
    if erase:
        service.erase()
        _remark(f"The topics under {service.folder} have been removed.")


@app.command()
def status(data: Data = None) -> None:
    """Tell whether Kafka runs and answers: exit code 0 if so, 3 if not."""
    service = Service(data)
    running = service.running()
    if running is None:
        print(f"not running (data in {service.folder})")
        raise typer.Exit(NOT_RUNNING)
    try:
        quiet_admin(running.bootstrap_servers).list_topics(timeout=_ANSWER_TIMEOUT_S)
    except KafkaException:
        print(f"does not answer: {service.describe(running)}")
        raise typer.Exit(NOT_RUNNING) from None
    print(f"running: {service.describe(running)}")


@app.command()
def fetch(
    version: Annotated[list[str], typer.Option("--version", help=f"{_VERSIONS} May be repeated.")] = [DEFAULT],  # noqa: B006  typer's way
) -> None:
    """Download Kafka into the user's cache (45 MB per version, once) and verify every file; start does this if needed."""
    for each in version:
        lock = JarLock.read(find(each))
        folder = default_folder(lock)
        class_path(lock, folder)
        _remark(f"Kafka {lock.kafka_version} is complete in {folder}.")


@app.command()
def record(version: Version = DEFAULT) -> None:
    """Record the classes that a broker loads (75 MB, once, half a minute); every later start takes half the time."""
    record_classes(find(version))
    _remark("The classes of Kafka are recorded.")


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def tool(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(MAIN_CLASSES)}; also as kafka-NAME.sh.")],
    data: Data = None,
) -> None:
    """Run one of Kafka's own tools, against the Kafka that runs here unless --bootstrap-server names another one."""
    running = Service(data).running()
    raise typer.Exit(run_tool(name, context.args, running.bootstrap_servers if running else None))


def _remark(text: str) -> None:
    """Print a remark to standard error: standard output is for results."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Run a command; an expected failure is one sentence, with exit code 1."""
    try:
        app(prog_name="scripts/kafka")
    except ClusterError as error:
        sys.exit(f"scripts/kafka: {error}")


if __name__ == "__main__":
    main()
