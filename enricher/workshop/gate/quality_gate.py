"""The quality gate: runs padded fp32 and a reduced variant of one checkpoint over the same gold set, and makes a report.

It runs the steps in order; each step has its own file. `YARDSTICKS` says how each kind of head is measured and judged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import onnxruntime as ort

from enricher.distribution import installed_version
from enricher.worker.heads import HeadSpec
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.checkpoint.gate_report import Binding
from enricher.worker.inference.device.hardware import processor_features, processor_name
from enricher.worker.inference.device.sessions import Device, arithmetic_of
from enricher.worker.inference.graph.builder import BUILDER_VERSION
from enricher.worker.inference.graph.padded import PaddedFloat32
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.inference.run.model import PreparedModel, prepare_variant
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.records import TaskKind
from enricher.workshop.gate.gold import (
    DEFAULT_GOLD,
    GoldSet,
    built_in_gold,
    join_texts,
    read_classes,
    read_gold,
    read_texts,
)
from enricher.workshop.gate.measure import (
    ClassScale,
    compare,
    compare_classes,
    compare_vectors,
    compose_classes,
    compose_vectors,
    composition,
)
from enricher.workshop.gate.report import ClassFigures, Comparison, Composition, GateReport, VectorFigures
from enricher.workshop.gate.runs import (
    COMPOSITIONS,
    USUAL,
    Batching,
    Progress,
    RowsRun,
    RowsRunner,
    TokenizedTexts,
    VariantRun,
    VariantRunner,
    tokenize_texts,
)
from enricher.workshop.gate.verdict import GateVerdict, judge_classes, judge_entities, judge_vectors


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


Run = TypeVar("Run")
_Run_co = TypeVar("_Run_co", covariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class Measured(Generic[Run]):
    """The answers of one variant: a run for each of COMPOSITIONS, and one on documents."""

    model: PreparedModel
    runs: tuple[Run, ...]
    documents: Run


@dataclass(frozen=True, slots=True)
class Findings:
    """The verdict and the figures of a report; only the figures of the head's kind are set."""

    verdict: GateVerdict
    comparisons: tuple[Comparison, ...] = ()
    compositions: tuple[Composition, ...] = ()
    classes: ClassFigures | None = None
    vectors: VectorFigures | None = None


class Runner(Protocol[_Run_co]):
    """Runs texts through one variant."""

    def run(self, texts: TokenizedTexts, batching: Batching, stage: str) -> _Run_co:
        """Run all texts, in the batches that `batching` makes. Raises ModelError, FatalError."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Pair(Generic[Run]):
    """The answers of fp32 and of a reduced variant about one gold set."""

    head: HeadSpec
    gold: GoldSet
    limit_points: float
    reference: Measured[Run]
    reduced: Measured[Run]

    def compositions(self) -> Iterator[tuple[str, str, Run, Run]]:
        """Each way to batch: its name, the variant, the variant's first run, and its run in this way."""
        for each in (self.reference, self.reduced):
            for (name, _), run in zip(COMPOSITIONS, each.runs, strict=True):
                yield name, each.model.variant.name, each.runs[0], run


@dataclass(frozen=True, slots=True)
class Yardstick(Generic[Run]):
    """The functions that measure one kind of head: `runner` runs it, and `findings` compares a pair of variants.

    `gold` reads a file, or without a path the built-in texts, of a model's languages where they are labelled. Raises
    FatalError, with the line, if they cannot be used.
    """

    gold: Callable[[HeadSpec, Path | None, Collection[str]], GoldSet]
    runner: Callable[[PreparedModel, Progress], Runner[Run]]
    findings: Callable[[Pair[Run]], Findings]


def _entities(pair: Pair[VariantRun]) -> Findings:
    """Judge by F1, and by how often labels depend on the other windows of a batch."""
    texts, reference, reduced = pair.gold.texts, pair.reference, pair.reduced
    comparisons = (
        compare("sentences", texts, reference.runs[USUAL], reduced.runs[USUAL]),
        compare("documents", join_texts(texts), reference.documents, reduced.documents),
    )
    compositions = tuple(
        composition(name, variant, texts, first, run) for name, variant, first, run in pair.compositions()
    )
    verdict = judge_entities(comparisons, compositions, reduced.model.variant.name, pair.limit_points)
    return Findings(verdict, comparisons, compositions)


def _classes(pair: Pair[RowsRun]) -> Findings:
    """Judge by how many texts change their class."""
    scale, texts = ClassScale(pair.head, pair.limit_points), pair.gold.texts
    reference, reduced = pair.reference, pair.reduced
    usual = reference.runs[USUAL]
    classes = ClassFigures(
        multi_label=pair.head.multi_label,
        comparisons=(
            compare_classes("texts", scale, texts, usual, reduced.runs[USUAL]),
            compare_classes("documents", scale, join_texts(texts), reference.documents, reduced.documents),
        ),
        compositions=tuple(
            compose_classes(name, variant, scale, texts, usual, (first, run))
            for name, variant, first, run in pair.compositions()
        ),
    )
    return Findings(judge_classes(classes, reduced.model.variant.name, pair.limit_points), classes=classes)


def _vectors(pair: Pair[RowsRun]) -> Findings:
    """Judge by cosines, and by which texts are nearest to each other."""
    reference, reduced = pair.reference, pair.reduced
    vectors = VectorFigures(
        dimensions=pair.head.dimensions,
        comparisons=(
            compare_vectors("texts", reference.runs[USUAL], reduced.runs[USUAL]),
            compare_vectors("documents", reference.documents, reduced.documents),
        ),
        compositions=tuple(
            compose_vectors(name, variant, first, run) for name, variant, first, run in pair.compositions()
        ),
    )
    return Findings(judge_vectors(vectors, reduced.model.variant.name), vectors=vectors)


def _texts(_head: HeadSpec, path: Path | None, _languages: Collection[str]) -> GoldSet:
    return read_texts(path or DEFAULT_GOLD)


YARDSTICKS: Mapping[TaskKind, Yardstick[Any]] = {
    "ner": Yardstick(
        lambda _head, path, languages: read_gold(path) if path else built_in_gold(languages), VariantRunner, _entities
    ),
    "classification": Yardstick(
        lambda head, path, _languages: read_classes(path, head) if path else read_texts(DEFAULT_GOLD),
        RowsRunner,
        _classes,
    ),
    "embedding": Yardstick(_texts, RowsRunner, _vectors),
}
"""A kind that is missing here is served only in fp32 (`Head.compares`), and is not measured."""


def gold_for(head: HeadSpec, path: Path | None, languages: Collection[str] = ()) -> GoldSet:
    """The gold set that suits a head, as its yardstick reads it; texts alone for a head that is not measured.

    `languages`: the languages in which the model was measured; some have built-in sets.
    """
    yardstick = YARDSTICKS.get(head.kind)
    return (yardstick.gold if yardstick else _texts)(head, path, languages)
