"""`enricher model compare`: what changes when one model replaces another, before it does."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer
from rich.markup import escape

from enricher.errors import SettingsError
from enricher.worker.build.article_readers import line_reader
from enricher.worker.build.kafka_clients import kafka_config
from enricher.worker.commands.bounds import FORMS, Bound, require_forward
from enricher.worker.commands.console import Ticker, data_console, remark_console
from enricher.worker.commands.one_input import InputOption, with_one_input
from enricher.worker.inference.run.model import open_model
from enricher.worker.settings import load_settings
from enricher.worker.telemetry.logs import escape_controls
from enricher.workshop.arguments import JsonOption, ModelArgument
from enricher.workshop.comparison.figures import (
    CHANGE_COLUMNS,
    COLUMNS,
    COST_COLUMNS,
    change_cells,
    compare,
    cost_cells,
    judge,
    row_cells,
)
from enricher.workshop.comparison.model_answers import answers_in_records, run_model
from enricher.workshop.comparison.offset_ranges import ranges_of
from enricher.workshop.comparison.sampling import (
    articles_behind,
    file_sample,
    live_sample,
    topic_sample,
    written_records,
)
from enricher.workshop.evaluate import measure
from enricher.workshop.scores import gold_of, require_labels
from enricher.workshop.tables import text_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enricher.worker.build.workers import ReaderOf
    from enricher.worker.inference.checkpoint.folder import Checkpoint
    from enricher.worker.kafka.reading.ranges import Progress
    from enricher.worker.settings import Settings
    from enricher.workshop.comparison.figures import Comparison, Verdict
    from enricher.workshop.comparison.model_answers import Answers
    from enricher.workshop.comparison.sampling import Sample, Written
    from enricher.workshop.scores import Evaluation

CHANGED = 13
"""The exit code if more changes than is allowed."""
_MOST = 20_000
_LOWEST_PRIORITY = 19
"""Beside a thread of a live worker it gets 15 parts of the processor in 1,039 (Linux, sched_prio_to_weight)."""

_Articles = Annotated[Path | None, typer.Option(help="JSON lines, as `enricher enrich` reads them.")]
_Topic = Annotated[bool, typer.Option("--topic", help="Articles of the input topic, see --from, --to, --max.")]
_AgainstOutput = Annotated[
    bool,
    typer.Option("--against-output", help="Compare the records in the output topic with the only model that is named."),
]
_Follow = Annotated[
    float | None,
    typer.Option(min=0.1, max=86_400, metavar="SECONDS", help="Articles that arrive within SECONDS from now on."),
]
_From = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="WHEN", help=f"The first records from there on: {FORMS}. Default: the last records."
    ),
]
_To = Annotated[str | None, typer.Option("--to", metavar="WHEN", help="Only records before that: the same forms.")]
_Max = Annotated[int, typer.Option("--max", min=1, max=_MOST, help="Compare at most so many articles.")]
_Gold = Annotated[
    Path | None, typer.Option(help="Also measure precision, recall and F1 of both on these labelled texts.")
]
_Rename = Annotated[
    list[str] | None, typer.Option(metavar="B=A", help="Label B of the new model is A's label A; may be repeated.")
]
_Task = Annotated[str | None, typer.Option(help="With --against-output: the task whose findings are compared.")]
_MaxLost = Annotated[float | None, typer.Option(min=0, max=1, help="Fail if a larger share of A's findings is lost.")]
_MaxRelabelled = Annotated[
    float | None, typer.Option(min=0, max=1, help="Fail if a larger share of A's findings is relabelled.")
]
_Examples = Annotated[
    bool, typer.Option("--examples", help="Show the words of some changes. They are text of articles.")
]


def model_compare(  # noqa: PLR0913  one for each option
    a: ModelArgument,
    b: Annotated[str | None, typer.Argument(help="The model that is to replace it.")] = None,
    *,
    articles: _Articles = None,
    topic: _Topic = False,
    against_output: _AgainstOutput = False,
    follow: _Follow = None,
    begin: _From = None,
    end: _To = None,
    most: _Max = 1000,
    gold: _Gold = None,
    rename: _Rename = None,
    task: _Task = None,
    input_topic: InputOption = None,
    max_lost: _MaxLost = None,
    max_relabelled: _MaxRelabelled = None,
    examples: _Examples = False,
    as_json: JsonOption = False,
) -> None:
    """Show what changes when model B replaces model A: findings lost, gained, relabelled and moved, with intervals.

    Exactly one of --articles, --topic, --against-output and --follow names the articles. Both models run in the worker's
    pipeline with its settings. Topics are read without joining a group; nothing is committed or written.

    Exit codes: 0, 13 if more is lost or relabelled than --max-lost and --max-relabelled allow, 1 to 4 for errors.
    """
    asked = _Asked(
        articles,
        follow,
        None if begin is None else Bound.parse("--from", begin),
        None if end is None else Bound.parse("--to", end),
        most,
        topic=topic,
        against_output=against_output,
    )
    _check_arguments(asked, b, gold)
    if asked.follow_s is not None:
        _lower_priority()
    settings, renamed = load_settings(), _parse_renames(rename or [])
    if articles is None:
        settings = with_one_input(settings, input_topic)
    models = [_Named(each, open_model(each)) for each in ([a] if b is None else [a, b])]
    require_labels([each.checkpoint.head for each in models])
    scores = _scores(settings, [each.checkpoint for each in models], gold)
    answers, remarks = _answers(settings, asked, models, task)
    comparison = compare(*answers, renamed, examples=examples)
    verdict = judge(comparison, max_lost, max_relabelled)
    result = Result(comparison, verdict, scores, (*remarks, *comparison.remarks))
    if as_json:
        sys.stdout.write(orjson.dumps(asdict(result), option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        _print(result)
    if verdict is not None and not verdict.passed:
        raise typer.Exit(CHANGED)


@dataclass(frozen=True, slots=True)
class Result:
    """The object that `--json` prints."""

    comparison: Comparison
    verdict: Verdict | None
    scores: tuple[Evaluation, ...]
    """Two, of A and B, if there is a gold set."""
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Asked:
    """The articles that were asked for: exactly one of `articles`, `follow_s`, `topic` and `against_output` is set."""

    articles: Path | None
    follow_s: float | None
    begin: Bound | None
    end: Bound | None
    most: int
    topic: bool
    against_output: bool


@dataclass(frozen=True, slots=True)
class _Named:
    """A model with its name on the command line. It is opened before anything is read, so that errors come early."""

    source: str
    checkpoint: Checkpoint


def _check_arguments(asked: _Asked, b: str | None, gold: Path | None) -> None:
    """Raise SettingsError for arguments that contradict each other."""
    sources = [asked.articles is not None, asked.follow_s is not None, asked.topic, asked.against_output]
    message = None
    if sum(sources) != 1:
        message = "name one of --articles, --topic, --against-output and --follow"
    elif (asked.begin or asked.end) and not (asked.topic or asked.against_output):
        message = "--from and --to are for --topic and --against-output"
    elif asked.against_output == (b is not None):
        message = "name two models, A and B; with --against-output only the new one"
    elif gold is not None and asked.against_output:
        message = "--gold measures two models, and --against-output has only one"
    if message:
        raise SettingsError(message)
    require_forward(asked.begin, asked.end, datetime.now(UTC))


def _parse_renames(rename: Sequence[str]) -> dict[str, str]:
    """A's labels by B's names for them. Raises SettingsError."""
    pairs = [each.partition("=") for each in rename]
    if wrong := [each for each, pair in zip(rename, pairs, strict=True) if not (pair[0] and pair[2])]:
        raise SettingsError(f"--rename {wrong[0]}: write B=A, the label of the new model and that of the other")
    return {label: other for label, _, other in pairs}


def _scores(settings: Settings, checkpoints: Sequence[Checkpoint], gold: Path | None) -> tuple[Evaluation, ...]:
    if gold is None:
        return ()
    found, model = gold_of([each.head for each in checkpoints], gold), settings.model
    return tuple(measure(each, found, model.device, model.precision) for each in checkpoints)


def _answers(
    settings: Settings, asked: _Asked, models: Sequence[_Named], task: str | None
) -> tuple[tuple[Answers, Answers], Sequence[str]]:
    """The answers of both about the same articles, and remarks on the articles. Raises FatalError."""
    with Ticker(remark_console()) as ticker:
        sample, written = _sample(settings, asked, ticker.show_step)
    if not sample.records:
        raise SettingsError("; ".join(["there are no articles to compare", *sample.remarks]))
    # Lines of a file have neither keys nor headers.
    reader: ReaderOf | None = (lambda _: line_reader(settings)) if asked.articles else None
    ran = []
    for each in models:
        remark_console().print(escape(f"{each.source}: {len(sample.records):,} articles ..."))
        ran.append(run_model(settings, each.checkpoint, each.source, sample.records, reader))
    if written is not None:
        ran.insert(0, answers_in_records(written.records, sample.records, models[0].checkpoint.head.kind, task))
    return (ran[0], ran[1]), sample.remarks


def _sample(settings: Settings, asked: _Asked, progress: Progress) -> tuple[Sample, Written | None]:
    """The articles, and with `--against-output` the records that workers wrote about them."""
    if asked.articles is not None:
        return file_sample(asked.articles, asked.most), None
    config = kafka_config(settings)
    if asked.follow_s is not None:
        remark_console().print(f"following {config.input_topic} for {asked.follow_s:g} s ...", markup=False)
        return live_sample(config, config.input_topic, asked.follow_s, asked.most), None
    topic = config.output_topic if asked.against_output else config.input_topic
    ranges = ranges_of(config, topic, asked.begin, asked.end, asked.most)
    if not asked.against_output:
        return topic_sample(config, topic, ranges, asked.most, progress), None
    written = written_records(config, ranges, asked.most, progress)
    return articles_behind(config, written, progress), written


def _lower_priority() -> None:
    """Leave the processor to live workers on this machine. Threads that start later inherit the priority."""
    if nice := getattr(os, "nice", None):  # not on Windows
        nice(_LOWEST_PRIORITY)


def _print(result: Result) -> None:
    console, found = data_console(), result.comparison
    console.print(text_table(COLUMNS, map(row_cells, found.rows)))
    if found.frequent:
        console.print(text_table(CHANGE_COLUMNS, map(change_cells, found.frequent)))
    console.print(text_table(COST_COLUMNS, map(cost_cells, (found.model_a, found.model_b))))
    for each_scores in result.scores:
        console.print(escape(f"{each_scores.model_name} on {each_scores.gold_name}: F1 {each_scores.overall.f1}"))
    remarks = remark_console()
    for line in (*result.remarks, *(result.verdict.reasons if result.verdict else ())):
        remarks.print(escape(escape_controls(line)))
    if result.verdict:
        remarks.print("passed" if result.verdict.passed else "failed")
