"""The rows of the leg `peers` -> tables, the plot and the claim."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from tools.bench.outcome import Claim, Outcome, Plot, Row, Series, Table

OURS, BARE = "ours", "the bare engine"
STEP = "peers"
SAME_IF_SHORT, SAME_IF_LONG = 0.95, 0.8
"""Least F1 of a peer's entities against ours; below it, the peer does different work. In headlines it is 1.000 with
newswire-minilm and 0.965 with newswire-e5, whose tokenizer splits at spaces alone and so makes one word of `Korea's`. Long
articles are cut at other positions, which a small model is sensitive to: against itself newswire-minilm has 0.93 with 32
tokens of overlap instead of 16, and 0.84 with windows of 512 instead of 128."""
RANDOM = "random-"
"""Models with random weights, whose labels are near ties that rounding decides, are named so; no aim holds for their F1."""


def outcome(rows: Sequence[Row]) -> Outcome:
    """Of all rows of a run."""
    plots = [_plot(rows)] if any("articles_per_s" in row for row in rows) else []
    return Outcome({"rows": rows}, list(tables(rows)), plots, claims(rows))


def tables(rows: Sequence[Row]) -> Iterator[Table]:
    """A table for each model and mix."""
    for (model, shape, mix), group in groupby(rows, key=lambda row: (row["model"], row["shape"], row["mix"])):
        columns = ("worker", "its best options", "articles/s", "turns", "ours / this", "same entities (F1)")
        own = list(group)
        note = DRY if any(row.get("dry") for row in own) else NOTE
        yield Table(f"Other workers: {mix}, {model} ({shape})", columns, [_cells(row) for row in own], note)


NOTE = "Median, lowest and highest of the turns. F1 against ours, in headlines of one window and in these articles."
DRY = "Dry run on a CPU, in float32: the figures mean nothing."


def _cells(row: Row) -> Sequence[str]:
    if "not_measured" in row:
        return row["worker"], f"not measured: {row['not_measured']}", "", "", "", ""
    spread = f"{row['articles_per_s']:,.3g} ({row['lowest_per_s']:,.3g} to {row['highest_per_s']:,.3g})"
    f1 = " / ".join(f"{row[key]:.3f}" for key in ("in_headlines_f1", "same_entities_f1") if row[key] is not None)
    return _name(row), row["options"], spread, str(row["turns"]), f"{row['ours_over_this']:.3g}", f1


def _name(row: Row) -> str:
    return f"{OURS} ({row['variant']})" if row["worker"] == OURS else str(row["worker"])


def _plot(rows: Sequence[Row]) -> Plot:
    """The rates of the first model, of contenders that were measured on every mix."""
    measured = [row for row in rows if "articles_per_s" in row and row["model"] == rows[0]["model"]]
    mixes = [*dict.fromkeys(str(row["mix"]) for row in measured)]
    found = {(row["worker"], row["mix"]): row for row in measured}
    whole = [row for row in measured if row["mix"] == mixes[0] and all((row["worker"], mix) in found for mix in mixes)]
    series = []
    for mix in mixes:
        own = [found[row["worker"], mix] for row in whole]
        values = [[row[key] for row in own] for key in ("articles_per_s", "lowest_per_s", "highest_per_s")]
        series.append(Series(mix, [_name(row) for row in own], *values))
    return Plot("peers", "Workers that a team would write instead", "bars", "articles/s", "", series)


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Every peer does the same work."""
    peers = [row for row in rows if row.get("in_headlines_f1") is not None and not row["model"].startswith(RANDOM)]
    if not peers:
        return []
    short, long = (min(row[key] for row in peers) for key in ("in_headlines_f1", "same_entities_f1"))
    text = (
        f"every peer does the same work: a record for each article in every run, and our entities: F1 of {short:.3f} "
        f"where an article is one window (aim {SAME_IF_SHORT}), {long:.3f} where it is cut (aim {SAME_IF_LONG})"
    )
    return [Claim(text, held=short >= SAME_IF_SHORT and long >= SAME_IF_LONG)]
