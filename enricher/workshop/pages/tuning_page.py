"""A tuning as a page: throughput and batch time over tokens per batch, made from the tuning alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from enricher.workshop.pages.frame import cards, page, section, table
from enricher.workshop.pages.plots import Line, lines_plot, plots_missing

if TYPE_CHECKING:
    from enricher.worker.inference.run.tuning import Tuning, TuningRow

COLUMNS = ("window, tokens", "concurrency", "batch, tokens", "windows", "tokens per second", "batch, ms")
_COLOURS = ("main", "second", "third", "fourth", "fifth")


def tuning_page(tuning: Tuning) -> str:
    """A complete, self-contained HTML document."""
    title = f"{tuning.model_name}: {tuning.variant} on {tuning.device}"
    subtitle = f"{tuning.processor}, {tuning.cores} cores; {tuning.provider}; {tuning.created_at}"
    return page(title, subtitle, _parts(tuning))


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


def early_batches(tuning: Tuning) -> str:
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


def _parts(tuning: Tuning) -> Iterator[str]:
    usual = min((row.length_tokens for row in tuning.rows), key=lambda length: abs(length - tuning.window_tokens))
    wanted = (tuning.concurrency, usual, tuning.max_batch_tokens)
    best = next(row for row in tuning.rows if (row.concurrency, row.length_tokens, row.batch_tokens) == wanted)
    yield plots_missing()
    yield cards(
        [
            (f"{tuning.max_batch_tokens:,}", "tokens per batch, recommended"),
            (f"{tuning.concurrency}", "runs at once, recommended"),
            (f"{best.tokens_per_s:,.0f}", "tokens per second with these"),
            (f"{best.batch_ms:.1f} ms", "per batch with these"),
            (f"{tuning.run_overhead_tokens}", "tokens: the fixed cost of a run"),
        ]
    )
    concurrencies = sorted({row.concurrency for row in tuning.rows})
    for count in concurrencies:
        rows = [row for row in tuning.rows if row.concurrency == count]
        marked = best if count == tuning.concurrency else None
        yield section(
            f"{count} run{'s' if count > 1 else ''} at once: throughput",
            "Tokens per second over tokens per batch, one line per window length; the ring marks the recommendation.",
            _plot(rows, "tokens per second", marked),
        )
        yield section(
            f"{count} run{'s' if count > 1 else ''} at once: batch time",
            "Milliseconds from handing a batch over until its labels are back, all threads busy.",
            _plot(rows, "milliseconds", marked),
        )
    if tuning.freshness:
        yield section("Early batches", early_batches(tuning), _freshness(tuning))
    settings = "\n".join(f"{name}={value}" for name, value in settings_of(tuning).items())
    yield section("Settings", "As environment variables.", f"<pre><code>{settings}</code></pre>")
    load = "unknown" if tuning.load_before is None else f"{tuning.load_before:.2f}"
    note = f"Medians. Load average before the measurement: {load}. ONNX Runtime {tuning.onnxruntime}."
    measured = table(COLUMNS, list(map(cells_of, tuning.rows)), best=tuning.rows.index(best))
    yield section("Everything measured", note, measured)


def _plot(rows: Sequence[TuningRow], unit: str, marked: TuningRow | None) -> str:
    lengths = sorted({row.length_tokens for row in rows})
    colours = dict(zip(lengths, _COLOURS, strict=False))
    ring = None if marked is None else (float(marked.batch_tokens), _value(marked, unit))
    lines = [
        Line(
            f"windows of {length} tokens",
            colours[length],
            [(row.batch_tokens, _value(row, unit)) for row in rows if row.length_tokens == length],
        )
        for length in lengths
    ]
    return lines_plot(lines, "tokens per batch", unit, ring)


def _value(row: TuningRow, unit: str) -> float:
    return row.batch_ms if unit == "milliseconds" else row.tokens_per_s


def _freshness(tuning: Tuning) -> str:
    columns = ["load", "early_overhead", "p50, ms", "p99, ms", "thread time per window, ms"]
    cells = [
        [
            f"{row.load:.0%}",
            f"{row.early_overhead:g}",
            f"{row.p50_ms:.1f}",
            f"{row.p99_ms:.1f}",
            f"{row.thread_ms:.3f}",
        ]
        for row in tuning.freshness
    ]
    return table(columns, cells)


def cells_of(row: TuningRow) -> list[str]:
    """A measurement as text, a cell for each of `COLUMNS`."""
    return [
        f"{row.length_tokens}",
        f"{row.concurrency}",
        f"{row.batch_tokens:,}",
        f"{row.windows:,}",
        f"{row.tokens_per_s:,.0f}",
        f"{row.batch_ms:.1f}",
    ]
