"""`enricher model compare`: what changes when one model replaces another, before it does."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer
from rich.markup import escape

from enricher.errors import SettingsError
from enricher.worker.commands.console import Ticker, data_console, remark_console
from enricher.worker.commands.topic_options import InputOption, with_one_input
from enricher.worker.inference.run.model import open_model
from enricher.worker.settings import load_settings
from enricher.worker.telemetry.logs import escape_controls
from enricher.worker.wiring.formats import line_reader
from enricher.worker.wiring.kafka_clients import kafka_config
from enricher.workshop.arguments import JsonOption, ModelArgument
from enricher.workshop.comparison.figures import COLUMNS, compare, judge
from enricher.workshop.comparison.model_answers import run_model
from enricher.workshop.comparison.sampling import file_sample, live_sample, newest_sample
from enricher.workshop.scores import require_labels
from enricher.workshop.tables import text_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enricher.worker.settings import Settings
    from enricher.worker.wiring.formats import ReaderOf
    from enricher.workshop.comparison.figures import Comparison, Verdict
    from enricher.workshop.comparison.sampling import Sample

CHANGED = 13
"""The exit code if more changes than is allowed."""
_MOST = 20_000
_LOWEST_PRIORITY = 19
"""Beside a thread of a live worker it gets 15 parts of the processor in 1,039 (Linux, sched_prio_to_weight)."""

_Articles = Annotated[Path | None, typer.Option(help="JSON lines, as `enricher enrich` reads them.")]
_Topic = Annotated[bool, typer.Option("--topic", help="The newest articles of the input topic.")]
_Follow = Annotated[
    float | None,
    typer.Option(min=0.1, max=86_400, metavar="SECONDS", help="Articles that arrive within SECONDS from now on."),
]
_Max = Annotated[int, typer.Option("--max", min=1, max=_MOST, help="Compare at most so many articles.")]
_Rename = Annotated[
    list[str] | None, typer.Option(metavar="B=A", help="Label B of the new model is A's label A; may be repeated.")
]
_MaxLost = Annotated[float | None, typer.Option(min=0, max=1, help="Fail if a larger share of A's findings is lost.")]
_MaxRelabelled = Annotated[
    float | None, typer.Option(min=0, max=1, help="Fail if a larger share of A's findings is relabelled.")
]
_Examples = Annotated[
    bool, typer.Option("--examples", help="Show the words of some changes. They are text of articles.")
]


def model_compare(  # noqa: PLR0913  one for each option
    a: ModelArgument,
    b: Annotated[str, typer.Argument(help="The model that is to replace it.")],
    *,
    articles: _Articles = None,
    topic: _Topic = False,
    follow: _Follow = None,
    most: _Max = 1000,
    rename: _Rename = None,
    input_topic: InputOption = None,
    max_lost: _MaxLost = None,
    max_relabelled: _MaxRelabelled = None,
    examples: _Examples = False,
    as_json: JsonOption = False,
) -> None:
    """Show what changes when model B replaces model A: findings lost, gained, relabelled and moved, by label.

    Exactly one of --articles, --topic and --follow names the articles. Both models run in the worker's pipeline with its
    settings. Topics are read without joining a group; nothing is committed or written.

    Exit codes: 0, 13 if more is lost or relabelled than --max-lost and --max-relabelled allow, 1 to 4 for errors.
    """
    if (articles is not None) + topic + (follow is not None) != 1:
        raise SettingsError("name one of --articles, --topic and --follow")
    if follow is not None:
        _lower_priority()
    settings, renamed = load_settings(), _parse_renames(rename or [])
    if articles is None:
        settings = with_one_input(settings, input_topic)
    checkpoints = [open_model(source) for source in (a, b)]  # before anything is read, so that errors come early
    require_labels([each.head for each in checkpoints])
    sample = _sample(settings, articles, follow, most)
    # Lines of a file have neither keys nor headers.
    reader: ReaderOf | None = (lambda _: line_reader(settings)) if articles else None
    answers = []
    for source, checkpoint in zip((a, b), checkpoints, strict=True):
        remark_console().print(escape(f"{source}: {len(sample.records):,} articles ..."))
        answers.append(run_model(settings, checkpoint, source, sample.records, reader))
    comparison = compare(answers[0], answers[1], renamed, examples=examples)
    verdict, remarks = judge(comparison, max_lost, max_relabelled), (*sample.remarks, *comparison.remarks)
    if as_json:
        models = [{"name": each.name, "digest": each.digest, "precision": each.precision} for each in answers]
        facts = {"models": models, **asdict(comparison), "remarks": remarks, "verdict": verdict}
        sys.stdout.write(orjson.dumps(facts, option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        _print(comparison, verdict, remarks)
    if verdict is not None and not verdict.passed:
        raise typer.Exit(CHANGED)


def _parse_renames(rename: Sequence[str]) -> dict[str, str]:
    """A's labels by B's names for them. Raises SettingsError."""
    pairs = [each.partition("=") for each in rename]
    if wrong := [each for each, pair in zip(rename, pairs, strict=True) if not (pair[0] and pair[2])]:
        raise SettingsError(f"--rename {wrong[0]}: write B=A, the label of the new model and that of the other")
    return {label: other for label, _, other in pairs}


def _sample(settings: Settings, articles: Path | None, follow_s: float | None, most: int) -> Sample:
    """The articles that were asked for. Raises SettingsError if there are none, FatalError."""
    if articles is not None:
        sample = file_sample(articles, most)
    elif follow_s is not None:
        remark_console().print(f"following the input topic for {follow_s:g} s ...")
        sample = live_sample(kafka_config(settings), follow_s, most)
    else:
        with Ticker(remark_console()) as ticker:
            sample = newest_sample(kafka_config(settings), most, ticker.show_step)
    if not sample.records:
        raise SettingsError("; ".join(["there are no articles to compare", *sample.remarks]))
    return sample


def _lower_priority() -> None:
    """Leave the processor to live workers on this machine. Threads that start later inherit the priority."""
    if nice := getattr(os, "nice", None):  # not on Windows
        nice(_LOWEST_PRIORITY)


def _print(comparison: Comparison, verdict: Verdict | None, remarks: Sequence[str]) -> None:
    console, said = data_console(), remark_console()
    console.print(text_table(COLUMNS, (row.cells for row in comparison.rows)))
    for row in comparison.rows:
        for kind, texts in row.examples.items():
            for text in texts:
                console.print(escape(escape_controls(f"{kind}: {text}")))
    said.print(f"{comparison.changed_articles:,} of {comparison.articles:,} articles change")
    for line in (*remarks, *(verdict.reasons if verdict else ())):
        said.print(escape(escape_controls(line)))
    if verdict:
        said.print("passed" if verdict.passed else "failed")
