"""Prints the table of results and the totals."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tools.demo.outcome import Outcome

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
