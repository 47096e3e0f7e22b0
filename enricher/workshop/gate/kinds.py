"""How the gate measures and judges each kind of head: its gold set, its runs, and its figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from enricher.workshop.gate.batches import COMPOSITIONS, USUAL
from enricher.workshop.gate.classes import ClassScale, compare_classes, compose_classes
from enricher.workshop.gate.gold import DEFAULT_GOLD, built_in_gold, join_texts, read_classes, read_gold, read_texts
from enricher.workshop.gate.measure import compare, composition
from enricher.workshop.gate.report import ClassFigures, VectorFigures
from enricher.workshop.gate.runs import RowsRun, RowsRunner, VariantRun, VariantRunner
from enricher.workshop.gate.vectors import compare_vectors, compose_vectors
from enricher.workshop.gate.verdict import judge_classes, judge_entities, judge_vectors

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path
    from typing import Any

    from enricher.worker.heads import HeadSpec
    from enricher.worker.inference.run.model import PreparedModel
    from enricher.worker.records import TaskKind
    from enricher.workshop.gate.batches import Batching
    from enricher.workshop.gate.gold import GoldSet
    from enricher.workshop.gate.report import Comparison, Composition
    from enricher.workshop.gate.runs import Progress, TokenizedTexts
    from enricher.workshop.gate.verdict import GateVerdict

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
    """The verdict and the figures of a report; only those of the head's kind are set."""

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
    """How one kind of head is measured. `runner` runs it, and `findings` compares a pair of variants.

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

    `languages`: those that the model was measured in, of which there may be built-in sets.
    """
    yardstick = YARDSTICKS.get(head.kind)
    return (yardstick.gold if yardstick else _texts)(head, path, languages)
