"""Chooses the variant that runs a checkpoint: the fastest one that runs on this machine and whose gate report passes.

It lists the variants by device, and makes nothing: `enricher model check` makes the reports, and `enricher model prepare`
makes the recipes of int8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from enricher.errors import ModelError
from enricher.worker.heads import KINDS
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.checkpoint.gate_report import GateResult, read_reports
from enricher.worker.inference.checkpoint.onnx_model import OnnxModel
from enricher.worker.inference.device.sessions import Device, arithmetic_of
from enricher.worker.inference.graph.builder import BUILDER_VERSION
from enricher.worker.inference.graph.external import padded_variant
from enricher.worker.inference.graph.int8 import RECIPE_FILE, Recipe, read_recipe
from enricher.worker.inference.graph.packed_cuda import PackedCudaFloat32, PackedFloat16
from enricher.worker.inference.graph.padded import (
    OpenVinoBfloat16,
    OpenVinoFloat32,
    OpenVinoInt8,
    PackedFloat32,
    PaddedFloat16,
    PaddedFloat32,
)
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.runtime.devices import Precision

_LOST_WITHOUT_REPORT: dict[Device, str] = {
    "cpu": "the worker runs in fp32, which is slower",
    "cuda": (
        "the worker runs in fp32, and fp16 is nine times as fast on an H100; on others, three to ten times as fast is "
        "expected from their peak rates"
    ),
}
"""Clauses that say what is lost. Peak rates in fp16 and fp32: 121 and 30 TFLOP/s on an L4; 989 and 67 on an H100."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The variant that runs, and the reason. `rejected`: the faster variants, each with the reason against it."""

    variant: Variant
    reason: str
    rejected: list[tuple[Variant, str]]


def choose(
    checkpoints: Sequence[Checkpoint], device: Device, precision: Precision, *, cache_dir: Path | None = None
) -> Choice:
    """The variant for checkpoints that share an encoder: a reduced one serves only if the reports of all pass.

    Reports are read from each checkpoint's folder and from its folder in `cache_dir`. Raises ModelError if a named precision
    does not run or did not pass.
    """
    if precision != "auto":
        return _choose_named(checkpoints, device, precision, cache_dir)
    rejected: list[tuple[Variant, str]] = []
    for variant in variants_for(device):
        obstacle = _obstacle(checkpoints, device, variant, cache_dir)
        if obstacle is None:
            return Choice(variant, _reason(variant, rejected), rejected)
        rejected.append((variant, obstacle))
    listed = "; ".join(f"{variant.name}: {why}" for variant, why in rejected)
    names = " and ".join(checkpoint.name for checkpoint in checkpoints)
    raise ModelError(f"no variant of {names} runs on {device}: {listed}.")


def _obstacle(
    checkpoints: Sequence[Checkpoint], device: Device, variant: Variant, cache_dir: Path | None
) -> str | None:
    """Why `auto` does not take the variant for these heads together; None if it may."""
    if problem := permanent_obstacle(checkpoints, variant):
        return problem
    return _reasons_by_checkpoint(
        checkpoints, lambda each: unproven(each, device, variant, cache_dir) or missed_target(each, variant)
    )


def permanent_obstacle(checkpoints: Sequence[Checkpoint], variant: Variant) -> str | None:
    """Why no report could let the variant serve these heads together on this machine; None if one could."""
    problems = (problem_of(checkpoint, variant) for checkpoint in checkpoints)
    return why_not_reduced(checkpoints, variant) or next(filter(None, problems), None)


def _reasons_by_checkpoint(checkpoints: Sequence[Checkpoint], why: Callable[[Checkpoint], str | None]) -> str | None:
    """The reasons of all checkpoints that have one; with several checkpoints, each reason says whose it is."""
    by_folder = {each.folder: each for each in checkpoints}
    reasons = {folder: why(each) for folder, each in by_folder.items()}
    if len(checkpoints) == 1:
        return reasons[checkpoints[0].folder]
    names = [each.name for each in by_folder.values()]
    whose = {folder: each.name if names.count(each.name) == 1 else folder for folder, each in by_folder.items()}
    return "; ".join(f"{whose[folder]}: {reason}" for folder, reason in reasons.items() if reason) or None


def why_not_reduced(checkpoints: Sequence[Checkpoint], variant: Variant) -> str | None:
    """Why no variant of this precision can serve these heads together; None if one can.

    The quality gate does not compare every kind of head, and int8 is calibrated for a single head that finds entities.
    """
    uncompared = [each.head.kind for each in checkpoints if not KINDS[each.head.kind].compares]
    if variant.reduced and uncompared:
        return f"models for {uncompared[0]} run in fp32, because the quality gate does not compare them"
    if not variant.quantised:
        return None
    calibrated, kind = "int8 is calibrated for a single token classification head", checkpoints[0].head.kind
    if len(checkpoints) > 1:
        return f"{calibrated}, and this worker has {len(checkpoints)} heads"
    return None if KINDS[kind].calibrates else f"{calibrated}, and this model is for {kind}"


def problem_of(checkpoint: Checkpoint, variant: Variant) -> str | None:
    """Why `variant` cannot run this model on this machine, whether or not it passed the gate; None if it can."""
    if isinstance(checkpoint, OnnxModel):
        try:
            return padded_variant(variant).problem()
        except ModelError as error:
            return str(error)
    return variant.problem() or variant.why_unsuited(checkpoint.config)


def obstacle_to(checkpoint: Checkpoint, device: Device, variant: Variant, cache_dir: Path | None) -> str | None:
    """Why `variant` may not serve: it does not run here, or has no recipe or no passing report. None if it may."""
    return permanent_obstacle([checkpoint], variant) or unproven(checkpoint, device, variant, cache_dir)


def unproven(checkpoint: Checkpoint, device: Device, variant: Variant, cache_dir: Path | None) -> str | None:
    """Why a reduced variant must not serve: no recipe, no report, or a failed one. None if it may."""
    if not variant.reduced:
        return None
    if without_recipe := recipe_problem(checkpoint, variant):
        return without_recipe
    newest = newest_report(checkpoint, variant, cache_dir)
    if newest is None:
        others = any(read_reports(report_folders(checkpoint, cache_dir), variant.name))
        also = f" of this {_binding_of(variant)}" if others else ""
        return f"there is no gate report{also} for {variant.name}; `{check_command(checkpoint, device, variant)}` makes one"
    return None if newest.passed else f"{variant.name} failed its gate: {'; '.join(newest.reasons)}"


def recipe_for(checkpoint: Checkpoint, variant: Variant) -> Recipe | None:
    """The recipe of a quantised variant; None for others. Raises ModelError if none fits this model and builder."""
    if not variant.quantised:
        return None
    recipe = read_recipe(checkpoint.folder)
    if recipe is None:
        raise ModelError(f"there is no {RECIPE_FILE} in {checkpoint.folder}; `{prepare_command(checkpoint)}` makes one")
    if recipe.model_digest != checkpoint.digest:
        raise ModelError(
            f"{RECIPE_FILE} in {checkpoint.folder} was made for another model (sha256 {recipe.model_digest[:12]}); "
            f"`{prepare_command(checkpoint)}` makes one for this"
        )
    if not recipe.counts_for(checkpoint.digest, BUILDER_VERSION):
        raise ModelError(
            f"{RECIPE_FILE} in {checkpoint.folder} was made for version {recipe.builder_version} of the graph builder, and "
            f"this is {BUILDER_VERSION}; `{prepare_command(checkpoint)}` makes one for this"
        )
    return recipe


def recipe_problem(checkpoint: Checkpoint, variant: Variant) -> str | None:
    """Why there is no usable recipe for `variant`; None if there is one, and for variants that need none."""
    try:
        recipe_for(checkpoint, variant)
    except ModelError as error:
        return str(error)
    return None


def missed_target(checkpoint: Checkpoint, variant: Variant) -> str | None:
    """Why `auto` does not take a quantised variant: its calibration missed the target. None if not, or without a recipe.

    If the settings name the precision, it serves anyway once it passes its gate.
    """
    if recipe_problem(checkpoint, variant) is not None:
        return None
    recipe = recipe_for(checkpoint, variant)
    return None if recipe is None else recipe.measured.missed


def prepare_command(checkpoint: Checkpoint) -> str:
    """The command that calibrates int8, and makes the recipe and its report."""
    return f"enricher model prepare {quote(str(checkpoint.source))} --out DIR --precision int8"


def cache_folder(checkpoint: Checkpoint, cache_dir: Path) -> Path:
    """The folder in the cache for the model's reports."""
    return cache_dir / f"{checkpoint.digest[:32]}-reports"


def report_folders(checkpoint: Checkpoint, cache_dir: Path | None) -> list[Path]:
    """The folders that may hold reports: the checkpoint's own, and its folder in the cache."""
    return [checkpoint.folder, *([] if cache_dir is None else [cache_folder(checkpoint, cache_dir)])]


def check_command(checkpoint: Checkpoint, device: Device, variant: Variant) -> str:
    """The command that makes the report of a variant, and its recipe if that is missing too."""
    if recipe_problem(checkpoint, variant):
        return prepare_command(checkpoint)
    on = " --device cuda" if device == "cuda" else ""
    return f"enricher model check {quote(str(checkpoint.source))} --precision {variant.precision}{on}"


def missing_reports(checkpoints: Sequence[Checkpoint], device: Device, cache_dir: Path | None) -> list[str]:
    """The commands for the missing reports of reduced variants that run on this machine, fastest first.

    A variant that cannot serve these heads together has no command: reports would change nothing.
    """
    commands: list[str] = []
    for variant in variants_for(device):
        if not variant.reduced or permanent_obstacle(checkpoints, variant):
            continue
        newest = [(each, newest_report(each, variant, cache_dir)) for each in checkpoints]
        if any((found and not found.passed) or missed_target(each, variant) for each, found in newest):
            continue
        commands += [check_command(each, device, variant) for each, found in newest if found is None]
    return [*dict.fromkeys(commands)]


def lost_without_report(device: Device) -> str:
    """A sentence that says what is lost while fp32 serves because a gate report is missing."""
    return f"Until then {_LOST_WITHOUT_REPORT[device]}."


def named_variant(checkpoint: Checkpoint, device: Device, precision: str) -> Variant:
    """The fastest variant of that precision for `device` that runs this model; else the fastest. Raises ModelError."""
    return variant_named(device, precision, lambda variant: problem_of(checkpoint, variant))


def _choose_named(checkpoints: Sequence[Checkpoint], device: Device, precision: str, cache_dir: Path | None) -> Choice:
    """The variant of a precision that is named. Raises ModelError if it does not run or must not serve."""
    variant = named_variant(checkpoints[0], device, precision)
    if problem := why_not_reduced(checkpoints, variant):
        raise ModelError(f"precision {precision} is refused: {problem}. Choose auto.")
    if problem := next(filter(None, (problem_of(each, variant) for each in checkpoints)), None):
        raise ModelError(f"precision {precision} does not run here: {problem}. Choose auto, or another machine.")
    if why_not := _reasons_by_checkpoint(checkpoints, lambda each: unproven(each, device, variant, cache_dir)):
        raise ModelError(f"precision {precision} is refused: {why_not}. Or choose auto, which takes what has passed.")
    return Choice(variant, f"precision {precision} was asked for", [])


def newest_report(checkpoint: Checkpoint, variant: Variant, cache_dir: Path | None) -> GateResult | None:
    """The result of the newest report on this model, variant, builder, recipe and arithmetic."""
    try:
        recipe = recipe_for(checkpoint, variant)
    except ModelError:
        return None
    found = read_reports(report_folders(checkpoint, cache_dir), variant.name)
    recipe_digest, arithmetic = None if recipe is None else recipe.digest, arithmetic_of(variant.runtime)
    bound = (checkpoint.digest, variant.name, BUILDER_VERSION, recipe_digest, arithmetic)
    ours = (each for each in found if each.counts_for(*bound))
    return max(ours, key=lambda report: report.bound_to.created_at, default=None)


def _binding_of(variant: Variant) -> str:
    """The facts to which a report on the variant is bound, in words."""
    if variant.quantised:
        return "model, builder and recipe"
    return "model and builder" if arithmetic_of(variant.runtime) is None else "model, builder and arithmetic"


def _reason(variant: Variant, rejected: list[tuple[Variant, str]]) -> str:
    proof = " that passed its gate" if variant.reduced else ""
    return f"the fastest variant{proof} on this machine" if not rejected else f"the fastest{proof} that may run here"


def variants_for(device: Device) -> Sequence[Variant]:
    """Every variant for `device`, fastest first, including those that do not run on this machine.

    The order was measured (scripts/tools/bench/README.md); int8 on AMX was not.
    """
    # The last one runs models that are ONNX already, which need a padded variant, and models that no packed variant takes.
    if device == "cuda":
        return (PackedFloat16(), PaddedFloat16(), PackedCudaFloat32(), PaddedFloat32(runtime="cuda"))
    return (OpenVinoInt8(), OpenVinoBfloat16(), OpenVinoFloat32(), PackedFloat32(), PaddedFloat32())


def variant_named(
    device: Device, precision: str, problem: Callable[[Variant], str | None] = lambda variant: variant.problem()
) -> Variant:
    """The fastest variant for `device` of `precision` (fp32, fp16, bf16, int8) without a `problem`; else the fastest.

    Raises ModelError if there is no variant of that precision.
    """
    variants = variants_for(device)
    if suitable := [variant for variant in variants if variant.precision == precision]:
        return next((variant for variant in suitable if problem(variant) is None), suitable[0])
    known = ", ".join(dict.fromkeys(variant.precision for variant in variants))
    raise ModelError(
        f"precision {precision} has no variant on {device}; there are {known}. Choose one of them, or auto."
    )
