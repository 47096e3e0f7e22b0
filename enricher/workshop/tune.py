"""`enricher model tune`: measures on this machine how large batches should be and how many should run at once."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import onnxruntime as ort
import typer
from rich.markup import escape
from rich.table import Table

from enricher.worker.commands.console import Ticker, data_console, remark_console
from enricher.worker.inference.device.cores import available_cores, default_concurrency
from enricher.worker.inference.device.processor import processor_name
from enricher.worker.inference.run.advice import advice_for
from enricher.worker.inference.run.engine import OnnxEngine
from enricher.worker.inference.run.model import EMBEDDED, PreparedModel
from enricher.worker.inference.run.selection import cache_folder
from enricher.worker.inference.run.tuning import Tuning, TuningRow, write_tuning
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.records import Article, TokenizedArticle
from enricher.worker.rules.batch_rules import BatchRules
from enricher.worker.runtime.devices import Precision
from enricher.worker.settings import Settings, load_settings
from enricher.workshop.arguments import DeviceOption, DryRunOption, UndoOption
from enricher.workshop.freshness import early_overhead
from enricher.workshop.gate.gold import DEFAULT_GOLD, read_gold
from enricher.workshop.recommend import bucket_edges, overhead_tokens, recommend, why_not_fastest
from enricher.workshop.result_files import remove_results, write_result
from enricher.workshop.simulator import EngineModel
from enricher.workshop.sweep import Cell, Sweep
from enricher.workshop.sweep_plot import draw_sweep, require_matplotlib
from enricher.workshop.targets import Target, targets

if TYPE_CHECKING:
    from enricher.worker.inference.device.session import Device
    from enricher.worker.records import Int32Array

_BATCH_TOKENS: dict[str, tuple[int, ...]] = {
    "cpu": (128, 256, 512, 1024, 2048),
    "cuda": (1024, 2048, 4096, 8192, 16384, 32768),
}
_LENGTHS_TOKENS = (32, 64, 128, 256, 512)
_COLUMNS = ("window, tokens", "concurrency", "batch, tokens", "windows", "tokens per second", "batch, ms")


def model_tune(  # noqa: PLR0913  the options of the command
    folder: Annotated[
        str | None,
        typer.Argument(
            metavar="[DIR]",
            help=f"Folder of a model, or `{EMBEDDED}`, which is built in. Default: the passes of the settings' tasks.",
        ),
    ] = None,
    *,
    task: Annotated[
        str | None, typer.Option(help="A task of the settings: measure only the pass that it is in, with all heads.")
    ] = None,
    device: DeviceOption = "auto",
    precision: Annotated[Precision, typer.Option(help="Which to measure; `auto`: the worker's choice.")] = "auto",
    concurrency: Annotated[
        list[int] | None, typer.Option(min=1, max=64, help="How many runs at once to try; may be repeated.")
    ] = None,
    batch_tokens: Annotated[
        list[int] | None, typer.Option(min=16, help="Tokens per batch to try; may be repeated.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.0, help="Seconds per combination and round.")] = 0.4,
    rounds: Annotated[int, typer.Option(min=1, help="How many rounds over all combinations; the medians count.")] = 3,
    force: Annotated[
        bool, typer.Option("--force", help="Write the result although other work kept the machine busy.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the throughput to this PNG; needs kafka-enricher[reports].")
    ] = None,
    dry_run: DryRunOption = False,
    undo: UndoOption = False,
) -> None:
    """Measure throughput and batch time over batch size, window length and concurrency; recommend settings.

    The recommendation is written to the cache, and workers with the same cache use it as default from their next start on;
    --undo removes it.
    """
    if plot is not None:
        require_matplotlib()
    settings = load_settings()
    chosen = targets(folder, task, precision, settings)
    for each in chosen:
        if undo:
            remove_results(cache_folder(each.checkpoints[0], settings.model.cache_dir), "tuning-*")
            continue
        if len(chosen) > 1:
            remark_console().print(escape(f"the pass of {each.name}:"))
        tuning = _measure(each, settings, device, _Asked(concurrency, batch_tokens, seconds, rounds))
        _print(tuning)
        if plot is not None:
            draw_sweep(tuning.rows, f"{tuning.model_name}: {tuning.variant} on {tuning.processor}", plot)
        _write(tuning, cache_folder(each.checkpoints[0], settings.model.cache_dir), dry_run=dry_run, force=force)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The options: values to try, and how long to measure."""

    concurrency: Sequence[int] | None
    batch_tokens: Sequence[int] | None
    seconds: float
    rounds: int


def _measure(target: Target, settings: Settings, device: str, asked: _Asked) -> Tuning:
    load = _load_average()  # before our own work
    model = target.prepare(device, settings)
    tokenizer = ArticleTokenizer(model.checkpoint)
    window_tokens = _window_tokens(model, tokenizer, target.window_tokens)
    cells = _cells(model.device, window_tokens, asked.concurrency, asked.batch_tokens)
    with Ticker(remark_console()) as ticker:
        sweep = Sweep(
            asked.seconds, asked.rounds, lambda cell, done, of: ticker.tick(lambda: _progress(cell, done, of))
        )
        measurements = sweep.run(_engines(model, tokenizer), cells, _text_ids(tokenizer))
    return _tuning(model, window_tokens, measurements, load)


def _write(tuning: Tuning, in_cache: Path, *, dry_run: bool, force: bool) -> None:
    """Write the tuning, unless this is a dry run, or other work disturbed the measurement and `force` is off."""
    console = remark_console()
    busy = tuning.load_before is not None and tuning.load_before > tuning.cores / 2
    if busy:
        console.print(
            f"other work kept {tuning.load_before:.1f} of {tuning.cores} cores busy: measure again when the machine is idle"
        )
    if dry_run or (busy and not force):
        console.print(f"not written ({'--dry-run' if dry_run else 'to write it anyway: --force'})")
        return
    path = write_result(in_cache, lambda folder: write_tuning(folder, tuning), "the tuning")
    console.print(f"written: {escape(str(path))}")
    console.print(
        "On machines like this one, workers with this cache use it from their next start on. To remove it: --undo"
    )


def _cells(
    device: Device, window_tokens: int, concurrency: Sequence[int] | None, batch_tokens: Sequence[int] | None
) -> list[Cell]:
    """The combinations to measure. Batches smaller than a window are one window each, so one such cell is enough."""
    counts = sorted(set(concurrency or (1, default_concurrency(device))))
    lengths = [*[length for length in _LENGTHS_TOKENS if length < window_tokens][-2:], window_tokens]
    combinations = itertools.product(counts, lengths, sorted(set(batch_tokens or _BATCH_TOKENS[device])))
    cells = [Cell(*each) for each in combinations if each[2] >= each[1]]
    return cells or [Cell(count, window_tokens, window_tokens) for count in counts]


def _engines(model: PreparedModel, tokenizer: ArticleTokenizer) -> Callable[[int], OnnxEngine]:
    """A function that opens the engine for each concurrency once."""

    @cache
    def engine(concurrency: int) -> OnnxEngine:
        return OnnxEngine(model, threads_per_run=1, pad_id=tokenizer.pad_id, concurrency=concurrency)

    return engine


def _window_tokens(model: PreparedModel, tokenizer: ArticleTokenizer, of_task: int | None) -> int:
    """The length of a worker's windows: from the task, else from the settings, else from the model's advice."""
    advised = advice_for(model.checkpoint.folder, tokenizer.max_window_tokens).max_window_tokens
    own = of_task or load_settings(log_files=False).batching.max_window_tokens
    return min(own or advised, tokenizer.max_window_tokens)


def _text_ids(tokenizer: ArticleTokenizer) -> Int32Array:
    """The default gold set as one sequence of tokens."""
    text = " ".join(each.text for each in read_gold(DEFAULT_GOLD).texts)
    (tokens,) = tokenizer.tokenize([Article("text", "", text)])
    assert isinstance(tokens, TokenizedArticle), "the default gold set is well-formed"
    return tokens.fields[1].ids


def _tuning(model: PreparedModel, window_tokens: int, measurements: Sequence[TuningRow], load: float | None) -> Tuning:
    best = recommend(measurements, window_tokens)
    overhead = overhead_tokens(measurements, best.concurrency)
    edges = bucket_edges(window_tokens, overhead)
    rules = BatchRules(edges, best.batch_tokens, load_settings(log_files=False).batching.max_wait_ms / 1000, overhead)
    early, freshness = early_overhead(rules, _engine_model(model, best, overhead))
    return Tuning(
        model_name=model.checkpoint.name,
        model_digest=model.checkpoint.digest,
        variant=model.variant.name,
        device=model.device,
        provider=model.provider,
        processor=processor_name(model.device, model.device_id),
        cores=available_cores(),
        load_before=load,
        onnxruntime=ort.__version__,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        window_tokens=window_tokens,
        rows=tuple(measurements),
        concurrency=best.concurrency,
        max_batch_tokens=best.batch_tokens,
        run_overhead_tokens=overhead,
        bucket_edges=edges,
        early_overhead=early,
        freshness=freshness,
    )


def _engine_model(model: PreparedModel, best: TuningRow, overhead: int) -> EngineModel:
    """An engine on which the recommended batch takes the measured time, part of it fixed."""
    tokens_per_s = (best.windows * best.length_tokens + overhead) / (best.batch_ms / 1000)
    return EngineModel(best.concurrency, tokens_per_s, overhead, padding_cost=0.0 if model.variant.packs else 1.0)


def _print(tuning: Tuning) -> None:
    console = data_console()
    table = Table(*_COLUMNS)
    for row in tuning.rows:
        table.add_row(*_cells_of(row))
    console.print(table)
    for name, value in settings_of(tuning).items():
        console.print(f"{name}={escape(value)}", soft_wrap=True)
    best = recommend(tuning.rows, tuning.window_tokens)
    for sentence in (why_not_fastest(tuning.rows, best), _early_batches(tuning)):
        if sentence:
            remark_console().print(sentence)


def _progress(cell: Cell, done: int, of: int) -> str:
    return f"{done} of {of}: windows of {cell.length_tokens}, {cell.batch_tokens} tokens a batch, {cell.concurrency} at once"


def _load_average() -> float | None:
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None


def settings_of(tuning: Tuning) -> dict[str, str]:
    """The recommendation as environment variables."""
    settings = {
        "ENRICHER_MODEL__CONCURRENCY": str(tuning.concurrency),
        "ENRICHER_BATCHING__MAX_BATCH_TOKENS": str(tuning.max_batch_tokens),
        "ENRICHER_BATCHING__RUN_OVERHEAD_TOKENS": str(tuning.run_overhead_tokens),
        "ENRICHER_BATCHING__BUCKET_EDGES": str(list(tuning.bucket_edges)),
    }
    if tuning.early_overhead is not None:
        settings["ENRICHER_BATCHING__EARLY_OVERHEAD"] = f"{tuning.early_overhead:g}"
    return settings


def _early_batches(tuning: Tuning) -> str:
    """Whether early batches pay, in sentences; empty for files of older versions."""
    if not tuning.freshness:
        return ""
    low, new_low, half, new_half = tuning.freshness
    cost = new_half.thread_ms / half.thread_ms - 1
    verdict = "Early batches pay here" if tuning.early_overhead else "Early batches do not pay here"
    return (
        f"{verdict} (simulated with these costs of a run, headlines that come at random). With early_overhead="
        f"{new_low.early_overhead:g} instead of 0, half of them are done within {new_low.p50_ms:.1f} ms instead of "
        f"{low.p50_ms:.1f} at {low.load:.0%} load, and within {new_half.p50_ms:.1f} ms instead of {half.p50_ms:.1f} at "
        f"{half.load:.0%}, where each takes {cost:+.1%} of thread time."
    )


def _cells_of(row: TuningRow) -> list[str]:
    """A measurement as text, a cell for each of `_COLUMNS`."""
    return [
        f"{row.length_tokens}",
        f"{row.concurrency}",
        f"{row.batch_tokens:,}",
        f"{row.windows:,}",
        f"{row.tokens_per_s:,.0f}",
        f"{row.batch_ms:.1f}",
    ]
