"""Runs the demonstration and cleans up afterwards, however it ends."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import orjson
from rich.console import Console

from tools import ARTICLES
from tools.archives import ArchiveError
from tools.demo.commands import INDEX, SETTINGS, Failed, enricher, index_and_search, own_topics
from tools.demo.report import TASKS, read_outputs, show, show_tasks, tasks_settings
from tools.kafka import Cluster, ClusterError
from tools.opensearch import OpenSearchError

_PIPE_COLUMNS = 132
GIVEN_CLUSTER = "ENRICHER_KAFKA__BOOTSTRAP_SERVERS"


def main() -> int:
    """Run the demonstration; returns the exit code."""
    console = Console(stderr=True)
    if unknown := set(sys.argv[1:]) - {TASKS, INDEX}:
        console.print(f"unknown: {', '.join(sorted(unknown))}; the options are {TASKS} and {INDEX}")
        return 2
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    try:
        with ExitStack() as opened:
            demonstrate(console, opened, tasks=TASKS in sys.argv, index=INDEX in sys.argv)
    except KeyboardInterrupt:
        console.print("interrupted: all started processes have been stopped")
        return 130
    except (ClusterError, OpenSearchError, ArchiveError, Failed) as failure:
        console.print(f"[red]{failure}[/red]")
        return 1
    console.print(f"the program is installed: {how_to_find_it()}", soft_wrap=True, highlight=False)
    return 0


def how_to_find_it() -> str:
    """The command after which a shell finds `enricher`; the set-up has made its environment."""
    return f'source "{(Path(sys.executable).parent / "activate").as_posix()}" && enricher --help'


def demonstrate(console: Console, opened: ExitStack, *, tasks: bool = False, index: bool = False) -> None:
    """Start Kafka if needed, publish, run the worker, show the results.

    `tasks`: with a class of each article as well. `index`: then index the records, and serve a search page until Ctrl-C.
    """
    folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="enricher-demo-")))
    bootstrap_servers = os.environ.get(GIVEN_CLUSTER) or _start_kafka(console, opened)
    topics = opened.enter_context(own_topics(bootstrap_servers))
    environment = topics.variables("demo-0")
    if tasks:
        environment = {**environment, **tasks_settings(folder, console)}
    if index:
        environment = {**environment, **SETTINGS}
    articles = [orjson.loads(line) for line in ARTICLES.read_bytes().splitlines()]

    console.rule("enricher topics create")
    enricher(["topics", "create", "--partitions", "8"], environment)
    console.rule(f"enricher publish {ARTICLES.name}")
    enricher(["publish", str(ARTICLES)], environment)
    console.rule("enricher run --until-caught-up")
    summary = folder / "summary.json"
    enricher(["run", "--until-caught-up", "--summary", str(summary), "--report-every-s", "2"], environment)
    console.rule("results")
    records, dead_letters = read_outputs(topics)
    show(_wide(Console()), articles, records, dead_letters, orjson.loads(summary.read_bytes()))
    if tasks:
        show_tasks(_wide(Console()), articles, records)
    if index:
        index_and_search(topics, environment, console)


def _wide(console: Console) -> Console:
    """The console with a fixed width if it is a pipe, which has none."""
    return console if console.is_terminal else Console(width=_PIPE_COLUMNS)


def _start_kafka(console: Console, opened: ExitStack) -> str:
    with console.status("starting Apache Kafka"):
        cluster = opened.enter_context(Cluster(nodes=1))
    console.print(f"a real Apache Kafka of one node is listening on {cluster.bootstrap_servers}")
    return cluster.bootstrap_servers


if __name__ == "__main__":
    sys.exit(main())
