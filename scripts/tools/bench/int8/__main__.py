"""Calibrates, runs the variants in turn, asks the gate about each, and prints the tables."""

from __future__ import annotations

import logging
import resource
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from enricher.worker.commands.console import data_console
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.opening import open_session
from enricher.worker.inference.graph.padded import PaddedFloat32
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.inference.run.model import open_model, prepare_variant
from enricher.worker.records import Int32Array, Window
from enricher.workshop.gate.gold import DEFAULT_GOLD, read_gold
from enricher.workshop.gate.quality_gate import Gate
from enricher.workshop.gate.report import GateReport
from enricher.workshop.gate.verdict import DEFAULT_LIMIT_POINTS
from tools.bench.int8.legs import EMBEDDED, SHAPE_NAMES, calibrated, checkpoint_of, variants, windows_to_calibrate
from tools.bench.machine import processor
from tools.bench.model.cases import EVERY, by_the_scheduler, sample_windows
from tools.bench.model.legs import our_leg
from tools.bench.model.turns import cpu_s, take_turns
from tools.bench.outcome import Table
from tools.bench.printing import print_tables, write_figures
from tools.bench.repeating import Run, rates, ratios

Figures = dict[str, Any]
Show = Callable[[str], None]
REPETITIONS = 7
QUICK_REPETITIONS = 3
QUICK_WINDOWS = 32
BATCH_TOKENS = 1024
_COLUMNS = ("", "tokens/s", "÷ fp32", "÷ bf16", "processor time", "labels equal", "F1, points", "gate")


@dataclass(frozen=True, slots=True)
class _Options:
    repetitions: int
    quick: bool
    show: Show


def main(
    shape: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(SHAPE_NAMES)}; repeatable.")] = None,
    repetitions: Annotated[int, typer.Option(min=1, help="Passes of each variant, alternating.")] = REPETITIONS,
    quick: Annotated[bool, typer.Option("--quick", help="3 passes over 32 windows, and no gold set.")] = False,  # noqa: FBT002  a typer option
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
) -> None:
    """int8 against bf16 and fp32 by OpenVINO: speed on the sample articles, equal labels, and F1 by the gate."""
    logging.basicConfig(level=logging.ERROR)
    shapes = shape or [EMBEDDED, "base-6"]
    if unknown := set(shapes) - set(SHAPE_NAMES):
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: there are {', '.join(SHAPE_NAMES)}.")
    with tempfile.TemporaryDirectory() as scratch, Console(stderr=True).status("starting") as status:
        options = _Options(min(repetitions, QUICK_REPETITIONS) if quick else repetitions, quick, status.update)
        results = [_measure(each, Path(scratch), options) for each in shapes]
    print_tables(data_console(), map(_table, results))
    if json:
        write_figures(json, {"processor": processor(), "repetitions": options.repetitions, "shapes": results})


def _measure(shape: str, folder: Path, options: _Options) -> Figures:
    checkpoint, every = checkpoint_of(shape, folder), sample_windows(open_model(None))
    others, target = windows_to_calibrate(shape, every, EVERY)
    made = calibrated(checkpoint, others, target=target, progress=_progress(options.show, shape))
    windows = every[::EVERY][: QUICK_WINDOWS if options.quick else None]
    compared = variants()
    batches, tokens = by_the_scheduler(windows, BATCH_TOKENS), sum(window.length_tokens for window in windows)
    legs = {title: (our_leg(checkpoint, variant, folder / "cache"), batches) for title, variant in compared}
    runs = take_turns(legs, options.repetitions, options.show)
    rows = [_row(title, runs, tokens / len(windows)) for title in legs]
    if shape == EMBEDDED:
        _add_labels(rows, checkpoint, compared, windows, folder / "cache")
    if shape == EMBEDDED and not options.quick:
        _add_gate(rows, checkpoint, compared, folder / "cache", options.show)
    return {
        "shape": shape,
        "windows": len(windows),
        "real_tokens": tokens,
        "calibration_s": made.seconds,
        "calibration_windows": len(others),
        "recipe_bytes": len(made.recipe.model_dump_json()),
        "kept": [each.name for each in made.recipe.kept],
        "held_out": made.recipe.measured.model_dump(),
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "graph_bytes": {title: _graph_bytes(checkpoint, variant, folder / "cache") for title, variant in compared},
        "variants": rows,
    }


def _row(title: str, runs: Mapping[str, Sequence[Run]], tokens_per_window: float) -> Figures:
    """Ratios are taken within each pass, so that other work on the machine affects both sides."""
    row: Figures = {"variant": title, "tokens_per_s": rates(runs[title]).median * tokens_per_window}
    for other in ("fp32", "bf16"):
        if other in runs:
            ratio = ratios(runs[title], runs[other])
            row[f"over_{other}"] = [ratio.median, ratio.low, ratio.high]
            pairs = zip(runs[title], runs[other], strict=True)
            row[f"over_{other}_by_cpu"] = statistics.median(cpu_s(theirs) / cpu_s(ours) for ours, theirs in pairs)
    return row


def _add_labels(
    rows: list[Figures],
    checkpoint: Checkpoint,
    compared: Sequence[tuple[str, Variant]],
    windows: Sequence[Window],
    cache_dir: Path,
) -> None:
    """Share of labels equal to those of ONNX Runtime's fp32, on windows that did not calibrate."""
    expected = _labels(checkpoint, PaddedFloat32(), windows, cache_dir)
    for row, (_, variant) in zip(rows, compared, strict=True):
        row["equal_labels"] = float((expected == _labels(checkpoint, variant, windows, cache_dir)).mean())


def _labels(checkpoint: Checkpoint, variant: Variant, windows: Sequence[Window], cache_dir: Path) -> Int32Array:
    path = prepare_variant(checkpoint, variant, "cpu", cache_dir=cache_dir).onnx_path
    session, found = open_session(path, variant.runtime, threads_per_run=1), []
    for batch in by_the_scheduler(windows, BATCH_TOKENS):
        (labels,) = session.run(["labels"], variant.feeds(batch, 0))
        starts = variant.starts(batch, labels.shape)
        pairs = zip(batch, starts, strict=True)
        found += [labels.reshape(-1)[start : start + window.length_tokens] for window, start in pairs]
    return np.concatenate(found)


def _add_gate(
    rows: list[Figures], checkpoint: Checkpoint, compared: Sequence[tuple[str, Variant]], cache_dir: Path, show: Show
) -> None:
    gate = Gate(read_gold(DEFAULT_GOLD), DEFAULT_LIMIT_POINTS, cache_dir, _progress(show, "gate"))
    reference = gate.reference(checkpoint, "cpu")
    for row, (_, variant) in zip(rows, compared, strict=True):
        if variant.reduced:
            row["gate"] = _facts_of(gate.check(checkpoint, variant, "cpu", reference), variant)


def _facts_of(report: GateReport, variant: Variant) -> Figures:
    sentences, documents = report.comparisons
    return {
        "passed": report.passed,
        "reasons": list(report.reasons),
        "f1": sentences.overall.reduced.f1,
        "f1_fp32": sentences.overall.reference.f1,
        "points": [sentences.overall.delta_points, sentences.overall.low_points, sentences.overall.high_points],
        "points_documents": documents.overall.delta_points,
        "equal_labels_gold": sentences.equal_labels,
        "labels_changed_by_batches": max(
            each.changed_labels for each in report.compositions if each.variant == variant.name
        ),
    }


def _graph_bytes(checkpoint: Checkpoint, variant: Variant, cache_dir: Path) -> int:
    folder = prepare_variant(checkpoint, variant, "cpu", cache_dir=cache_dir).onnx_path.parent
    return sum(each.stat().st_size for each in folder.iterdir())


def _progress(show: Show, title: str) -> Callable[[str, int, int], None]:
    return lambda stage, done, every: show(f"{title}: {stage}, {done} of {every}")


def _table(result: Figures) -> Table:
    title = (
        f"{result['shape']}: {result['windows']} windows, {result['real_tokens']} tokens; {processor()}; "
        f"calibrated in {result['calibration_s']:.0f} s, {len(result['kept'])} products kept"
    )
    return Table(title, _COLUMNS, [_cells(row) for row in result["variants"]])


def _cells(row: Figures) -> list[str]:
    gate = row.get("gate")
    return [
        row["variant"],
        f"{row['tokens_per_s']:.0f}",
        _ratio(row.get("over_fp32")),
        _ratio(row.get("over_bf16")),
        " / ".join(f"{row[key]:.2f}" for key in ("over_fp32_by_cpu", "over_bf16_by_cpu") if key in row),
        f"{row['equal_labels']:.3%}" if "equal_labels" in row else "-",
        "{:+.2f} ({:+.2f} to {:+.2f})".format(*gate["points"]) if gate else "-",
        ("passed" if gate["passed"] else "failed") if gate else "-",
    ]


def _ratio(values: list[float] | None) -> str:
    return "{:.2f} ({:.2f} to {:.2f})".format(*values) if values else "-"


if __name__ == "__main__":
    typer.run(main)
