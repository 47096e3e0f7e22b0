"""Reads the demonstration's outputs as a consumer, and prints the tables."""

from __future__ import annotations

import base64
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from confluent_kafka import Message
from rich.console import Console
from rich.table import Table
from rich.text import Text

from enricher.worker.inference.run.model import EMBEDDED, open_model
from tools import ROOT
from tools.demo.checkpoints import join, write_embedding
from tools.reading import STAGE, Follower, Reader, headers_of, source_of
from tools.topics import Topics
from tools.waiting import Closing

_VISIBLE_S = 10.0  # limit for records that must be visible already once the worker has ended


@dataclass(frozen=True, slots=True)
class Outcome:
    """One output: `value` is the enriched record, None for a dead letter."""

    value: dict[str, Any] | None
    waited_s: float
    """Seconds from the input's timestamp until a read_committed consumer saw the output."""


class Watcher(Closing):
    """Reads committed outputs from the beginning, in a thread."""

    def __init__(self, topics: Topics, *, expected: int) -> None:
        self._expected = expected
        self._outcomes: list[Outcome] = []
        self._complete = threading.Event()
        self._published = _publish_times(topics)
        outputs = (topics.output, topics.dead_letters)
        self._follower = Follower(topics.bootstrap_servers, outputs, self._note, name=f"{topics.group}-watcher")

    def close(self) -> None:
        self._follower.close()

    def all(self) -> list[Outcome]:
        """All outputs; waits a moment for the last ones."""
        self._complete.wait(_VISIBLE_S)
        return list(self._outcomes)

    def _note(self, message: Message) -> None:
        source = source_of(message)
        value = None if STAGE in headers_of(message) else orjson.loads(message.value() or b"null")
        self._outcomes.append(Outcome(value, time.time() - self._published[source.partition, source.offset]))
        if len(self._outcomes) >= self._expected:
            self._complete.set()


def _publish_times(topics: Topics) -> dict[tuple[int, int], float]:
    """Publish time of each input (seconds since the epoch), by partition and offset."""
    inputs = Reader(topics.bootstrap_servers, f"{topics.group}-watcher").records(topics.input)
    return {(each.partition() or 0, each.offset() or 0): each.timestamp()[1] / 1000 for each in inputs}


_COLOURS = {"PER": "green", "ORG": "yellow", "LOC": "cyan"}
_COUNTS = ("entities", "windows", "tokens")
_TITLE_WIDTH = 30
_NAMES_SHOWN = 4


def show(
    console: Console,
    articles: Sequence[Mapping[str, Any]],
    outcomes: Sequence[Outcome],
    summary: Mapping[str, Any],
) -> None:
    """Print a row per article, then the totals."""
    records = {outcome.value["id"]: outcome.value for outcome in outcomes if outcome.value is not None}
    console.print(_table(articles, records, console.width))
    console.print(_totals(articles, outcomes, records, summary))


def _table(articles: Sequence[Mapping[str, Any]], records: Mapping[str, Mapping[str, Any]], width: int) -> Table:
    names_width = max(12, (width - _TITLE_WIDTH - sum(map(len, _COUNTS))) // len(_COLOURS) - 2 * len(_COUNTS))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("article", width=_TITLE_WIDTH, overflow="ellipsis", no_wrap=True)
    for label, colour in _COLOURS.items():
        table.add_column(label, style=colour, width=names_width, overflow="ellipsis", no_wrap=True)
    for column in _COUNTS:
        table.add_column(column, justify="right", width=len(column))
    for article in articles:
        table.add_row(*_row(article, records.get(article["id"])))
    return table


def _row(article: Mapping[str, Any], record: Mapping[str, Any] | None) -> list[str]:
    if record is None:
        return [article["title"], "no enriched record"]
    names: dict[str, dict[str, None]] = defaultdict(dict)
    for entity in record["entities"]:
        names[entity["label"]][" ".join(entity["text"].split())] = None
    coverage = record["coverage"]
    counts = (len(record["entities"]), coverage["windows"], coverage["tokens"])
    return [article["title"], *(_list(list(names[label])) for label in _COLOURS), *map(str, counts)]


def _list(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" +{more}" if more > 0 else "")


def _totals(
    articles: Sequence[Mapping[str, Any]],
    outcomes: Sequence[Outcome],
    records: Mapping[str, Mapping[str, Any]],
    summary: Mapping[str, Any],
) -> Text:
    waits_s = sorted(outcome.waited_s for outcome in outcomes)
    entities = [(record, entity) for record in records.values() for entity in record["entities"]]
    texts = {article["id"]: article for article in articles}
    wrong = sum(texts[r["id"]][e["field"]][e["start"] : e["end"]] != e["text"] for r, e in entities)
    p50, p99 = (statistics.quantiles(waits_s, n=100)[percent - 1] for percent in (50, 99))
    rate = summary["published"] / summary["working_s"]
    return Text(
        f"\n{len(articles)} articles in, {len(records)} enriched records out, {len(outcomes) - len(records)} dead letters; "
        f"{len(entities)} entities, {wrong} whose text is not the article's [start:end]\n"
        f"{rate:.1f} articles/s from the first read to the last commit, {100 * summary['padding_share']:.1f} % of the "
        f"computed tokens padding, {summary['transactions']} transactions\n"
        f"from publish to visible (starting the worker included): p50 {p50:.1f} s, p99 {p99:.1f} s",
        style="bold",
    )


TASKS = "--tasks"
GENRE = ROOT / "enricher" / "models" / "heads" / "genre"
_NEAREST_WIDTH = 44


def tasks_settings(folder: Path, console: Console) -> dict[str, str]:
    """Write the checkpoints and `tasks.toml`, print it, and return the environment variable that names it."""
    encoder = open_model(EMBEDDED)
    join(GENRE, encoder, folder / "genre")
    write_embedding(encoder, folder / "vectors", "mean_tokens", normalised=True)
    toml = (
        f'[tasks.entities]\nsource = "{EMBEDDED}"\n\n'
        f"[tasks.genre]\nsource = '{folder / 'genre'}'\n\n"
        f"[tasks.vectors]\nsource = '{folder / 'vectors'}'\nvector = \"float16\"\n"
    )
    path = folder / "tasks.toml"
    path.write_text(toml, encoding="utf-8")
    console.rule("settings")
    console.print(toml, markup=False, highlight=False)
    return {"ENRICHER_CONFIG": str(path)}


def show_tasks(console: Console, articles: Sequence[Mapping[str, Any]], outcomes: Sequence[Outcome]) -> None:
    """Print the genre of each article, and which other article has the nearest vector."""
    records = {each.value["id"]: each.value for each in outcomes if each.value is not None}
    known = [article for article in articles if article["id"] in records]
    if len(known) < 2:
        return
    vectors = np.stack([vector_of(records[article["id"]]) for article in known])
    near = vectors @ vectors.T
    np.fill_diagonal(near, -np.inf)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("article", "nearest article by its vector"):
        table.add_column(column, width=_NEAREST_WIDTH, overflow="ellipsis", no_wrap=True)
    for column in ("cosine", "genre", "score"):
        table.add_column(column, justify="right" if column != "genre" else "left")
    for article, row in zip(known, near, strict=True):
        [genre] = records[article["id"]]["classifications"]
        nearest = known[int(row.argmax())]["title"]
        table.add_row(article["title"], nearest, f"{row.max():.3f}", genre["label"], f"{genre['score']:.2f}")
    console.print()
    console.print(table)
    console.print(
        "This encoder was trained to find names, so its vectors differ little; for search, name a sentence model in a task.",
        style="bold",
    )


def vector_of(record: Mapping[str, Any]) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """The embedding of a record, as `float32 [dimensions]`."""
    [embedding] = record["embeddings"]
    if "vector" in embedding:
        return np.array(embedding["vector"], np.float32)
    return np.frombuffer(base64.b64decode(embedding["vector_float16"]), "<f2").astype(np.float32)
