"""`scripts/demo --index`: the records in a real OpenSearch, checked, and a search page until Ctrl-C."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress

from rich.console import Console

from tools.demo.commands import enricher
from tools.demo.search.server import SearchPage
from tools.demo.topics import letters_of_the_index
from tools.opensearch import OpenSearch
from tools.topics import Topics, make_topics

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
