"""`enricher labels`: how often each label is in the newest records, and how far that is from a baseline.

`enricher.worker.telemetry.baseline` reads the file that this command writes. Here are the options, the counting, the rule
for what is far, and the output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.markup import escape
from rich.table import Column, Table

from enricher.errors import SettingsError
from enricher.operate.inspect.follow import TopicReader
from enricher.worker.articles import record_as_json
from enricher.worker.build.kafka_clients import kafka_config
from enricher.worker.commands.console import data_console, remark_console, write_line
from enricher.worker.heads import KINDS, EntityHead
from enricher.worker.records import RawRecord
from enricher.worker.settings import load_settings
from enricher.worker.stats.counters import MOST_LABELS
from enricher.worker.telemetry.baseline import BASELINE_VERSION, bound_labels, read_baseline, shares_of, totals_of

FEWEST_LABELS = 1_000
"""The fewest labels of a task whose shares can be compared; with fewer, differences are noise."""
_POLL_S = 0.2
_DRIFT, _RELATIVE_DRIFT = 0.05, 0.5
_GONE, _FEWEST_EXPECTED = 0.1, 100


def labels(
    *,
    newest: Annotated[
        int, typer.Option(min=1, metavar="N", help="Count the newest N offsets of each partition of the output topic.")
    ] = 10_000,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the shares to this file, as a baseline for `health.labels_baseline`."),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Compare with this baseline. Default: the one of `health.labels_baseline`."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Show how often each label is in the newest records, and which labels are far from a baseline. Only reads topics.

    A baseline should be made from days on which all was well: of as many records as the topic has of a whole week.
    """
    settings = load_settings()
    config = kafka_config(settings)
    path = against or settings.health.labels_baseline
    baseline = read_baseline(path) if path else None
    with closing(TopicReader(config, config.output_topic, newest=newest)) as reader:
        found = count_labels(reader)
    if not found.counts:
        raise SettingsError(
            f"no record with a label is among the newest {newest:,} of each partition of {config.output_topic}"
        )
    lines = compare(found.counts, baseline)
    if out:
        _write(out, found, config.output_topic)
    if as_json:
        write_line(orjson.dumps({"records": found.records, "labels": lines}, option=orjson.OPT_INDENT_2))
    else:
        data_console().print(_table(lines, compares=baseline is not None))


@dataclass(slots=True)
class Found:
    """The counts. Times are seconds since 1970, None without timestamps."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Counts by task and label."""
    records: int = 0
    first_s: float | None = None
    last_s: float | None = None

    def add(self, record: RawRecord) -> None:
        """Count a record of the output topic; what no worker wrote, and tombstones, do not count."""
        try:
            document = record_as_json(record.value or b"", dict(record.headers).get("content-type"))
            self.counts.update(labels_of(orjson.loads(document)))
        except (ValueError, LookupError, TypeError, AttributeError):
            return
        self.records += 1
        if (at_s := record.timestamp_s) is not None:
            self.first_s = at_s if self.first_s is None else min(self.first_s, at_s)
            self.last_s = at_s if self.last_s is None else max(self.last_s, at_s)

    def baseline(self, topic: str) -> bytes:
        """The content of a baseline file: for each task the number of its labels, and their shares, the largest first."""
        ranked = dict(self.counts.most_common())
        shares, totals = shares_of(bound_labels(ranked)), totals_of(self.counts)
        tasks = {
            name: {
                "labels": total,
                "shares": {
                    label: round(share, 6)
                    for (task, label), share in sorted(shares.items(), key=lambda each: -each[1])
                    if task == name
                },
            }
            for name, total in totals.items()
        }
        document = {
            "version": BASELINE_VERSION,
            "topic": topic,
            "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "records": self.records,
            "first_at": _iso(self.first_s),
            "last_at": _iso(self.last_s),
            "tasks": tasks,
        }
        return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def labels_of(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Task and label of each entity and each class of an enriched record. Raises LookupError, TypeError, AttributeError."""
    if EntityHead.listed_in not in document:
        raise LookupError("every enriched record lists entities")
    found: list[tuple[str, str]] = []
    for name, kind in KINDS.items():
        if kind.labelled:
            # Entities name their task only where several tasks find entities.
            names = [task["name"] for task in document.get("tasks", ()) if task["kind"] == name]
            only = names[0] if names else name
            found += [(each.get("task", only), each["label"]) for each in document.get(kind.listed_in, ())]
    return found


def count_labels(reader: TopicReader) -> Found:
    """Count the labels up to the end that each partition had when `reader` was opened."""
    found = Found()
    while not reader.finished:
        for record in reader.poll(_POLL_S):
            if record.offset < reader.ends[record.partition.number]:
                found.add(record)
    return found


def has_drifted(share: float, baseline: float, total: float) -> bool:
    """Whether a label's share of `total` labels is far from its baseline. The alert EnricherLabelDrift has the same rule.

    Far means that they differ by more than five points and by more than half of the baseline; or that the share is less than
    a tenth of the baseline although at least a hundred such labels were expected.
    """
    if total < FEWEST_LABELS:
        return False
    far = abs(share - baseline) > max(_DRIFT, _RELATIVE_DRIFT * baseline)
    return far or (share < _GONE * baseline and baseline * total >= _FEWEST_EXPECTED)


def compare(
    counts: Mapping[tuple[str, str], int], baseline: Mapping[tuple[str, str], float] | None
) -> list[dict[str, Any]]:
    """One line per task and label, the most frequent first; with a baseline also for its labels that were not found."""
    kept = bound_labels(dict(Counter(counts).most_common()))
    totals, shares = totals_of(kept), shares_of(kept)
    sizes = Counter(task for task, _ in kept)
    # Like the alert: not without labels now, nor with so many that each worker exports others.
    tasks = {task for task, _ in baseline or () if 0 < sizes[task] < MOST_LABELS}
    missing = {pair: 0.0 for pair in baseline or () if pair[0] in tasks and pair not in shares}
    lines = []
    for (task, label), share in sorted({**shares, **missing}.items(), key=lambda each: (each[0][0], -each[1])):
        line: dict[str, Any] = {"task": task, "label": label, "count": int(kept.get((task, label), 0)), "share": share}
        if baseline is not None and task in tasks:
            expected = baseline.get((task, label), 0.0)
            line |= {"baseline": expected, "drifted": has_drifted(share, expected, totals[task])}
        lines.append(line)
    return lines


def _iso(at_s: float | None) -> str | None:
    return None if at_s is None else datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds")


def _write(path: Path, found: Found, topic: str) -> None:
    try:
        path.write_bytes(found.baseline(topic))
    except OSError as error:
        raise SettingsError(f"--out: {path}: {error.strerror}") from error
    for task, total in sorted(totals_of(found.counts).items()):
        if total < FEWEST_LABELS:
            remark_console().print(f"{escape(task)}: only {total:.0f} labels; a baseline should have {FEWEST_LABELS:,}")


def _table(lines: list[dict[str, Any]], *, compares: bool) -> Table:
    numbers = [Column(name, justify="right") for name in ("found", "share", *(["baseline"] if compares else []))]
    table = Table(Column("task"), Column("label"), *numbers, *([Column("")] if compares else []))
    for line in lines:
        table.add_row(*_cells(line, compares=compares))
    return table


def _cells(line: Mapping[str, Any], *, compares: bool) -> Iterator[str]:
    yield from (escape(line["task"]), escape(line["label"]), f"{line['count']:,}", f"{line['share']:.1%}")
    if compares:
        yield f"{line['baseline']:.1%}" if "baseline" in line else "-"
        yield "far away" if line.get("drifted") else ""
