"""`enricher model evaluate`: how well a model finds the labels that people gave."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer
from rich.markup import escape

from enricher.worker.commands.console import Ticker, data_console, remark_console
from enricher.worker.inference.run.model import open_model, prepare_heads
from enricher.worker.runtime.devices import Precision
from enricher.worker.settings import load_settings
from enricher.worker.telemetry.logs import escape_controls
from enricher.workshop.arguments import DeviceOption, JsonOption, ModelArgument
from enricher.workshop.scores import SCORE_COLUMNS, evaluate, gold_of, score_cells
from enricher.workshop.tables import text_table

if TYPE_CHECKING:
    from enricher.worker.inference.checkpoint.folder import Checkpoint
    from enricher.workshop.gate.gold import GoldSet
    from enricher.workshop.scores import Evaluation


def model_evaluate(
    model: ModelArgument,
    *,
    gold: Annotated[Path, typer.Option(help="Labelled texts as JSON lines; deploy/models.md has the format.")],
    device: DeviceOption = "auto",
    precision: Annotated[Precision, typer.Option(help="Which to measure; `auto`: the worker's choice.")] = "auto",
    as_json: JsonOption = False,
) -> None:
    """Measure precision, recall and F1 of a model on labelled texts, by label and by length.

    An entity counts if start, end and label are all equal. Each figure has a 95 % interval, from a bootstrap over the texts
    that gives the same result each time. Entities are not judged if no text of the gold set has their label.
    """
    checkpoint = open_model(model)
    evaluation = _measure(checkpoint, gold_of([checkpoint.head], gold), device, precision)
    if as_json:
        sys.stdout.write(orjson.dumps(asdict(evaluation), option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        _print(evaluation)


def _measure(checkpoint: Checkpoint, gold: GoldSet, device: str, precision: Precision) -> Evaluation:
    """Prepare the model as a worker does, and evaluate it with progress. Raises ModelError, FatalError."""
    settings = load_settings(log_files=False).model
    prepared = prepare_heads([checkpoint], device=device, precision=precision, cache_dir=settings.cache_dir)
    with Ticker(remark_console()) as ticker:

        def progress(stage: str, done: int, windows: int) -> None:
            ticker.tick(lambda: f"{checkpoint.name}, {stage}: {done:,} of {windows:,} windows")

        return evaluate(prepared, gold, progress)


def _print(evaluation: Evaluation) -> None:
    data_console().print(text_table(SCORE_COLUMNS, map(score_cells, evaluation.scores)))
    remark_console().print(escape(f"{evaluation.model_name} ({evaluation.variant}) on {evaluation.texts:,} texts"))
    for remark in evaluation.remarks:
        remark_console().print(escape(escape_controls(remark)))
