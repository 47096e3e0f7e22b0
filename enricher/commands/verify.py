"""`enricher verify`: checks the exactly-once promise against the topics, and prints a report. `enricher.verify` checks."""

from __future__ import annotations

import io
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from enricher.app import Model, file_worker, kafka_config, load_model
from enricher.codec import decode_article
from enricher.commands.console import Ticker, data_console, remark_console, write_line
from enricher.errors import InvalidArticle
from enricher.files import LineSink, LineSource
from enricher.kafka.client import KafkaConfig
from enricher.settings import Settings, load_settings
from enricher.verify import EARLIER, Check, Recompute, Report, VerifyOptions
from enricher.verify import verify as run_verification

BROKEN = 8
"""The exit code where a check failed."""

_SWEEP_S = 10.0  # how often a broker looks for transactions that are over time, by default
_STYLES = {"ok": "green", "failed": "bold red", "unknown": "yellow"}
_WORDS = {"ok": "ok", "failed": "FAILED", "unknown": "unknown"}


def verify(
    *,
    input_topic: Annotated[str | None, typer.Option("--input", help="Input topic. Default: the settings'.")] = None,
    output_topic: Annotated[str | None, typer.Option("--output", help="Output topic. Default: the settings'.")] = None,
    dead_letters: Annotated[
        str | None, typer.Option("--dead-letters", help="Dead-letter topic. Default: the settings'.")
    ] = None,
    group: Annotated[str | None, typer.Option("--group", help="Consumer group. Default: the settings'.")] = None,
    wait_s: Annotated[
        float | None,
        typer.Option(
            "--wait", min=0, max=604_800, metavar="SECONDS", help="Let the group catch up first, for at most so long."
        ),
    ] = None,
    watch_s: Annotated[
        float,
        typer.Option(
            "--watch", min=0, max=604_800, metavar="SECONDS", help="Watch committed offsets first: they never go back."
        ),
    ] = 0.0,
    recompute: Annotated[
        int,
        typer.Option("--recompute", min=0, metavar="N", help="Enrich the inputs of N records again, and compare."),
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Check that every committed input is exactly once in the output or the dead letters. Only reads.

    It checks what the group has committed, so workers may be running. Inputs that retention or compaction has removed
    count as gaps; a check that the topics can no longer answer is unknown, not failed. If the input topic was deleted and
    created again, outputs that name the id of the earlier topic are counted but not checked. Records are named by topic,
    partition and offset; their text is never shown.

    Exit code: 0 if no check failed, 8 if one did, 2 for settings, 3 for the model (`--recompute` only), 4 for the broker.
    It needs READ on the three topics and on the group. It holds 3 bytes per input in memory: 300 MB for 100 million.
    """
    settings = load_settings()
    config = kafka_config(settings)
    config = replace(
        config,
        input_topic=input_topic or config.input_topic,
        output_topic=output_topic or config.output_topic,
        dead_letter_topic=dead_letters or config.dead_letter_topic,
        group_id=group or config.group_id,
    )
    options = VerifyOptions(
        settle_s=config.transaction_timeout_s + _SWEEP_S,
        wait_s=wait_s,
        watch_s=watch_s,
        recompute=recompute_with(settings) if recompute else None,
        sample=recompute,
    )
    report = _verified(config, options)
    if as_json:
        write_line(orjson.dumps(report.as_json(), option=orjson.OPT_INDENT_2))
    else:
        show(report, config, data_console())
    raise typer.Exit(0 if report.holds else BROKEN)


def _verified(config: KafkaConfig, options: VerifyOptions, clock: Callable[[], float] = time.monotonic) -> Report:
    start_s = clock()
    with Ticker(remark_console()) as ticker:

        def progress(doing: str, done: int, total: int) -> None:
            ticker.tick(lambda: progress_text(doing, done, total, clock() - start_s))

        return run_verification(config, options, progress)


def progress_text(doing: str, done: int, total: int, elapsed_s: float) -> str:
    """How far one step is, and how long all of them have taken."""
    return f"{doing}: {done:,} of {total:,} ({elapsed_s:.0f} s)"


def show(report: Report, config: KafkaConfig, console: Console) -> None:
    """Print a report."""
    table = Table("", "check", "checked", "failed", "what holds, or where it does not")
    for check in report.checks:
        state = f"[{_STYLES[check.state]}]{_WORDS[check.state]}[/]"
        table.add_row(
            state, check.name, f"{check.checked:,}", f"{check.failed:,}" if check.failed else "", _text(check)
        )
    console.print(table)
    counted = ", ".join(f"{count:,} {name}" for name, count in report.facts.items() if count and name != EARLIER)
    console.print(f"counted: {escape(counted) or 'nothing'}", soft_wrap=True)
    if earlier := report.facts.get(EARLIER):
        console.print(f"{earlier:,} outputs belong to an earlier topic of this name: they are not judged")
    console.print(f"{_verdict(report)}: {escape(_names(config))}", soft_wrap=True)


def _text(check: Check) -> str:
    if check.state == "ok":
        return escape(check.holds)
    if check.state == "unknown":
        return escape(f"cannot be told: {check.doubt}")
    more = check.failed - len(check.examples)
    places = ", ".join(map(str, check.examples)) + (f" and {more:,} more" if more else "")
    return f"not so: {escape(check.holds)}\n{escape(places)}"


def _verdict(report: Report) -> str:
    if not report.holds:
        return f"[bold red]the promise is broken[/] ({', '.join(report.failed)})"
    unknown = [check.name for check in report.checks if check.state == "unknown"]
    doubts = f", as far as can be told (not: {', '.join(unknown)})" if unknown else ""
    return f"[green]the promise holds[/]{doubts}"


def _names(config: KafkaConfig) -> str:
    return f"{config.input_topic} -> {config.output_topic}, {config.dead_letter_topic}; group {config.group_id}"


def recompute_with(settings: Settings) -> Recompute:
    """Load the configured model, and give what enriches articles with it. Raises ModelError."""
    model = load_model(settings)

    def recompute(values: Sequence[bytes]) -> list[bytes | None]:
        lines = [_line(value) for value in values]
        with tempfile.TemporaryDirectory(prefix="enricher-verify-") as folder:
            path = Path(folder) / "articles.jsonl"
            path.write_bytes(b"".join(line + b"\n" for line in lines if line is not None))
            records = iter(_enriched(settings, model, path))
        return [None if line is None else next(records) for line in lines]

    return recompute


def _line(value: bytes) -> bytes | None:
    """The article in one line, whatever its value looks like; None where it is none."""
    try:
        article = decode_article(value, max_article_chars=sys.maxsize)
    except InvalidArticle:
        return None
    return orjson.dumps({"id": article.id, "title": article.title, "body": article.body, **article.metadata})


def _enriched(settings: Settings, model: Model, path: Path) -> list[bytes | None]:
    """A record for each line of the file, in order; None where it became a dead letter."""
    records, reasons = io.BytesIO(), io.BytesIO()
    source = LineSource(path)
    sink = LineSink(records, reasons, card=model.card, committed=source.note_committed)
    file_worker(settings, model, source, sink).run()
    dead = {orjson.loads(reason)["offset"] for reason in reasons.getvalue().splitlines()}
    values = iter(records.getvalue().splitlines())
    total = len(dead) + records.getvalue().count(b"\n")
    return [None if number in dead else next(values) for number in range(total)]
