"""How the gate measures and judges each kind of head: its gold set, its runs, and what their figures mean."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from enricher.worker.inference.checkpoint.gate_figures import ClassFigures, VectorFigures
from enricher.workshop.gate.batches import COMPOSITIONS, USUAL
from enricher.workshop.gate.classes import ClassScale, compare_classes, compose_classes
from enricher.workshop.gate.gold import DEFAULT_GOLD, joined, read_gold
from enricher.workshop.gate.gold_classes import read_classes, read_texts
from enricher.workshop.gate.measure import compare, composition
from enricher.workshop.gate.rows import RowsRun, RowsRunner
from enricher.workshop.gate.runs import Progress, VariantRun, VariantRunner
from enricher.workshop.gate.vectors import compare_vectors, compose_vectors
from enricher.workshop.gate.verdict import judge
from enricher.workshop.gate.verdict_rows import judge_classes, judge_vectors

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    from enricher.worker.heads import HeadSpec
    from enricher.worker.inference.checkpoint.gate_figures import Comparison, Composition
    from enricher.worker.inference.run.model import PreparedModel
    from enricher.worker.records import TaskKind
    from enricher.workshop.gate.batches import Batching
    from enricher.workshop.gate.gold import GoldSet
    from enricher.workshop.gate.runs import TokenizedTexts
    from enricher.workshop.gate.verdict import GateVerdict

Run = TypeVar("Run")
_Run_co = TypeVar("_Run_co", covariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class Measured(Generic[Run]):
    """The answers of one variant: a run for each of COMPOSITIONS, and one on documents."""

    model: PreparedModel
    runs: tuple[Run, ...]
    documents: Run

    @property
    def variant(self) -> str:
        """The name of the variant."""
        return self.model.variant.name


@dataclass(frozen=True, slots=True)
class Findings:
    """The figures of a report about the head, of one kind."""

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


class Yardstick(ABC, Generic[Run]):
    """One kind of head."""

    @abstractmethod
    def gold(self, head: HeadSpec, path: Path | None) -> GoldSet:
        """The gold set; without a path, the built-in texts. Raises FatalError, with the line, if it cannot be used."""

    @abstractmethod
    def runner(self, model: PreparedModel, progress: Progress) -> Runner[Run]:
        """Opens a session."""

    @abstractmethod
    def findings(
        self, head: HeadSpec, gold: GoldSet, reference: Measured[Run], reduced: Measured[Run], limit_points: float
    ) -> Findings:
        """Compare a variant with fp32, and judge it."""


class Entities(Yardstick[VariantRun]):
    """Compares labels and spans with those of the gold set."""

    def gold(self, head: HeadSpec, path: Path | None) -> GoldSet:
        """Reads texts with their entities."""
        del head
        return read_gold(path or DEFAULT_GOLD)

    def runner(self, model: PreparedModel, progress: Progress) -> Runner[VariantRun]:
        """Decodes as the worker does."""
        return VariantRunner(model, progress)

    def findings(
        self,
        head: HeadSpec,
        gold: GoldSet,
        reference: Measured[VariantRun],
        reduced: Measured[VariantRun],
        limit_points: float,
    ) -> Findings:
        """Judges by F1, and by how often labels change with the company in a batch."""
        del head
        comparisons = (
            compare("sentences", gold.texts, reference.runs[USUAL], reduced.runs[USUAL]),
            compare("documents", joined(gold.texts), reference.documents, reduced.documents),
        )
        compositions = tuple(
            composition(name, each.variant, gold.texts, each.runs[0], run)
            for each in (reference, reduced)
            for (name, _), run in zip(COMPOSITIONS, each.runs, strict=True)
        )
        return Findings(judge(comparisons, compositions, reduced.variant, limit_points), comparisons, compositions)


class Classes(Yardstick[RowsRun]):
    """Compares classes with those of the gold set, or with those of fp32 where it has none."""

    def gold(self, head: HeadSpec, path: Path | None) -> GoldSet:
        """Reads texts with their classes; the built-in ones have none."""
        return read_classes(path, head) if path else read_texts(DEFAULT_GOLD)

    def runner(self, model: PreparedModel, progress: Progress) -> Runner[RowsRun]:
        """Pools the rows of windows."""
        return RowsRunner(model, progress)

    def findings(
        self,
        head: HeadSpec,
        gold: GoldSet,
        reference: Measured[RowsRun],
        reduced: Measured[RowsRun],
        limit_points: float,
    ) -> Findings:
        """Judges by how many texts change their class."""
        scale, usual = ClassScale(head, limit_points), reference.runs[USUAL]
        classes = ClassFigures(
            multi_label=head.multi_label,
            comparisons=(
                compare_classes("texts", scale, gold.texts, usual, reduced.runs[USUAL]),
                compare_classes("documents", scale, joined(gold.texts), reference.documents, reduced.documents),
            ),
            compositions=tuple(
                compose_classes(name, each.variant, scale, gold.texts, usual, (each.runs[0], run))
                for each in (reference, reduced)
                for (name, _), run in zip(COMPOSITIONS, each.runs, strict=True)
            ),
        )
        return Findings(judge_classes(classes, reduced.variant, limit_points), classes=classes)


class Vectors(Yardstick[RowsRun]):
    """Compares vectors with those of fp32: no text has a right one."""

    def gold(self, head: HeadSpec, path: Path | None) -> GoldSet:
        """Reads texts alone, whatever else the lines say."""
        del head
        return read_texts(path or DEFAULT_GOLD)

    def runner(self, model: PreparedModel, progress: Progress) -> Runner[RowsRun]:
        """Pools the rows of windows."""
        return RowsRunner(model, progress)

    def findings(
        self,
        head: HeadSpec,
        gold: GoldSet,
        reference: Measured[RowsRun],
        reduced: Measured[RowsRun],
        limit_points: float,
    ) -> Findings:
        """Judges by cosines, and by who is whose neighbour."""
        del gold, limit_points
        vectors = VectorFigures(
            dimensions=head.dimensions,
            comparisons=(
                compare_vectors("texts", reference.runs[USUAL], reduced.runs[USUAL]),
                compare_vectors("documents", reference.documents, reduced.documents),
            ),
            compositions=tuple(
                compose_vectors(name, each.variant, each.runs[0], run)
                for each in (reference, reduced)
                for (name, _), run in zip(COMPOSITIONS, each.runs, strict=True)
            ),
        )
        return Findings(judge_vectors(vectors, reduced.variant), vectors=vectors)


YARDSTICKS: Mapping[TaskKind, Yardstick[Any]] = {
    "ner": Entities(),
    "classification": Classes(),
    "embedding": Vectors(),
}
"""A kind that is not here is served in fp32 alone (`Head.compares`), and is not measured."""


def gold_for(head: HeadSpec, path: Path | None) -> GoldSet:
    """The gold set that suits a head, as its yardstick reads it; texts alone for a head that is not measured."""
    yardstick = YARDSTICKS.get(head.kind) or Vectors()
    return yardstick.gold(head, path)
