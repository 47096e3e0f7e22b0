"""The quality gate: runs padded fp32 and a reduced variant of one checkpoint over the same gold set, and makes a report.

It runs the steps in order; each step has its own file.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import onnxruntime as ort

from enricher.distribution import installed_version
from enricher.worker.inference.checkpoint.gate_report import Binding
from enricher.worker.inference.device.opening import arithmetic_of
from enricher.worker.inference.device.processor import processor_features, processor_name
from enricher.worker.inference.graph.builder import BUILDER_VERSION
from enricher.worker.inference.graph.padded import PaddedFloat32
from enricher.worker.inference.run.model import prepare_variant
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.workshop.gate.batches import COMPOSITIONS, USUAL
from enricher.workshop.gate.gold import GoldSet, join_texts
from enricher.workshop.gate.kinds import YARDSTICKS, Measured, Pair
from enricher.workshop.gate.report import GateReport
from enricher.workshop.gate.runs import Progress, tokenize_texts

if TYPE_CHECKING:
    from pathlib import Path

    from enricher.worker.inference.checkpoint.folder import Checkpoint
    from enricher.worker.inference.device.session import Device
    from enricher.worker.inference.graph.variants import Variant
    from enricher.worker.inference.run.model import PreparedModel


@dataclass(frozen=True, slots=True)
class Gate:
    """Measures and judges variants. Graphs are kept in `cache_dir`; `progress` is called from the checking thread."""

    gold: GoldSet
    limit_points: float
    cache_dir: Path
    progress: Progress
    device_id: int = 0
    """The number of the GPU."""

    def reference(self, checkpoint: Checkpoint, device: Device) -> Measured[Any]:
        """The answers of fp32, which checks of several variants of one model can share.

        The reference is padded on a GPU too, where fp32 serves packed, so that it cannot share a mistake in the packed
        layout.
        """
        return self.measure(checkpoint, PaddedFloat32(runtime=device), device)

    def check(
        self,
        checkpoint: Checkpoint,
        variant: Variant,
        device: Device,
        reference: Measured[Any] | None = None,
    ) -> GateReport:
        """Measure and judge `variant`. Blocks: half a minute for a small model. Raises ModelError, FatalError."""
        first = reference or self.reference(checkpoint, device)
        reduced = self.measure(checkpoint, variant, device)
        pair = Pair(checkpoint.head, self.gold, self.limit_points, first, reduced)
        found = YARDSTICKS[checkpoint.head.kind].findings(pair)
        return GateReport(
            passed=found.verdict.passed,
            reasons=found.verdict.reasons,
            limit_points=self.limit_points,
            bound_to=_binding(reduced.model, self.gold),
            comparisons=found.comparisons,
            compositions=found.compositions,
            classes=found.classes,
            vectors=found.vectors,
        )

    def measure(self, checkpoint: Checkpoint, variant: Variant, device: Device) -> Measured[Any]:
        """All runs of one variant. Raises ModelError, FatalError."""
        model = prepare_variant(checkpoint, variant, device, cache_dir=self.cache_dir, device_id=self.device_id)
        tokenizer = ArticleTokenizer(checkpoint)
        sentences = tokenize_texts(checkpoint, tokenizer, self.gold.texts)
        documents = tokenize_texts(checkpoint, tokenizer, join_texts(self.gold.texts))
        runner = YARDSTICKS[checkpoint.head.kind].runner(model, self.progress)
        runs = tuple(runner.run(sentences, batching, f"{variant.name}, {name}") for name, batching in COMPOSITIONS)
        return Measured(model, runs, runner.run(documents, COMPOSITIONS[USUAL][1], f"{variant.name}, documents"))


def _binding(model: PreparedModel, gold: GoldSet) -> Binding:
    return Binding(
        model_digest=model.checkpoint.digest,
        variant=model.variant.name,
        builder_version=BUILDER_VERSION,
        recipe_digest=model.recipe_digest,
        arithmetic=arithmetic_of(model.variant.runtime),
        model_name=model.checkpoint.name,
        precision=model.variant.precision,
        gold_digest=gold.digest,
        gold_name=gold.name,
        onnxruntime=ort.__version__,
        provider=model.provider,
        processor=processor_name(model.device, model.device_id),
        processor_features=processor_features(),
        enricher=installed_version(),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
