"""Gate reports and int8 recipes that are valid for any model and made at once, without running one."""

from __future__ import annotations

import json
from typing import Any

from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.checkpoint.gate_report import report_path
from enricher.worker.inference.graph.builder import BUILDER_VERSION
from enricher.worker.inference.graph.int8 import Measured, Recipe, TextsUsed
from enricher.worker.inference.graph.padded import OpenVinoBfloat16
from enricher.worker.inference.graph.variants import Variant
from enricher.workshop.gate.report import GateReport
from support.models import MINILM_FOLDER


def empty_recipe(checkpoint: Checkpoint, **changes: Any) -> Recipe:  # noqa: ANN401  any field
    """For `checkpoint`, unless `changes` say otherwise."""
    recipe = Recipe(
        model_digest=checkpoint.digest,
        builder_version=BUILDER_VERSION,
        seed=0,
        texts=TextsUsed(name="none", digest="0" * 64, number=0, windows=0, tokens=0),
        inputs=(),
        kept=(),
        measured=Measured(windows=0, tokens=0, divergence=0.0, equal_labels=1.0, target=0.998),
    )
    return recipe.model_copy(update=changes)


SHIPPED = json.loads(report_path(MINILM_FOLDER, OpenVinoBfloat16().name).read_text())


def report(checkpoint: Checkpoint, about: Variant, /, *, passed: bool = True, **bound_to: Any) -> GateReport:  # noqa: ANN401  any field
    """A report about a variant; what it is bound to can be changed."""
    own = {"model_digest": checkpoint.digest, "variant": about.name, "builder_version": BUILDER_VERSION}
    reasons = ["sentences: F1 -1.40 points, and 0.3 may be lost"]
    changed = {"passed": passed, "reasons": reasons, "bound_to": {**SHIPPED["bound_to"], **own, **bound_to}}
    return GateReport.model_validate_json(json.dumps({**SHIPPED, **changed}))
