"""The snippets of the pages that the tests of this folder execute, and the commands among them, on a real broker."""

from __future__ import annotations

from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from kafka.harness import as_sent, publish, short_articles
from pages.shell import run_page
from pages.snippets import Snippet, snippets
from support.heads import class_model
from support.models import MINILM_FOLDER
from support.operating import write
from support.topics import PARTITIONS, Topics

from tools.topics import make_topics

FOUND = list(snippets())
REGISTRY = "https://registry-1:8081,https://registry-2:8081"
SEARCH = "https://search-1:9200,https://search-2:9200"
"""How the pages write the URLs of a server; each has a test file, because files that ask for a server share it."""


def executed(*languages: str) -> list[Snippet]:
    """The blocks in these languages."""
    return [each for each in FOUND if each.executed and each.language in languages]


def text_of(page: str, language: str) -> str:
    """All such blocks of a page, one after the other."""
    return "\n".join(each.text for each in executed(language) if each.page == page)


def pages_with(language: str, *, server: str = "") -> list[str]:
    """The pages that have such blocks and ask for this server; without one, those that ask for none."""
    pages = dict.fromkeys(each.page for each in executed(language))
    asked = {page: next((url for url in (REGISTRY, SEARCH) if url in text_of(page, language)), "") for page in pages}
    return [page for page in pages if server == asked[page]]


def furnish(folder: Path, program: str) -> None:
    """The files and models that the pages name; the one of 45 MB only if this program does."""
    articles = short_articles(6)
    (folder / "articles.jsonl").write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in articles))
    pq.write_table(pa.Table.from_pylist(articles), folder / "articles.parquet")
    (folder / "secret").write_text("user:password")
    (folder / "models").mkdir()
    (folder / "models" / "mine").symlink_to(MINILM_FOLDER)
    if "models/topics" in program:
        class_model(MINILM_FOLDER, folder / "models" / "topics", ["politics", "sport"])


def run_commands(page: str, topics: Topics, folder: Path, servers: dict[str, str] | None = None) -> None:
    """In one shell, on a real broker with some records and a dead letter. `servers`: the real URLs of those of the page."""
    commands = text_of(page, "sh")
    furnish(folder, commands)
    publish(topics.bootstrap_servers, topics.input, map(as_sent, short_articles(6)))
    write(topics.bootstrap_servers, topics.input, [{"partition": 0, "value": b"no JSON"}])
    if "enricher index run" in commands:
        make_topics(topics.bootstrap_servers, [f"{topics.output}.index-dead-letters"], PARTITIONS)
    for ours, real in {
        "broker-1:9092,broker-2:9092": topics.bootstrap_servers,
        "broker-1:9092": topics.bootstrap_servers,
        "--topic articles": f"--topic {topics.input}",
        "_TOPIC=": f"_TOPIC={topics.group}.",  # names of their own, so that no test meets another
        "GROUP_ID=": f"GROUP_ID={topics.group}.",
        "enricher.replay-47 articles": f"{topics.group}.enricher.replay-47 {topics.input}",
        "--group ": f"--group {topics.group}.",
        "--into ": f"--into {topics.group}.",
        "/models/next": str(MINILM_FOLDER),
        "/run/secrets/registry": str(folder / "secret"),
        **(servers or {}),
    }.items():
        commands = commands.replace(ours, real)
    if "enricher dead-letters" in commands or "labels" in commands or "lag" in commands:
        commands = f"enricher run\n{commands}"
    run_page(commands, folder, topics.environment)
