"""Which form runs a checkpoint here: the fastest that this machine runs and whose gate report passes.

Only chooses: forms are listed by catalogue.py, reports are made by `enricher model check` (gate/).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from enricher.errors import ModelError
from enricher.inference.checkpoint.onnx_folder import OnnxModel
from enricher.inference.gate.report import read_reports
from enricher.inference.graph.builder import BUILDER_VERSION
from enricher.inference.graph.catalogue import form_named, forms_for
from enricher.inference.graph.external import padded_form

if TYPE_CHECKING:
    from enricher.inference.checkpoint.folder import Checkpoint
    from enricher.inference.gate.report import GateReport
    from enricher.inference.graph.variants import Form
    from enricher.inference.run.device import Device

Precision = Literal["auto", "fp16", "bf16", "fp32", "int8"]


@dataclass(frozen=True, slots=True)
class Choice:
    """What runs, why, and why nothing faster does (`rejected`: faster forms, each with its reason)."""

    form: Form
    reason: str
    rejected: list[tuple[Form, str]]


def choose(checkpoint: Checkpoint, device: Device, precision: Precision, *, cache_dir: Path | None = None) -> Choice:
    """The form for `checkpoint` on `device`; a precision by name must run and pass, or ModelError says what to do.

    Reports are looked for in the checkpoint's folder, then in its place in `cache_dir`.
    """
    if precision != "auto":
        return _named(checkpoint, device, precision, cache_dir)
    rejected: list[tuple[Form, str]] = []
    for form in forms_for(device):
        obstacle = obstacle_to(checkpoint, device, form, cache_dir)
        if obstacle is None:
            return Choice(form, _reason(form, rejected), rejected)
        rejected.append((form, obstacle))
    raise ModelError(f"no form of {checkpoint.name} runs on {device}: {_listed(rejected)}.")


def problem_of(checkpoint: Checkpoint, form: Form) -> str | None:
    """Why `form` cannot run this model on this machine, proven or not; None where it can."""
    if isinstance(checkpoint, OnnxModel):
        try:
            return padded_form(form).problem()
        except ModelError as error:
            return str(error)
    return form.problem()


def obstacle_to(checkpoint: Checkpoint, device: Device, form: Form, cache_dir: Path | None) -> str | None:
    """Why `form` may not serve: it does not run here, or is not proven; None where it may."""
    return problem_of(checkpoint, form) or _unproven(checkpoint, device, form, cache_dir)


def report_folders(checkpoint: Checkpoint, cache_dir: Path | None) -> list[Path]:
    """Where a report may lie: the checkpoint's folder, and its place in the cache, which the commands write to."""
    beside_graphs = [] if cache_dir is None else [cache_dir / f"{checkpoint.digest[:32]}-reports"]
    return [checkpoint.folder, *beside_graphs]


def check_command(checkpoint: Checkpoint, device: Device, form: Form) -> str:
    """What to type to make the report of a form."""
    on = " --device cuda" if device == "cuda" else ""
    return f"enricher model check {checkpoint.folder} --precision {form.precision}{on}"


def missing_reports(checkpoint: Checkpoint, device: Device, cache_dir: Path | None) -> list[str]:
    """The commands that would make what `auto` misses: reports of reduced forms that this machine runs, fastest first."""
    runnable = [form for form in forms_for(device) if form.reduced and problem_of(checkpoint, form) is None]
    missing = [form for form in runnable if not _reports(checkpoint, form, cache_dir)]
    return [check_command(checkpoint, device, form) for form in missing]


def named_form(checkpoint: Checkpoint, device: Device, precision: str) -> Form:
    """The fastest form of that precision for `device` that this kind of model can take. Raises ModelError."""
    return form_named(device, precision, padded=isinstance(checkpoint, OnnxModel))


def _named(checkpoint: Checkpoint, device: Device, precision: str, cache_dir: Path | None) -> Choice:
    form = named_form(checkpoint, device, precision)
    problem = problem_of(checkpoint, form)
    if problem is not None:
        raise ModelError(f"precision {precision} does not run here: {problem}. Choose auto, or another machine.")
    unproven = _unproven(checkpoint, device, form, cache_dir)
    if unproven is not None:
        raise ModelError(f"precision {precision} is refused: {unproven}. Or choose auto, which takes what is proven.")
    return Choice(form, f"precision {precision} was asked for", [])


def _unproven(checkpoint: Checkpoint, device: Device, form: Form, cache_dir: Path | None) -> str | None:
    """Why a reduced form must not serve; None where a report says that it may, and for forms that need none."""
    if not form.reduced:
        return None
    ours = _reports(checkpoint, form, cache_dir)
    if not ours:
        others = any(read_reports(report_folders(checkpoint, cache_dir), form.name))
        also = " of this model and builder" if others else ""
        return f"there is no gate report{also} for {form.name}; `{check_command(checkpoint, device, form)}` makes one"
    newest = max(ours, key=lambda report: report.bound_to.created_at)
    return None if newest.passed else f"{form.name} failed its gate: {'; '.join(newest.reasons)}"


def _reports(checkpoint: Checkpoint, form: Form, cache_dir: Path | None) -> list[GateReport]:
    """Those that count."""
    found = read_reports(report_folders(checkpoint, cache_dir), form.name)
    return [each for each in found if each.counts_for(checkpoint.digest, form.name, BUILDER_VERSION)]


def _reason(form: Form, rejected: list[tuple[Form, str]]) -> str:
    proof = " that passed its gate" if form.reduced else ""
    return f"the fastest form{proof} on this machine" if not rejected else f"the fastest{proof} that may run here"


def _listed(rejected: list[tuple[Form, str]]) -> str:
    return "; ".join(f"{form.name}: {why}" for form, why in rejected)
