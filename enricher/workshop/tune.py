"""`enricher model tune`: throughput over tokens per batch and window length on this machine, and the settings to copy.

Windows are real text, all of one length, so nothing is padded. Cells are measured in rounds, one after the other, so that
other work on the machine affects all of them alike. The median counts.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import numpy as np
import orjson
import typer
from rich.table import Table

from enricher.errors import FatalError, SettingsError
from enricher.worker.commands.console import Ticker, data_console, remark_console
from enricher.worker.inference.device.hardware import default_concurrency, processor_name
from enricher.worker.inference.device.sessions import Device
from enricher.worker.inference.run.advice import advice_for
from enricher.worker.inference.run.engine import OnnxEngine
from enricher.worker.inference.run.model import EMBEDDED, PreparedModel, open_model, prepare_heads
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.records import Article, Batch, Int32Array, Partition, RawRecord, Ticket, TokenizedArticle, Window
from enricher.worker.runtime.devices import Precision
from enricher.worker.settings import load_settings
from enricher.worker.wiring.loaded_tasks import default_batch_tokens
from enricher.workshop.arguments import DeviceOption, FolderArgument, JsonOption
from enricher.workshop.gate.gold import DEFAULT_GOLD, read_gold

NEARLY_AS_FAST = 0.97
"""Two measurements of one cell differ by 3 %. Among all cells that are this close to the fastest, the cell with the
smallest batch is chosen: a small batch returns sooner, and fills sooner under low load."""
_BATCH_TOKENS: dict[Device, tuple[int, ...]] = {
    "cpu": (128, 256, 512, 1024, 2048),
    "cuda": (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072),
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
    out: Annotated[
        Path | None, typer.Option(help="Draw the throughput to this PNG; needs the extra `reports`.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure throughput over tokens per batch, window length and concurrency, and print the settings to copy.

    Nothing is stored: a worker uses its defaults unless you set what is printed. Measure on a machine without other work.
    """
    if out is not None:
        require_matplotlib()
    settings = load_settings()
    cache_dir = settings.model.cache_dir
    model = prepare_heads([open_model(folder)], device=device, precision=precision, cache_dir=cache_dir)
    tokenizer = ArticleTokenizer(model.checkpoint)
    advice = advice_for(model.checkpoint.folder, tokenizer.max_window_tokens)
    window_tokens = settings.batching.max_window_tokens or advice.max_window_tokens
    cells = _cells(model.device, window_tokens, concurrency, batch_tokens)
    with Ticker(remark_console()) as ticker:
        sweep = Sweep(seconds, rounds, lambda cell, done, of: ticker.tick(lambda: _progress(cell, done, of)))
        rows = sweep.run(_engines(model, tokenizer), cells, _text_ids(tokenizer))
    if out is not None:
        processor = processor_name(model.device, model.device_id)
        draw_sweep(rows, f"{model.checkpoint.name}: {model.variant.name} on {processor}", out)
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
    defaults = default_batch_tokens(model), default_concurrency(model.device)
    remark_console().print(compare_default(rows, window_tokens, *defaults))


def _progress(cell: Cell, done: int, of: int) -> str:
    return f"{done} of {of}: windows of {cell.length_tokens}, {cell.batch_tokens} tokens a batch, {cell.concurrency} at once"


Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination. `batch_tokens` is the requested size; a batch has at least one window."""

    concurrency: int
    length_tokens: int
    batch_tokens: int

    @property
    def windows(self) -> int:
        """Windows of a batch."""
        return max(1, self.batch_tokens // self.length_tokens)


@dataclass(frozen=True, slots=True)
class Row:
    """A measured cell: medians over all rounds."""

    concurrency: int
    length_tokens: int
    batch_tokens: int
    windows: int
    tokens_per_s: float
    batch_ms: float


@dataclass(frozen=True, slots=True)
class Sweep:
    """How cells are measured."""

    seconds_per_cell: float
    rounds: int
    progress: Callable[[Cell, int, int], None]
    clock: Clock = time.perf_counter

    def run(self, engines: Callable[[int], OnnxEngine], cells: Sequence[Cell], text_ids: Int32Array) -> list[Row]:
        """Measure all cells. `engines(concurrency)` gives a warm engine; `text_ids` is `int32 [tokens]`, any text.

        A row has the medians of a cell over all rounds.
        """
        figures: dict[Cell, list[tuple[float, float]]] = {cell: [] for cell in cells}
        for done, (_, cell) in enumerate(itertools.product(range(self.rounds), cells), start=1):
            figures[cell].append(self._measure(engines(cell.concurrency), cell, text_ids))
            self.progress(cell, done, self.rounds * len(cells))
        return [
            Row(
                **asdict(cell),
                windows=cell.windows,
                tokens_per_s=statistics.median(rate for rate, _ in rounds),
                batch_ms=statistics.median(batch_ms for _, batch_ms in rounds),
            )
            for cell, rounds in figures.items()
        ]

    def _measure(self, engine: OnnxEngine, cell: Cell, text_ids: Int32Array) -> tuple[float, float]:
        """Tokens per second, and milliseconds from handing a batch to a thread until its labels have returned.

        All threads are busy for `seconds_per_cell`.
        """
        batch = batch_of(cell, text_ids)
        with ThreadPoolExecutor(cell.concurrency) as pool:
            # The first run of a shape is slow, with some providers on each thread.
            list(pool.map(engine.run, [batch] * cell.concurrency))
            began_s = self.clock()
            stop_s = began_s + self.seconds_per_cell
            threads = [pool.submit(self._thread, engine, batch, stop_s) for _ in range(cell.concurrency)]
            took_s = [thread.result() for thread in threads]
            elapsed_s = self.clock() - began_s
        runs = [one for thread in took_s for one in thread]
        return len(runs) * batch.real_tokens / elapsed_s, 1000 * statistics.median(runs)

    def _thread(self, engine: OnnxEngine, batch: Batch, stop_s: float) -> list[float]:
        """Seconds of each run until `stop_s`; at least one run."""
        took_s: list[float] = []
        while not took_s or self.clock() < stop_s:
            began_s = self.clock()
            engine.run(batch)
            took_s.append(self.clock() - began_s)
        return took_s


def batch_of(cell: Cell, text_ids: Int32Array) -> Batch:
    """Consecutive windows of the cell's length; the text repeats if it is too short."""
    ids = np.resize(text_ids, (cell.windows, cell.length_tokens))
    ticket = Ticket(RawRecord(Partition("", 0), 0, None, None), arrived_s=0.0)
    return Batch(tuple(Window(ticket, row, 0, 0, 0, 0, 0.0) for row in ids))


_LINE_STYLES = ("-", "--", ":", "-.")
"""One per concurrency, repeated if there are more."""


def require_matplotlib() -> None:
    """Raise SettingsError without matplotlib, before anything is measured."""
    if find_spec("matplotlib") is None:
        raise SettingsError("--out needs matplotlib: pip install 'kafka-enricher[reports]'")


def draw_sweep(rows: Sequence[Row], title: str, path: Path) -> None:
    """Write a PNG with a line per window length and concurrency. Raises FatalError if the file cannot be written."""
    from matplotlib.figure import Figure  # noqa: PLC0415  of an extra

    figure = Figure((8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    counts, lengths = (sorted({getattr(row, name) for row in rows}) for name in ("concurrency", "length_tokens"))
    for number, length in enumerate(lengths):
        for style, count in enumerate(counts):
            mine = [row for row in rows if (row.length_tokens, row.concurrency) == (length, count)]
            axes.plot(
                [row.batch_tokens for row in mine],
                [row.tokens_per_s for row in mine],
                color=f"C{number}",
                linestyle=_LINE_STYLES[style % len(_LINE_STYLES)],
                marker="o",
                label=f"windows of {length} tokens, {count} at once",
            )
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylim(bottom=0)
    axes.set(title=title, xlabel="tokens per batch", ylabel="tokens per second")
    axes.grid(alpha=0.3)
    axes.legend()
    try:
        figure.savefig(path, format="png", dpi=160)
    except OSError as error:
        raise FatalError(f"the plot cannot be written: {error}") from error
