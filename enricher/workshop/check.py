"""`enricher model check`: measures what a reduced precision loses, and writes the report that a worker requires.

`prepare` runs the same check. By default reports go to the model's folder in the cache: the model's own folder may be the
installed package or belong to someone else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from enricher.errors import ModelError, SettingsError
from enricher.worker.commands.console import Ticker, data_console, remark_console
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.hardware import resolve_device
from enricher.worker.inference.device.sessions import Device
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.inference.run.advice import measured_languages
from enricher.worker.inference.run.model import EMBEDDED, open_model
from enricher.worker.inference.run.selection import (
    cache_folder,
    missed_target,
    named_variant,
    problem_of,
    recipe_for,
    recipe_problem,
    variants_for,
    why_not_reduced,
)
from enricher.worker.runtime.devices import Precision, parse_device
from enricher.worker.settings import load_settings
from enricher.workshop.arguments import (
    DeviceOption,
    FolderArgument,
    GoldOption,
    LimitOption,
)
from enricher.workshop.calibration import CalibratedOnGold, refuse_calibration_texts
from enricher.workshop.gate.gold import GoldSet
from enricher.workshop.gate.quality_gate import Gate, gold_for
from enricher.workshop.gate.report import GateReport, write_report
from enricher.workshop.gate.verdict import DEFAULT_LIMIT_POINTS, too_few_entities


def model_check(
    folder: FolderArgument = EMBEDDED,
    *,
    gold: GoldOption = None,
    precision: Annotated[
        Precision, typer.Option(help="Which to check; `auto` begins with the fastest and stops at one that passes.")
    ] = "auto",
    device: DeviceOption = "auto",
    limit_points: LimitOption = DEFAULT_LIMIT_POINTS,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the report. Default: the model's place in the cache; a worker looks there and in DIR."
        ),
    ] = None,
) -> None:
    """Measure what a reduced precision loses against fp32, and write the report. Exit code: 0 passed, 3 failed.

    Entities are measured by F1 of exact spans; one class per text by macro-F1, several by micro-F1. Lines of --gold for
    classes have "text" and "label" or "labels". Without --gold, the classes that fp32 gives the built-in texts count as
    right: that measures agreement, not quality, and 99.5 % of the texts must get the same. For embeddings every cosine with
    fp32 must be at least 0.999, and 99 % of 1,000 texts must have the same ten nearest, ties aside; lines of --gold need
    only "text".

    Workers with the same cache use the newest report from their next start on.
    """
    settings = load_settings()
    kind, device_id = resolve_device(device), parse_device(device).index
    checkpoint = open_model(folder)
    check = partial(
        check_variant,
        checkpoint,
        device=kind,
        gold=gold_for(checkpoint.head, gold, measured_languages(checkpoint.folder)),
        own_gold=gold is not None,
        limit_points=limit_points,
        cache_dir=settings.model.cache_dir,
        report_folder=out or cache_folder(checkpoint, settings.model.cache_dir),
        device_id=device_id,
    )
    checked = _until_passed(_variants(checkpoint, kind, precision), check)
    _print(checked)
    if not checked[-1].report.passed:
        raise typer.Exit(ModelError.exit_code)


def _until_passed(variants: Sequence[Variant], check: Callable[[Variant], Checked]) -> list[Checked]:
    """Check variants until one passes; at least one is checked. Raises CalibratedOnGold if none can be."""
    checked: list[Checked] = []
    for variant in variants:
        try:
            one = check(variant)
        except CalibratedOnGold as error:
            if variant is variants[-1] and not checked:
                raise
            remark_console().print(escape(f"not {variant.name}: {error}"))
            continue
        checked.append(one)
        if one.report.passed:
            break
    return checked


def _variants(checkpoint: Checkpoint, device: Device, precision: Precision) -> Sequence[Variant]:
    """The variants to check, fastest first; at least one. Raises ModelError, SettingsError."""
    if precision == "fp32":
        message = "fp32 is what the others are compared with: it needs no report"
        raise SettingsError(message)
    asked = variants_for(device) if precision == "auto" else [named_variant(checkpoint, device, precision)]
    reduced = [variant for variant in asked if variant.reduced]
    problems = [
        why_not_reduced([checkpoint], variant)
        or problem_of(checkpoint, variant)
        or recipe_problem(checkpoint, variant)
        or (missed_target(checkpoint, variant) if precision == "auto" else None)
        for variant in reduced
    ]
    if all(problems):
        why = "; ".join(f"{variant.name}: {problem}" for variant, problem in zip(reduced, problems, strict=True))
        message = f"nothing to check on this machine: {why}. Check a variant on a machine that runs it."
        raise ModelError(message)
    return [variant for variant, problem in zip(reduced, problems, strict=True) if problem is None]


def _print(checked: Sequence[Checked]) -> None:
    data_console().print(verdicts_table([each.report for each in checked]))
    remarks = remark_console()
    for line in (line for each in checked for line in _lines(each)):
        remarks.print(line)


def _lines(checked: Checked) -> Iterator[str]:
    yield from reasons_of(checked.report)
    yield f"  report: {escape(str(checked.path))}"
    then = "serve this precision" if checked.report.passed else "do not serve this precision"
    yield f"  Workers that find the report {then} from their next start on. To withdraw it, remove the file."


@dataclass(frozen=True, slots=True)
class Checked:
    """A report and its path."""

    report: GateReport
    path: Path


def check_variant(  # noqa: PLR0913  all that a check depends on
    checkpoint: Checkpoint,
    variant: Variant,
    device: Device,
    *,
    gold: GoldSet,
    limit_points: float,
    cache_dir: Path,
    report_folder: Path,
    device_id: int = 0,
    own_gold: bool = False,
) -> Checked:
    """Run the gate and write its report to `report_folder`. `cache_dir` is for graphs. Raises ModelError, FatalError.

    Raises CalibratedOnGold if int8 was calibrated on the gold set; SettingsError if the user's `own_gold` set has too few
    entities.
    """
    recipe = recipe_for(checkpoint, variant)
    if recipe is not None:
        refuse_calibration_texts(recipe, gold)
    entities = sum(len(text.entities) for text in gold.texts)
    if own_gold and entities and (reason := too_few_entities(entities, limit_points)):
        # A failed report would take back a precision that has passed before.
        raise SettingsError(f"--gold {gold.name}: {reason}. Nothing was measured")
    with Ticker(remark_console()) as ticker:

        def progress(stage: str, done: int, windows: int) -> None:
            ticker.tick(lambda: f"{stage}: {done:,} of {windows:,} windows")

        report = Gate(gold, limit_points, cache_dir, progress, device_id).check(checkpoint, variant, device)
    return Checked(report, write_into(report_folder, report))


def reasons_of(report: GateReport) -> Iterator[str]:
    """The verdict in lines for people."""
    yield f"{report.bound_to.variant} {'passed' if report.passed else 'failed'}:"
    for reason in report.reasons:
        yield f"  - {escape(reason)}"


def write_into(folder: Path, report: GateReport) -> Path:
    """Write the report into a folder, which is made. Returns its path. Raises ModelError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return write_report(folder, report)
    except OSError as error:
        raise ModelError(f"the report cannot be written: {error}. Choose another cache (model.cache_dir).") from error


_COLUMNS = {
    "entities": ("F1 fp32", "F1", "points", "labels equal", "spans", "largest logit"),
    "classes": ("F1 fp32", "F1", "points", "same classes", "judged by", "largest logit"),
    "vectors": ("least cosine", "median", "same ten nearest", "where ties count"),
}


def verdicts_table(reports: Sequence[GateReport]) -> Table:
    """A row for each report and set of texts. All reports are about one model."""
    table = Table("variant", "text", *_COLUMNS[_kind(reports[0])], "verdict")
    for report in reports:
        verdict = "[green]passed[/]" if report.passed else "[bold red]failed[/]"
        for number, (name, *cells) in enumerate(_rows(report)):
            table.add_row(report.bound_to.variant if number == 0 else "", name, *cells, verdict if number == 0 else "")
    return table


def _kind(report: GateReport) -> str:
    if report.classes is not None:
        return "classes"
    return "entities" if report.vectors is None else "vectors"


def _rows(report: GateReport) -> Iterator[tuple[str, ...]]:
    """The name of each set of texts, and the cells of _COLUMNS."""
    for each in report.comparisons:
        yield (
            each.name,
            f"{each.overall.reference.f1:.4f}",
            f"{each.overall.reduced.f1:.4f}",
            f"{each.overall.delta_points:+.2f}",
            f"{100 * each.equal_labels:.3f} %",
            f"{each.spans.f1:.4f}",
            f"{each.largest_logit_difference:.3g}",
        )
    for of_classes in report.classes.comparisons if report.classes else ():
        yield (
            of_classes.name,
            f"{of_classes.overall.reference.f1:.4f}",
            f"{of_classes.overall.reduced.f1:.4f}",
            f"{of_classes.overall.delta_points:+.2f}",
            f"{100 * of_classes.equal_classes:.2f} %",
            "labels" if of_classes.truth == "gold" else "fp32",
            f"{of_classes.largest_logit_difference:.3g}",
        )
    for of_vectors in report.vectors.comparisons if report.vectors else ():
        yield (
            of_vectors.name,
            f"{of_vectors.least_cosine:.6f}",
            f"{of_vectors.median_cosine:.6f}",
            f"{100 * of_vectors.same_ten:.1f} %" if of_vectors.name == "texts" else "-",
            f"{100 * of_vectors.same_ten_strict:.1f} %" if of_vectors.name == "texts" else "-",
        )
