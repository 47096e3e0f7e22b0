"""`enricher model check`: measures what a reduced precision loses, and writes the report that a worker requires."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from enricher.errors import ModelError, SettingsError
from enricher.worker.commands.console import data_console, remark_console
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.resolution import resolve_device
from enricher.worker.inference.device.sessions import Device
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.inference.run.advice import measured_languages
from enricher.worker.inference.run.model import EMBEDDED, open_model
from enricher.worker.inference.run.selection import (
    cache_folder,
    missed_target,
    named_variant,
    problem_of,
    recipe_problem,
    variants_for,
    why_not_reduced,
)
from enricher.worker.runtime.devices import Precision, parse_device
from enricher.worker.settings import Settings, load_settings
from enricher.workshop.arguments import (
    DeviceOption,
    DryRunOption,
    FolderArgument,
    GoldOption,
    LimitOption,
    UndoOption,
)
from enricher.workshop.calibration import CalibratedOnGold
from enricher.workshop.gate.quality_gate import gold_for
from enricher.workshop.gate.verdict import DEFAULT_LIMIT_POINTS
from enricher.workshop.tables import verdicts_table
from enricher.workshop.variant_check import Checked, check_variant, reasons_of, remove_results


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
    dry_run: DryRunOption = False,
    undo: UndoOption = False,
) -> None:
    """Measure what a reduced precision loses against fp32, and write the report. Exit code: 0 passed, 3 failed.

    Entities are measured by F1 of exact spans; one class per text by macro-F1, several by micro-F1. Lines of --gold for
    classes have "text" and "label" or "labels". Without --gold, the classes that fp32 gives the built-in texts count as
    right: that measures agreement, not quality, and 99.5 % of the texts must get the same. For embeddings every cosine with
    fp32 must be at least 0.999, and 99 % of 1,000 texts must have the same ten nearest, ties aside; lines of --gold need
    only "text".

    Without DIR, the models of all tasks in the settings are checked, or the built-in one. Workers with the same cache use
    the newest report from their next start on; --undo removes those in the cache.
    """
    settings = load_settings()
    kind, device_id = resolve_device(device), parse_device(device).index
    failed = False
    checkpoints = _checkpoints(settings, folder)
    for checkpoint in checkpoints:
        in_cache = cache_folder(checkpoint, settings.model.cache_dir)
        if undo:
            remove_results(in_cache, "gate-*")
            continue
        check = partial(
            check_variant,
            checkpoint,
            device=kind,
            gold=gold_for(checkpoint.head, gold, measured_languages(checkpoint.folder)),
            limit_points=limit_points,
            cache_dir=settings.model.cache_dir,
            report_folder=None if dry_run else out or in_cache,
            device_id=device_id,
        )
        variants = _variants(checkpoint, kind, precision)
        if len(checkpoints) > 1 and precision == "auto":
            # int8 is not for heads that share an encoder, as those of tasks may.
            variants = [variant for variant in variants if not variant.quantised]
        checked = _until_passed(variants, check)
        _print(checked)
        failed |= not checked[-1].report.passed
    if failed:
        raise typer.Exit(ModelError.exit_code)


def _checkpoints(settings: Settings, folder: str) -> list[Checkpoint]:
    """The checkpoint of the folder; without a folder, those of all tasks in the settings, each once. Raises ModelError."""
    named = folder != EMBEDDED or not settings.tasks
    sources = [folder] if named else dict.fromkeys(task.source for task in settings.tasks.values())
    return [open_model(source) for source in sources]


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
    if checked.path is None:
        yield "  not written (--dry-run)"
        return
    yield f"  report: {escape(str(checked.path))}"
    then = "serve this precision" if checked.report.passed else "do not serve this precision"
    yield f"  Workers that find the report {then} from their next start on. To withdraw it: --undo, or remove the file."
