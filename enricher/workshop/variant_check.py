"""Runs the quality gate for commands: shows the progress, and writes the report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from enricher.worker.commands.console import Ticker, remark_console
from enricher.worker.inference.run.selection import recipe_for
from enricher.workshop.calibration import refuse_calibration_texts
from enricher.workshop.gate.quality_gate import Gate
from enricher.workshop.gate.report import write_report
from enricher.workshop.result_files import write_result

if TYPE_CHECKING:
    from enricher.worker.inference.checkpoint.folder import Checkpoint
    from enricher.worker.inference.device.session import Device
    from enricher.worker.inference.graph.variants import Variant
    from enricher.workshop.gate.gold import GoldSet
    from enricher.workshop.gate.report import GateReport


@dataclass(frozen=True, slots=True)
class Checked:
    """A report and its path; None if it was not written."""

    report: GateReport
    path: Path | None


def check_variant(
    checkpoint: Checkpoint,
    variant: Variant,
    device: Device,
    *,
    gold: GoldSet,
    limit_points: float,
    cache_dir: Path,
    report_folder: Path | None,
    device_id: int = 0,
) -> Checked:
    """Run the gate and write its report to `report_folder`. `cache_dir` is for graphs. Raises ModelError, FatalError.

    Raises CalibratedOnGold if int8 was calibrated on the gold set.
    """
    recipe = recipe_for(checkpoint, variant)
    if recipe is not None:
        refuse_calibration_texts(recipe, gold)
    with Ticker(remark_console()) as ticker:

        def progress(stage: str, done: int, windows: int) -> None:
            ticker.tick(lambda: f"{stage}: {done:,} of {windows:,} windows")

        report = Gate(gold, limit_points, cache_dir, progress, device_id).check(checkpoint, variant, device)
    if report_folder is None:
        return Checked(report, None)
    return Checked(report, write_result(report_folder, lambda folder: write_report(folder, report), "the report"))


def reasons_of(report: GateReport) -> Iterator[str]:
    """The verdict in lines for people."""
    yield f"{report.bound_to.variant} {'passed' if report.passed else 'failed'}:"
    for reason in report.reasons:
        yield f"  - {escape(reason)}"
