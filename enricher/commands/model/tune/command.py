"""The command `model tune`: opens the model as a worker does, sweeps, recommends, writes."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from enricher.commands.console import Ticker, data_console, remark_console
from enricher.commands.model.arguments import EMBEDDED, DeviceOption, FolderArgument, Precision
from enricher.commands.model.kept import DryRunOption, UndoOption, folder_in_cache, remove_kept
from enricher.commands.model.pages.tuning import tuning_page
from enricher.commands.model.tune.recommend import bucket_edges, overhead_tokens, recommended, rows_of
from enricher.commands.model.tune.sweep import Cell, Measurement, Sweep
from enricher.settings import load_settings

if TYPE_CHECKING:
    from enricher.inference.device.session import Device
    from enricher.inference.run.engine import OnnxEngine
    from enricher.inference.run.model import PreparedModel
    from enricher.inference.run.tuning import Tuning
    from enricher.inference.tokenizer.articles import ArticleTokenizer
    from enricher.records import Int32Array

_BATCH_TOKENS: dict[str, tuple[int, ...]] = {
    "cpu": (128, 256, 512, 1024, 2048),
    "cuda": (1024, 2048, 4096, 8192, 16384, 32768),
}
_LENGTHS_TOKENS = (32, 64, 128, 256, 512)


def model_tune(  # noqa: PLR0913  the command line's own
    folder: FolderArgument = EMBEDDED,
    *,
    device: DeviceOption = "auto",
    precision: Annotated[Precision, typer.Option(help="Which to measure; `auto`: what a worker would take.")] = "auto",
    concurrency: Annotated[
        list[int] | None, typer.Option(min=1, max=64, help="Runs at once to try; may be repeated.")
    ] = None,
    batch_tokens: Annotated[list[int] | None, typer.Option(min=16, help="Batches to try; may be repeated.")] = None,
    seconds: Annotated[float, typer.Option(min=0.0, help="Seconds for each combination and round.")] = 0.4,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds over all combinations; medians count.")] = 3,
    force: Annotated[
        bool, typer.Option("--force", help="Put it in force although other work kept the machine busy.")
    ] = False,
    dry_run: DryRunOption = False,
    undo: UndoOption = False,
) -> None:
    """Measure throughput and batch time over batch size, window length and concurrency; recommend settings.

    What it recommends is written to the cache, and workers with the same cache take it as default from their next start on;
    --undo takes it back.
    """
    from enricher.inference.run.model import open_model, prepare  # noqa: PLC0415  it imports ONNX Runtime

    cache_dir = load_settings().model.cache_dir
    if undo:
        remove_kept(folder_in_cache(open_model(folder), cache_dir), "tuning-*")
        return
    load = _load_average()
    model = prepare(folder, device=device, precision=precision, cache_dir=cache_dir)
    tokenizer = _tokenizer(model)
    window_tokens = _window_tokens(model, tokenizer)
    cells = _cells(model.device, window_tokens, concurrency, batch_tokens)
    with Ticker(remark_console()) as ticker:
        sweep = Sweep(seconds, rounds, lambda cell, done, of: ticker.tick(lambda: _progress(cell, done, of)))
        measurements = sweep.run(_engines(model, tokenizer), cells, _text_ids(tokenizer))
    tuning = _tuning(model, window_tokens, measurements, load)
    _print(tuning)
    console = remark_console()
    busy = load is not None and load > tuning.cores / 2
    if busy:
        console.print(f"other work kept {load:.1f} of {tuning.cores} cores busy: measure again without it")
    if dry_run or (busy and not force):
        console.print(f"not written ({'--dry-run' if dry_run else 'to write it all the same: --force'})")
        return
    path = _keep(tuning, folder_in_cache(model.checkpoint, cache_dir))
    console.print(f"written, also as a page: {escape(str(path))}")
    console.print(
        "Workers with this cache take it as default on such a machine, from their next start on. To take it back: --undo"
    )


def _cells(
    device: Device, window_tokens: int, concurrency: Sequence[int] | None, batch_tokens: Sequence[int] | None
) -> list[Cell]:
    """Every combination worth a try: a batch smaller than a window is a window alone, and one of those is enough."""
    from enricher.inference.device.cores import default_concurrency  # noqa: PLC0415  it imports ONNX Runtime

    counts = sorted(set(concurrency or (1, default_concurrency(device))))
    lengths = [*[length for length in _LENGTHS_TOKENS if length < window_tokens][-2:], window_tokens]
    combinations = itertools.product(counts, lengths, sorted(set(batch_tokens or _BATCH_TOKENS[device])))
    cells = [Cell(*each) for each in combinations if each[2] >= each[1]]
    return cells or [Cell(count, window_tokens, window_tokens) for count in counts]


def _engines(model: PreparedModel, tokenizer: ArticleTokenizer) -> Callable[[int], OnnxEngine]:
    """A warm engine for each concurrency, opened once."""
    from enricher.inference.run.engine import OnnxEngine  # noqa: PLC0415  it imports ONNX Runtime

    opened: dict[int, OnnxEngine] = {}

    def engine(concurrency: int) -> OnnxEngine:
        if concurrency not in opened:
            opened[concurrency] = OnnxEngine(model, threads_per_run=1, pad_id=tokenizer.pad_id, concurrency=concurrency)
        return opened[concurrency]

    return engine


def _tokenizer(model: PreparedModel) -> ArticleTokenizer:
    from enricher.inference.tokenizer.articles import ArticleTokenizer  # noqa: PLC0415  it imports the tokenizer library

    return ArticleTokenizer(model.checkpoint)


def _window_tokens(model: PreparedModel, tokenizer: ArticleTokenizer) -> int:
    """The setting, else the model's advice: as a worker cuts."""
    from enricher.inference.run.advice import advice_for  # noqa: PLC0415  it comes with ONNX Runtime

    advised = advice_for(model.checkpoint.folder, tokenizer.max_window_tokens).max_window_tokens
    own = load_settings(tell_files=False).batching.max_window_tokens
    return min(own or advised, tokenizer.max_window_tokens)


def _text_ids(tokenizer: ArticleTokenizer) -> Int32Array:
    """The gold sentences as one run of tokens: real text, for products of real sizes."""
    from enricher.commands.model.gating import read_gold_set  # noqa: PLC0415  used here only
    from enricher.records import Article, TokenizedArticle  # noqa: PLC0415  the same

    text = " ".join(each.text for each in read_gold_set(None).texts)
    (tokens,) = tokenizer.tokenize([Article("text", "", text)])
    assert isinstance(tokens, TokenizedArticle), "the default gold set is well-formed"
    return tokens.fields[1].ids


def _tuning(
    model: PreparedModel, window_tokens: int, measurements: Sequence[Measurement], load: float | None
) -> Tuning:
    import onnxruntime as ort  # noqa: PLC0415  a third of a second

    from enricher.inference.device.cores import available_cores  # noqa: PLC0415  it imports ONNX Runtime
    from enricher.inference.device.processor import processor_name  # noqa: PLC0415  the same
    from enricher.inference.run.tuning import Tuning  # noqa: PLC0415  the same

    best = recommended(measurements, window_tokens)
    overhead = overhead_tokens(measurements, best.concurrency)
    return Tuning(
        model_name=model.checkpoint.name,
        model_digest=model.checkpoint.digest,
        variant=model.variant.name,
        device=model.device,
        provider=model.provider,
        processor=processor_name(model.device),
        cores=available_cores(),
        load_before=load,
        onnxruntime=ort.__version__,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        window_tokens=window_tokens,
        rows=rows_of(measurements),
        concurrency=best.concurrency,
        max_batch_tokens=best.batch_tokens,
        run_overhead_tokens=overhead,
        bucket_edges=bucket_edges(window_tokens, overhead),
    )


def _keep(tuning: Tuning, folder: Path) -> Path:
    from enricher.inference.graph.cache import written_to_first  # noqa: PLC0415  a room that imports ONNX Runtime
    from enricher.inference.run.tuning import write_tuning  # noqa: PLC0415  the same

    path = written_to_first([folder], lambda folder: write_tuning(folder, tuning), "the tuning")
    path.with_suffix(".html").write_text(tuning_page(tuning), encoding="utf-8")
    return path


def _print(tuning: Tuning) -> None:
    console = data_console()
    table = Table("window, tokens", "concurrency", "batch, tokens", "windows", "tokens/s", "batch, ms")
    for row in tuning.rows:
        table.add_row(
            f"{row.length_tokens}",
            f"{row.concurrency}",
            f"{row.batch_tokens:,}",
            f"{row.windows}",
            f"{row.tokens_per_s:,.0f}",
            f"{row.batch_ms:.1f}",
        )
    console.print(table)
    for name, value in tuning.settings.items():
        console.print(f"{name}={escape(value)}", soft_wrap=True)


def _progress(cell: Cell, done: int, of: int) -> str:
    return f"{done} of {of}: windows of {cell.length_tokens}, {cell.batch_tokens} tokens a batch, {cell.concurrency} at once"


def _load_average() -> float | None:
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None
