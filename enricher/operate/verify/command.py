"""`enricher verify`: checks the exactly-once promise against the topics, and prints a report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, redirect_stdout
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import orjson
import typer
from confluent_kafka import Message
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from enricher.errors import BrokerError, InvalidArticle, SchemaPending
from enricher.operate.verify.contract import DeleteEvents
from enricher.operate.verify.ledger import EARLIER, Check, Report
from enricher.operate.verify.recomputing import LeastScore
from enricher.operate.verify.verification import VerifyOptions
from enricher.operate.verify.verification import verify as run_verification
from enricher.worker.articles import ArticleReader, record_as_json
from enricher.worker.commands.console import Ticker, data_console, remark_console, write_line
from enricher.worker.kafka.metadata import raw_record
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.records import Skipped
from enricher.worker.runtime.watchdog import ProcessTimer, Watchdog
from enricher.worker.settings import Settings, load_settings
from enricher.worker.wiring.formats import article_reader, waiting_decoders
from enricher.worker.wiring.kafka_clients import kafka_config
from enricher.worker.wiring.loaded_tasks import Tasks, load_tasks
from enricher.worker.wiring.memory_runs import recompute as recompute_records

BROKEN = 8
"""The exit code if a check failed."""

_SWEEP_S = 10.0  # Kafka's default interval at which a broker aborts transactions that have timed out
_STATES = {"ok": "[green]ok[/]", "failed": "[bold red]FAILED[/]", "unknown": "[yellow]unknown[/]"}


def verify(
    context: typer.Context,
    *,
    input_topic: Annotated[
        str | None, typer.Option("--input", help="Input topic. Default: all of the settings.")
    ] = None,
    output_topic: Annotated[str | None, typer.Option("--output", help="Output topic. Default: from settings.")] = None,
    dead_letters: Annotated[
        str | None, typer.Option("--dead-letters", help="Dead-letter topic. Default: from settings.")
    ] = None,
    group: Annotated[str | None, typer.Option("--group", help="Consumer group. Default: from settings.")] = None,
    recompute: Annotated[
        int, typer.Option("--recompute", min=0, metavar="N", help="Enrich the inputs of N records again and compare.")
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check that every committed input is exactly once in the output or the dead letters. Only reads.

    It checks what the group has committed, so workers may be running; `enricher lag --max-lag 0` says whether that is all.
    Inputs that retention or compaction has removed
    count as gaps; a check that the topics can no longer answer is unknown, not failed. If the input topic was deleted and
    created again, outputs that name the id of the earlier topic are counted but not checked. Records are named by topic,
    partition and offset; their text is never shown, and only --recompute reads it. Several input topics are checked one
    after the other, each with its report; with --json they are an object by topic.

    Exit code: 0 if no check failed, 8 if one did, 2 for settings, 3 for the model (`--recompute` only), 4 for the broker.
    It needs READ on the three topics and on the group. It holds 3 bytes per input in memory, 300 MB for 100 million.
    """
    settings = load_settings()
    config = kafka_config(settings)
    config = replace(
        config.of_input(input_topic) if input_topic else config,
        output_topic=output_topic or config.output_topic,
        dead_letter_topic=dead_letters or config.dead_letter_topic,
        group_id=group or config.group_id,
    )
    open_wait_s, deletes = config.transaction_timeout_s + _SWEEP_S, delete_events(settings)
    options = VerifyOptions(open_wait_s=open_wait_s, sample=recompute, deletes=deletes)
    if recompute:
        tasks = load_tasks(settings)
        again = partial(recompute_records, settings, tasks)
        options = replace(options, recompute=again, as_json=record_as_json, least_score=least_score_of(tasks))
    with ExitStack() as stack:
        if settings.articles.transform:
            stack.enter_context(redirect_stdout(sys.stderr))  # it may print
            decoders = stack.enter_context(waiting_decoders(settings))
            watchdog = stack.enter_context(Watchdog(timer=context.find_object(ProcessTimer)))
            guard = partial(watchdog.guard, limit_s=settings.worker.stall_timeout_s)
            options = replace(options, skips=partial(is_skipped, article_reader(settings, decoders), guard))
        reports = {topic: _verify(config.of_input(topic), options) for topic in config.inputs}
    _print(reports, config, as_json=as_json)
    raise typer.Exit(0 if all(report.holds for report in reports.values()) else BROKEN)


def is_skipped(reader: ArticleReader, guard: Callable[[str], AbstractContextManager[None]], message: Message) -> bool:
    """Whether `articles.transform` wants no output for an input. Raises BrokerError if its schema is not there."""
    try:
        with guard("reading an article"):
            return isinstance(reader.read(raw_record(message)), Skipped)
    except InvalidArticle:
        return False
    except SchemaPending as pending:
        raise BrokerError(f"{pending}: without it nobody knows whether an input is skipped or lost") from pending


def delete_events(settings: Settings) -> DeleteEvents | None:
    """The rule for delete events; None without one in the settings."""
    if (deleted := settings.articles.deleted) is None:
        return None
    id_at = deleted.id or settings.articles.fields.get("id", "/id")
    return DeleteEvents(deleted.field, deleted.values, id_at if id_at.startswith("/") else None)


def _print(reports: Mapping[str, Report], config: KafkaConfig, *, as_json: bool) -> None:
    if as_json:
        found = {topic: report.as_json() for topic, report in reports.items()}
        whole = found[config.input_topic] if len(found) == 1 else found
        write_line(orjson.dumps(whole, option=orjson.OPT_INDENT_2))
    else:
        for topic, report in reports.items():
            show(report, config.of_input(topic), data_console())


def _verify(config: KafkaConfig, options: VerifyOptions) -> Report:
    with Ticker(remark_console()) as ticker:
        return run_verification(config, options, ticker.show_step_and_time)


def show(report: Report, config: KafkaConfig, console: Console) -> None:
    """Print a report."""
    table = Table("", "check", "checked", "failed", "what is checked, or where it fails")
    for check in report.checks:
        failed = f"{check.failed:,}" if check.failed else ""
        table.add_row(_STATES[check.state], check.name, f"{check.checked:,}", failed, _text(check))
    console.print(table)
    counted = ", ".join(f"{count:,} {name}" for name, count in report.facts.items() if count and name != EARLIER)
    console.print(f"counted: {escape(counted) or 'nothing'}", soft_wrap=True)
    if earlier := report.facts.get(EARLIER):
        console.print(f"{earlier:,} outputs belong to an earlier topic of this name: they are not checked")
    topics = f"{config.input_topic} -> {config.output_topic}, {config.dead_letter_topic}; group {config.group_id}"
    console.print(f"{_verdict(report)}: {escape(topics)}", soft_wrap=True)


def _text(check: Check) -> str:
    if check.state == "ok":
        return escape(check.holds)
    if check.state == "unknown":
        return escape(f"unknown: {check.doubt}")
    more = check.failed - len(check.examples)
    places = ", ".join(map(str, check.examples)) + (f" and {more:,} more" if more else "")
    return f"violated: {escape(check.holds)}\n{escape(places)}"


def _verdict(report: Report) -> str:
    if not report.holds:
        return f"[bold red]the promise is broken[/] ({', '.join(report.failed)})"
    unknown = [check.name for check in report.checks if check.state == "unknown"]
    doubts = f", as far as the topics can tell (unknown: {', '.join(unknown)})" if unknown else ""
    return f"[green]the promise holds[/]{doubts}"


def least_score_of(tasks: Tasks) -> LeastScore:
    """Return a function that knows the thresholds of these tasks. An entity without a task belongs to the only task."""
    heads = {head.task.name: head for head in tasks.heads}
    of_entities = next((head for head in heads.values() if head.listed_in == "entities"), None)

    def least_score(finding: Mapping[str, Any]) -> float:
        head = heads.get(finding["task"]) if "task" in finding else of_entities
        return head.least_score(finding.get("label", "")) if head else 0.0

    return least_score
