"""Runs the demonstration, in commands as a user runs them, and cleans up afterwards, however it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import orjson
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from rich.console import Console

from enricher.worker.settings import IndexSettings
from tools import ARTICLES, ROOT, enricher_command
from tools.demo.report import TASKS, read_outputs, show, show_tasks, tasks_settings
from tools.demo.search.server import SearchPage
from tools.kafka import Cluster, ClusterError
from tools.opensearch import OpenSearch
from tools.topics import Topics, make_topics
from tools.waiting import stop


class Failed(Exception):
    """A command failed; its own output says why."""


def enricher(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run one command to its end. Raises Failed."""
    process = enricher_command.start(*arguments, variables=environment)
    try:
        code = process.wait()
    except BaseException:
        stop(process)
        raise
    if code:
        message = f"'enricher {' '.join(arguments)}' ended with exit code {code}"
        raise Failed(message)


_DELETE_S = 10.0


@contextlib.contextmanager
def own_topics(bootstrap_servers: str) -> Iterator[Topics]:
    """Names of topics and a group that nobody else has; deletes what exists of them at the end."""
    topics = Topics.fresh(bootstrap_servers, "enricher-demo")
    try:
        yield topics
    finally:
        _delete(topics)


def letters_of_the_index(topics: Topics) -> str:
    return IndexSettings().dead_letters_of(topics.output)


def _delete(topics: Topics) -> None:
    """Delete topics and groups; errors are ignored: some are not there, and the cluster may be going down."""
    admin = AdminClient({"bootstrap.servers": topics.bootstrap_servers, "log_level": 0})
    futures = [
        *admin.delete_topics([*topics.all, letters_of_the_index(topics)], operation_timeout=_DELETE_S).values(),
        *admin.delete_consumer_groups([topics.group, f"{topics.group}.index"]).values(),
    ]
    for future in futures:
        with contextlib.suppress(KafkaException):
            future.result(_DELETE_S)


INDEX = "--index"
CATALOGUE = ROOT / "tests" / "data" / "catalogue" / "names.jsonl"
SETTINGS = {"ENRICHER_OUTPUT__ARTICLE": "whole", "ENRICHER_CATALOGUE__PATH": str(CATALOGUE)}
"""Settings of the worker: a record contains its article, so that title and text can be searched, and ids of its entities."""
_NAME = "articles"


def index_and_search(topics: Topics, environment: Mapping[str, str], console: Console) -> None:
    """Start OpenSearch, run the commands that make, fill and check an index, and serve its search page until Ctrl-C.

    Raises ClusterError, and Failed if a command fails.
    """
    with ExitStack() as opened:
        with console.status("starting OpenSearch"):
            server = opened.enter_context(OpenSearch())
        console.print(f"a real OpenSearch of one node is listening on {server.url}")
        letters = letters_of_the_index(topics)
        make_topics(topics.bootstrap_servers, [letters], 1)
        settings = {
            "ENRICHER_INDEX__URL": server.url,
            "ENRICHER_INDEX__NAME": _NAME,
            "ENRICHER_INDEX__DEAD_LETTER_TOPIC": letters,
        }
        for command in ("template --install", "run --until-caught-up", "verify"):
            console.rule(f"enricher index {command}")
            enricher(["index", *command.split()], {**environment, **settings})
        page = opened.enter_context(SearchPage(server.url, _NAME))
        console.rule("search")
        console.print(f"[bold]Open {page.url}[/bold] to search these articles. Ctrl-C ends it and removes everything.")
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


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
    except (ClusterError, Failed) as failure:
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
