"""`enricher index verify`: checks the index against the output topic, and prints a report."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from enricher.errors import RecoveryExhausted, SearchUnavailable
from enricher.indexing.index_run import index_config
from enricher.indexing.index_verification import RULES, Difference, IndexReport, VerifiedTopics, verify_index
from enricher.indexing.open_index import open_index
from enricher.indexing.version_comparison import Kind
from enricher.worker.commands.console import Ticker, data_console, remark_console, write_line
from enricher.worker.settings import Settings, load_settings

BROKEN = 8
"""The exit code if the index is not right."""
_ID_CHARS = 60
_NOTES: dict[Kind, str] = {
    "refused": "{:,} newest records are dead letters of the indexer: the index refused them",
    "older than the topic": "{:,} documents are older than what retention has left of the topic: they cannot be checked",
}


def verify_against_topic(
    *,
    wait_s: Annotated[
        float,
        typer.Option(
            "--wait", min=0, max=604_800, metavar="SECONDS", help="Let the indexers catch up first, at most this long."
        ),
    ] = 60.0,
    also: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC", help="Another indexed topic, such as that of a replay; may be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check that the index holds the newest version of every document, nothing else, and nothing deleted. Only reads.

    It compares the output topic with the index. Records may be written and indexed meanwhile: everything that was in the
    topic at the start must be in the index, and newer versions in the index must be in the topic by the end. It compares
    versions, not texts, and names documents by their ids.

    Exit code: 0 if the index is right, 8 if not, 2 for settings, 4 for the broker or an index that refuses, 6 if the index
    does not answer. It needs READ on the output topic, on the indexer's dead letters and on its group, and the right to
    refresh and search the index. Its memory does not grow with the topic (40 MB): versions are in a temporary file, which
    takes 40 bytes and twice the length of the id for each document.
    """
    settings = load_settings()
    report = _verify(settings, also or [], wait_s)
    if as_json:
        write_line(orjson.dumps(as_json_object(report, settings), option=orjson.OPT_INDENT_2))
    else:
        print_report(report, settings, data_console())
    raise typer.Exit(0 if report.holds else BROKEN)


def _verify(settings: Settings, also: Sequence[str], wait_s: float) -> IndexReport:
    config = index_config(settings)
    topics = VerifiedTopics(
        outputs=tuple(dict.fromkeys((config.input_topic, *also))),
        dead_letters=config.dead_letter_topic,
        identified_by=settings.index.document_id,
    )
    with closing(open_index(settings.index)) as index, Ticker(remark_console()) as ticker:
        try:
            return verify_index(config, topics, index, wait_s=wait_s, progress=ticker.show_step_and_time)
        except SearchUnavailable as error:
            message = f"the search index stopped answering: {error}. Nothing was changed; run it again"
            raise RecoveryExhausted(message) from error


def print_report(report: IndexReport, settings: Settings, console: Console) -> None:
    """Print a report."""
    table = Table("", "check", "documents", "what must hold, or where it does not")
    for kind, rule in RULES.items():
        count = report.counts.get(kind, 0)
        state = "[bold red]FAILED[/]" if count else "[green]ok[/]"
        table.add_row(state, kind, f"{count:,}" if count else "", escape(rule if not count else _places(report, kind)))
    console.print(table)
    console.print(
        f"counted: {report.records:,} records, {report.wanted:,} documents, {report.deleted:,} deleted ones; "
        f"{report.held:,} in the index",
        soft_wrap=True,
    )
    for note in notes(report):
        console.print(f"[yellow]note[/]: {escape(note)}", soft_wrap=True)
    verdict = "[green]the index is right[/]" if report.holds else "[bold red]the index is wrong[/]"
    console.print(f"{verdict}: {escape(f'{settings.kafka.output_topic} -> {settings.index.name}')}", soft_wrap=True)


def notes(report: IndexReport) -> list[str]:
    """Sentences about findings that break no rule and should be known."""
    found = [text.format(count) for kind, text in _NOTES.items() if (count := report.counts.get(kind, 0))]
    if report.behind:
        found.append(
            f"the indexers had not committed {report.behind:,} offsets: missing or newer versions may still come"
        )
    if report.without_document:
        found.append(
            f"{report.without_document:,} records make no document: they have no id or no version, or, with "
            "index.document_id=id, a key that is not the id"
        )
    if report.in_several_partitions:
        found.append(
            f"{report.in_several_partitions:,} documents have records in several partitions, which versions do not order: "
            "does a producer use another partitioner?"
        )
    return found


def as_json_object(report: IndexReport, settings: Settings) -> dict[str, Any]:
    """The object that `--json` prints."""
    return {
        "holds": report.holds,
        "topic": settings.kafka.output_topic,
        "index": settings.index.name,
        "records": report.records,
        "documents": report.wanted,
        "deleted": report.deleted,
        "in_index": report.held,
        "behind": report.behind,
        "differences": [
            {
                "kind": kind,
                "broken": kind in RULES,
                "count": count,
                "examples": [
                    {"id": each.id, "wanted": each.wanted, "held": each.held} for each in report.examples[kind]
                ],
            }
            for kind, count in report.counts.items()
        ],
        "notes": notes(report),
    }


def _places(report: IndexReport, kind: Kind) -> str:
    examples = report.examples[kind]
    more = report.counts[kind] - len(examples)
    return f"violated: {RULES[kind]}\n" + "\n".join(map(_place, examples)) + (f"\nand {more:,} more" if more else "")


def _place(difference: Difference) -> str:
    shown = repr(difference.id)
    shown = shown if len(shown) <= _ID_CHARS else f"{shown[:_ID_CHARS]}..."
    wanted = "" if difference.wanted is None else f", version {difference.wanted} in the topic"
    held = "" if difference.held is None else f", {difference.held} in the index"
    return f"{shown}{wanted}{held}"
