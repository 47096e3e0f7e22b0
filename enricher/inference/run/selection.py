"""Which variant runs a checkpoint here: the fastest that this machine runs and whose gate report passes.

Only chooses: variants are listed by catalogue.py, reports are made by `enricher model check` (gate/).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from enricher.errors import ModelError
from enricher.inference.checkpoint.gate_report import read_reports
from enricher.inference.checkpoint.onnx_folder import OnnxModel
from enricher.inference.graph.builder import BUILDER_VERSION
from enricher.inference.graph.catalogue import variant_named, variants_for
from enricher.inference.graph.external import padded_variant

if TYPE_CHECKING:
    from enricher.inference.checkpoint.folder import Checkpoint
    from enricher.inference.checkpoint.gate_report import GateReport
    from enricher.inference.device.session import Device
    from enricher.inference.graph.variants import Variant

Precision = Literal["auto", "fp16", "bf16", "fp32", "int8"]


@dataclass(frozen=True, slots=True)
class Choice:
    """What runs, why, and why nothing faster does (`rejected`: faster variants, each with its reason)."""

    variant: Variant
    reason: str
    rejected: list[tuple[Variant, str]]


def choose(checkpoint: Checkpoint, device: Device, precision: Precision, *, cache_dir: Path | None = None) -> Choice:
    """The variant for `checkpoint` on `device`; a precision by name must run and pass, or ModelError says what to do.

    Reports are looked for in the checkpoint's folder, then in its place in `cache_dir`.
    """
    if precision != "auto":
        return _named(checkpoint, device, precision, cache_dir)
    rejected: list[tuple[Variant, str]] = []
    for variant in variants_for(device):
        obstacle = obstacle_to(checkpoint, device, variant, cache_dir)
        if obstacle is None:
            return Choice(variant, _reason(variant, rejected), rejected)
        rejected.append((variant, obstacle))
    raise ModelError(f"no variant of {checkpoint.name} runs on {device}: {_listed(rejected)}.")


def problem_of(checkpoint: Checkpoint, variant: Variant) -> str | None:
    """Why `variant` cannot run this model on this machine, proven or not; None where it can."""
    if isinstance(checkpoint, OnnxModel):
        try:
            return padded_variant(variant).problem()
        except ModelError as error:
            return str(error)
    return variant.problem()


def obstacle_to(checkpoint: Checkpoint, device: Device, variant: Variant, cache_dir: Path | None) -> str | None:
    """Why `variant` may not serve: it does not run here, or is not proven; None where it may."""
    return problem_of(checkpoint, variant) or _unproven(checkpoint, device, variant, cache_dir)


def report_folders(checkpoint: Checkpoint, cache_dir: Path | None) -> list[Path]:
    """Where a report may lie: the checkpoint's folder, and its place in the cache, which the commands write to."""
    beside_graphs = [] if cache_dir is None else [cache_dir / f"{checkpoint.digest[:32]}-reports"]
    return [checkpoint.folder, *beside_graphs]


def check_command(checkpoint: Checkpoint, device: Device, variant: Variant) -> str:
    """What to type to make the report of a variant."""
    on = " --device cuda" if device == "cuda" else ""
    return f"enricher model check {checkpoint.folder} --precision {variant.precision}{on}"


def missing_reports(checkpoint: Checkpoint, device: Device, cache_dir: Path | None) -> list[str]:
    """The commands that would make what `auto` misses: reports of reduced variants that this machine runs, fastest first."""
    runnable = [
        variant for variant in variants_for(device) if variant.reduced and problem_of(checkpoint, variant) is None
    ]
    missing = [variant for variant in runnable if not _reports(checkpoint, variant, cache_dir)]
    return [check_command(checkpoint, device, variant) for variant in missing]


def named_variant(checkpoint: Checkpoint, device: Device, precision: str) -> Variant:
    """The fastest variant of that precision for `device` that this kind of model can take. Raises ModelError."""
    return variant_named(device, precision, padded=isinstance(checkpoint, OnnxModel))


def _named(checkpoint: Checkpoint, device: Device, precision: str, cache_dir: Path | None) -> Choice:
    variant = named_variant(checkpoint, device, precision)
    problem = problem_of(checkpoint, variant)
    if problem is not None:
        raise ModelError(f"precision {precision} does not run here: {problem}. Choose auto, or another machine.")
    unproven = _unproven(checkpoint, device, variant, cache_dir)
    if unproven is not None:
        raise ModelError(f"precision {precision} is refused: {unproven}. Or choose auto, which takes what is proven.")
    return Choice(variant, f"precision {precision} was asked for", [])


def _unproven(checkpoint: Checkpoint, device: Device, variant: Variant, cache_dir: Path | None) -> str | None:
    """Why a reduced variant must not serve; None where a report says that it may, and for variants that need none."""
    if not variant.reduced:
        return None
    ours = _reports(checkpoint, variant, cache_dir)
    if not ours:
        others = any(read_reports(report_folders(checkpoint, cache_dir), variant.name))
        also = " of this model and builder" if others else ""
        return f"there is no gate report{also} for {variant.name}; `{check_command(checkpoint, device, variant)}` makes one"
    newest = max(ours, key=lambda report: report.bound_to.created_at)
    return None if newest.passed else f"{variant.name} failed its gate: {'; '.join(newest.reasons)}"


def _reports(checkpoint: Checkpoint, variant: Variant, cache_dir: Path | None) -> list[GateReport]:
    """Those that count."""
    found = read_reports(report_folders(checkpoint, cache_dir), variant.name)
    return [each for each in found if each.counts_for(checkpoint.digest, variant.name, BUILDER_VERSION)]


def _reason(variant: Variant, rejected: list[tuple[Variant, str]]) -> str:
    proof = " that passed its gate" if variant.reduced else ""
    return f"the fastest variant{proof} on this machine" if not rejected else f"the fastest{proof} that may run here"


def _listed(rejected: list[tuple[Variant, str]]) -> str:
    return "; ".join(f"{variant.name}: {why}" for variant, why in rejected)
