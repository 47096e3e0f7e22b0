"""The steps of the demonstration: commands as a user runs them, topics of its own, the index."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from rich.console import Console

from enricher.worker.settings import IndexSettings
from tools import enricher_command
from tools.demo.search.server import SearchPage
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
SETTINGS = {"ENRICHER_OUTPUT__ARTICLE": "whole"}
"""Settings of the worker: a record contains its article, so that title and text can be searched."""
_NAME = "articles"


def index_and_search(topics: Topics, environment: Mapping[str, str], console: Console) -> None:
    """Start OpenSearch, run the commands that make, fill and check an index, and serve its search page until Ctrl-C.

    Raises OpenSearchError, ArchiveError, and Failed if a command fails.
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
