"""The quality gate: padded fp32 and a reduced variant of one checkpoint over the same gold set -> a report.

Runs the steps in order; each step has its own file.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING

import onnxruntime as ort

from enricher.inference.checkpoint.gate_report import Binding, Comparison, Composition, GateReport
from enricher.inference.device.processor import processor_features, processor_name
from enricher.inference.gate.batches import COMPOSITIONS
from enricher.inference.gate.gold import GoldSet, joined
from enricher.inference.gate.measure import compare, composition
from enricher.inference.gate.runs import Progress, VariantRun, VariantRunner, tokenized
from enricher.inference.gate.verdict import judge
from enricher.inference.graph.builder import BUILDER_VERSION
from enricher.inference.graph.padded import PaddedFloat32
from enricher.inference.run.model import prepare_variant
from enricher.inference.tokenizer.articles import ArticleTokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from enricher.inference.checkpoint.folder import Checkpoint
    from enricher.inference.device.session import Device
    from enricher.inference.graph.variants import Variant
    from enricher.inference.run.model import PreparedModel

_USUAL = 1
"""The index in COMPOSITIONS of the batches for F1: those nearest to a worker's."""


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """The answers of one variant on the gold set: a run for each of COMPOSITIONS, and one on documents."""

    model: PreparedModel
    runs: tuple[VariantRun, ...]
    documents: VariantRun


@dataclass(frozen=True, slots=True)
class Gate:
    """Measures and judges variants. Graphs are kept in `cache_dir`; `progress` is called from the checking thread."""

    gold: GoldSet
    limit_points: float
    cache_dir: Path
    progress: Progress
    device_id: int = 0
    """The number of the GPU."""

    def reference(self, checkpoint: Checkpoint, device: Device) -> Measured:
        """The answers of fp32, which checks of several variants of one model can share."""
        return self.measured(checkpoint, PaddedFloat32(runtime=device), device)

    def check(
        self, checkpoint: Checkpoint, variant: Variant, device: Device, reference: Measured | None = None
    ) -> GateReport:
        """Measure and judge `variant`. Blocks: half a minute for a small model. Raises ModelError, FatalError."""
        pair = (reference or self.reference(checkpoint, device), self.measured(checkpoint, variant, device))
        comparisons, compositions = self._compared(*pair), self._composed(*pair)
        verdict = judge(comparisons, compositions, variant.name, self.limit_points)
        return GateReport(
            passed=verdict.passed,
            reasons=verdict.reasons,
            limit_points=self.limit_points,
            bound_to=_binding(pair[1].model, self.gold),
            comparisons=comparisons,
            compositions=compositions,
        )

    def measured(self, checkpoint: Checkpoint, variant: Variant, device: Device) -> Measured:
        """All runs of one variant. Raises ModelError, FatalError."""
        model = prepare_variant(checkpoint, variant, device, cache_dir=self.cache_dir, device_id=self.device_id)
        runner, tokenizer = VariantRunner(model, self.progress), ArticleTokenizer(checkpoint)
        sentences = tokenized(checkpoint, tokenizer, self.gold.texts)
        documents = tokenized(checkpoint, tokenizer, joined(self.gold.texts))
        runs = tuple(runner.run(sentences, batching, f"{variant.name}, {name}") for name, batching in COMPOSITIONS)
        on_documents = runner.run(documents, COMPOSITIONS[_USUAL][1], f"{variant.name}, documents")
        return Measured(model, runs, on_documents)

    def _compared(self, reference: Measured, reduced: Measured) -> tuple[Comparison, ...]:
        return (
            compare("sentences", self.gold.texts, reference.runs[_USUAL], reduced.runs[_USUAL]),
            compare("documents", joined(self.gold.texts), reference.documents, reduced.documents),
        )

    def _composed(self, *variants: Measured) -> tuple[Composition, ...]:
        return tuple(
            composition(name, each.model.variant.name, self.gold.texts, each.runs[0], run)
            for each in variants
            for (name, _), run in zip(COMPOSITIONS, each.runs, strict=True)
        )


def _binding(model: PreparedModel, gold: GoldSet) -> Binding:
    return Binding(
        model_digest=model.checkpoint.digest,
        variant=model.variant.name,
        builder_version=BUILDER_VERSION,
        recipe_digest=model.recipe_digest,
        model_name=model.checkpoint.name,
        precision=model.variant.precision,
        gold_digest=gold.digest,
        gold_name=gold.name,
        onnxruntime=ort.__version__,
        provider=model.provider,
        processor=processor_name(model.device),
        processor_features=processor_features(),
        enricher=version("enricher"),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
