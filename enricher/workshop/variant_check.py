"""Runs the quality gate for commands: shows the progress, and writes the report, or removes reports again.

By default reports go to the model's folder in the cache: its own folder may be the installed package or belong to someone
else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape

from enricher.errors import ModelError
from enricher.worker.commands.console import Ticker, remark_console
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.sessions import Device
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.inference.run.selection import recipe_for
from enricher.workshop.calibration import refuse_calibration_texts
from enricher.workshop.gate.gold import GoldSet
from enricher.workshop.gate.quality_gate import Gate
from enricher.workshop.gate.report import GateReport, write_report


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


def write_result(folder: Path, write: Callable[[Path], Path], what: str) -> Path:
    """Let `write` write into `folder`. Returns what `write` returns. Raises ModelError.

    `what` is for messages, such as "the report".
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return write(folder)
    except OSError as error:
        raise ModelError(f"{what} cannot be written: {error}. Choose another cache (model.cache_dir).") from error


def remove_results(folder: Path, pattern: str) -> None:
    """Remove the files, and say which. Raises ModelError if one cannot be removed."""
    console, found = remark_console(), sorted(folder.glob(pattern))
    for path in found:
        try:
            path.unlink()
        except OSError as error:
            raise ModelError(f"{path} cannot be removed: {error.strerror}") from error
        console.print(f"removed {escape(str(path))}")
    if not found:
        console.print(f"there is nothing to remove in {escape(str(folder))}")
    else:
        console.print("From their next start on, workers use the files in the model's own folder, or defaults.")
