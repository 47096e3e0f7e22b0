"""`enricher model tune`: throughput over tokens per batch and window length on this machine, and the settings to copy."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer
from rich.table import Table

from enricher.worker.commands.console import Ticker, data_console, remark_console
from enricher.worker.inference.device.cores import default_concurrency
from enricher.worker.inference.device.processor import processor_name
from enricher.worker.inference.run.advice import advice_for
from enricher.worker.inference.run.engine import OnnxEngine
from enricher.worker.inference.run.model import EMBEDDED, PreparedModel, open_model, prepare_heads
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.records import Article, TokenizedArticle
from enricher.worker.runtime.devices import Precision
from enricher.worker.settings import Settings, load_settings
from enricher.worker.wiring.loaded_tasks import default_batch_tokens
from enricher.workshop.arguments import DeviceOption, FolderArgument, JsonOption
from enricher.workshop.gate.gold import DEFAULT_GOLD, read_gold
from enricher.workshop.sweep import Cell, Sweep
from enricher.workshop.sweep_plot import draw_sweep, require_matplotlib

if TYPE_CHECKING:
    from enricher.worker.inference.device.session import Device
    from enricher.worker.records import Int32Array
    from enricher.workshop.sweep import Row

NEARLY_AS_FAST = 0.97
"""Two measurements of one cell differ by 3 %. Of all cells that are this close to the fastest, the one with the smallest
batch is taken: it returns sooner, and fills sooner under low load."""
_BATCH_TOKENS: dict[Device, tuple[int, ...]] = {
    "cpu": (128, 256, 512, 1024, 2048),
    "cuda": (1024, 2048, 4096, 8192, 16384, 32768, 65536),
}
_LENGTHS_TOKENS = (32, 64, 128, 256, 512)
_COLUMNS = ("window, tokens", "concurrency", "batch, tokens", "windows", "tokens per second", "batch, ms")


def model_tune(  # noqa: PLR0913  the options of the command
    folder: FolderArgument = EMBEDDED,
    *,
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
    plot: Annotated[
        Path | None, typer.Option(help="Draw the throughput to this PNG; needs kafka-enricher[reports].")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure throughput over tokens per batch, window length and concurrency, and print the settings to copy.

    Nothing is stored: a worker uses its defaults unless you set what is printed. Measure on a machine without other work.
    """
    if plot is not None:
        require_matplotlib()
    settings = load_settings()
    model = prepare_model(folder, device, precision, settings)
    tokenizer = ArticleTokenizer(model.checkpoint)
    advice = advice_for(model.checkpoint.folder, tokenizer.max_window_tokens)
    window_tokens = settings.batching.max_window_tokens or advice.max_window_tokens
    cells = _cells(model.device, window_tokens, concurrency, batch_tokens)
    with Ticker(remark_console()) as ticker:
        sweep = Sweep(seconds, rounds, lambda cell, done, of: ticker.tick(lambda: _progress(cell, done, of)))
        rows = sweep.run(_engines(model, tokenizer), cells, _text_ids(tokenizer))
    if plot is not None:
        processor = processor_name(model.device, model.device_id)
        draw_sweep(rows, f"{model.checkpoint.name}: {model.variant.name} on {processor}", plot)
    if as_json:
        sys.stdout.write(orjson.dumps([asdict(row) for row in rows], option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        _print(rows, window_tokens, model)


def best_row(rows: Sequence[Row], window_tokens: int) -> Row:
    """The smallest batch, then the lowest concurrency, that is nearly the fastest on windows of the model's length."""
    mine = _of_usual_length(rows, window_tokens)
    most = max(each.tokens_per_s for each in mine)
    fast = [each for each in mine if each.tokens_per_s >= NEARLY_AS_FAST * most]
    return min(fast, key=lambda each: (each.batch_tokens, each.concurrency))


def compare_default(rows: Sequence[Row], window_tokens: int, batch_tokens: int, concurrency: int) -> str:
    """How fast the defaults are beside the fastest row, in a sentence."""
    mine = _of_usual_length(rows, window_tokens)
    most = max(each.tokens_per_s for each in mine)
    for each in mine:
        if (each.batch_tokens, each.concurrency) == (batch_tokens, concurrency):
            share = each.tokens_per_s / most
            return (
                f"The defaults, {batch_tokens} tokens and {concurrency} at once, reach {share:.1%} of the fastest row."
            )
    return f"The defaults, {batch_tokens} tokens and {concurrency} at once, were not measured."


def _of_usual_length(rows: Sequence[Row], window_tokens: int) -> list[Row]:
    usual = min((each.length_tokens for each in rows), key=lambda length: abs(length - window_tokens))
    return [each for each in rows if each.length_tokens == usual]


def prepare_model(folder: str, device: str, precision: Precision, settings: Settings) -> PreparedModel:
    """Prepare the model as a worker with these settings would. Raises ModelError."""
    wanted = settings.model
    return prepare_heads(
        [open_model(folder)],
        device=device,
        precision=precision,
        cache_dir=wanted.cache_dir,
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


def _text_ids(tokenizer: ArticleTokenizer) -> Int32Array:
    """The default gold set as one sequence of tokens."""
    text = " ".join(each.text for each in read_gold(DEFAULT_GOLD).texts)
    (tokens,) = tokenizer.tokenize([Article("text", "", text)])
    assert isinstance(tokens, TokenizedArticle), "the default gold set is well-formed"
    return tokens.fields[1].ids


def _print(rows: Sequence[Row], window_tokens: int, model: PreparedModel) -> None:
    table = Table(*_COLUMNS)
    for row in rows:
        table.add_row(
            f"{row.length_tokens}",
            f"{row.concurrency}",
            f"{row.batch_tokens:,}",
            f"{row.windows:,}",
            f"{row.tokens_per_s:,.0f}",
            f"{row.batch_ms:.1f}",
        )
    best = best_row(rows, window_tokens)
    data_console().print(table)
    data_console().print(f"ENRICHER_BATCHING__MAX_BATCH_TOKENS={best.batch_tokens}")
    data_console().print(f"ENRICHER_MODEL__CONCURRENCY={best.concurrency}")
    defaults = default_batch_tokens(model.variant), default_concurrency(model.device)
    remark_console().print(compare_default(rows, window_tokens, *defaults))


def _progress(cell: Cell, done: int, of: int) -> str:
    return f"{done} of {of}: windows of {cell.length_tokens}, {cell.batch_tokens} tokens a batch, {cell.concurrency} at once"
