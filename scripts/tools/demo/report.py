"""Reads the demonstration's outputs as a consumer, and prints the tables; with `--tasks`, also makes the second task."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from enricher.worker.inference.checkpoint.folder import TOKENIZER_FILES, Checkpoint
from enricher.worker.inference.checkpoint.same_encoder import encoder_digest
from enricher.worker.inference.run.model import EMBEDDED, open_model
from tools import ROOT
from tools.reading import Reader
from tools.topics import Topics

Record = Mapping[str, Any]


def read_outputs(topics: Topics) -> tuple[dict[str, Record], int]:
    """The enriched records by the ids of their articles, and how many dead letters there are."""
    reader = Reader(topics.bootstrap_servers, topics.group)
    records = [orjson.loads(message.value() or b"") for message in reader.records(topics.output)]
    return {record["id"]: record for record in records}, reader.count(topics.dead_letters, "read_committed")


_COLOURS = {"PER": "green", "ORG": "yellow", "LOC": "cyan"}
_COUNTS = ("entities", "windows", "tokens")
_TITLE_WIDTH = 30
_NAMES_SHOWN = 4


def show(
    console: Console,
    articles: Sequence[Mapping[str, Any]],
    records: Mapping[str, Record],
    dead_letters: int,
    summary: Mapping[str, Any],
) -> None:
    """Print a row per article, then the totals."""
    console.print(_table(articles, records, console.width))
    console.print(_totals(articles, records, dead_letters, summary))


def _table(articles: Sequence[Mapping[str, Any]], records: Mapping[str, Record], width: int) -> Table:
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
    records: Mapping[str, Record],
    dead_letters: int,
    summary: Mapping[str, Any],
) -> Text:
    entities = [(record, entity) for record in records.values() for entity in record["entities"]]
    texts = {article["id"]: article for article in articles}
    wrong = sum(texts[r["id"]][e["field"]][e["start"] : e["end"]] != e["text"] for r, e in entities)
    rate = summary["published"] / summary["working_s"]
    return Text(
        f"\n{len(articles)} articles in, {len(records)} enriched records out, {dead_letters} dead letters; "
        f"{len(entities)} entities, {wrong} whose text is not the article's [start:end]\n"
        f"{rate:.1f} articles/s from the first read to the last commit, {100 * summary['padding_share']:.1f} % of the "
        f"computed tokens padding, {summary['transactions']} transactions",
        style="bold",
    )


TASKS = "--tasks"
GENRE = ROOT / "enricher" / "models" / "heads" / "genre"
_TITLE_AND_MORE_WIDTH = 60


def tasks_settings(folder: Path, console: Console) -> dict[str, str]:
    """Write the checkpoint and `tasks.toml`, print it, and return the environment variable that names it."""
    join(GENRE, open_model(EMBEDDED), folder / "genre")
    toml = f"[tasks.entities]\nsource = \"{EMBEDDED}\"\n\n[tasks.genre]\nsource = '{folder / 'genre'}'\n"
    path = folder / "tasks.toml"
    path.write_text(toml, encoding="utf-8")
    console.rule("settings")
    console.print(toml, markup=False, highlight=False)
    return {"ENRICHER_CONFIG": str(path)}


def show_tasks(console: Console, articles: Sequence[Mapping[str, Any]], records: Mapping[str, Record]) -> None:
    """Print the genre of each article."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("article", width=_TITLE_AND_MORE_WIDTH, overflow="ellipsis", no_wrap=True)
    table.add_column("genre")
    table.add_column("score", justify="right")
    for article in articles:
        if record := records.get(article["id"]):
            [genre] = record["classifications"]
            table.add_row(article["title"], genre["label"], f"{genre['score']:.2f}")
    console.print()
    console.print(table)


HEAD_FILE, CONFIG_FILE, WEIGHTS_FILE = "head.safetensors", "config.json", "model.safetensors"
_NOT_ENCODER = ("classifier.", "bert.pooler.", "cls.", "qa_outputs.")


def join(head: Path, encoder: Checkpoint, out: Path) -> None:
    """Write a checkpoint folder of a head that comes without its encoder.

    The encoder's weights are copied bit for bit, so that the worker runs both tasks in one pass.
    """
    with safe_open(head / HEAD_FILE, framework="numpy") as opened:
        assert opened.metadata()["encoder_digest"] == encoder_digest(encoder), "it was trained on another encoder"
    out.mkdir(parents=True, exist_ok=True)
    stored = load_file(encoder.folder / WEIGHTS_FILE)
    weights = {name: value for name, value in stored.items() if not name.startswith(_NOT_ENCODER)}
    save_file(weights | load_file(head / HEAD_FILE), out / WEIGHTS_FILE, metadata={"format": "pt"})
    for name in TOKENIZER_FILES:
        if (encoder.folder / name).is_file():
            shutil.copyfile(encoder.folder / name, out / name)
    shutil.copyfile(head / CONFIG_FILE, out / CONFIG_FILE)
