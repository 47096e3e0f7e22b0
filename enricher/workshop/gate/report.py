"""The quality gate's report: its figures for each kind of head, and writing. The other files measure and judge.

A report on entities has `comparisons` and `compositions`; one on classes has `classes`, one on vectors `vectors`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field

from enricher.worker.inference.checkpoint.gate_report import GateResult, Part, is_absent, report_path


class Agreement(Part):
    """Entities by exact span: precision, recall and F1 between 0 and 1, and the counts behind them."""

    model_config = ConfigDict(from_attributes=True)  # reads those of Counts in workshop/gate/scoring.py

    precision: float
    recall: float
    f1: float
    right: int = Field(description="Predicted and in the gold set (or in the other prediction).")
    predicted: int
    expected: int


class Row(Part):
    """One type, one length bucket, or all texts: both variants and the difference between them."""

    name: str
    reference: Agreement
    reduced: Agreement
    delta_points: float = Field(description="100 x (F1 of the reduced variant - F1 of fp32): below zero is a loss.")
    low_points: float = Field(description="2.5 % bound of delta_points, paired bootstrap over texts.")
    high_points: float = Field(description="97.5 % bound.")


class Comparison(Part):
    """One set of texts, run through both variants."""

    name: Literal["sentences", "documents"]
    texts: int
    tokens: int
    windows: int
    overall: Row
    by_type: tuple[Row, ...]
    by_length: tuple[Row, ...]
    by_set: tuple[Row, ...] | None = Field(
        default=None, exclude_if=is_absent, description="Each gold set, if several were joined, as one per language is."
    )
    spans: Agreement = Field(description="The reduced variant's entities against those of fp32.")
    equal_labels: float = Field(description="Share of tokens with the same label.")
    changed_labels: int
    largest_logit_difference: float
    not_finite_reference: int = Field(description="NaN or infinite logits and scores of fp32.")
    not_finite_reduced: int = Field(description="The same of the reduced variant.")


class Batched(Part):
    """Texts in batches of one kind."""

    name: str = Field(description="How windows were batched.")
    variant: str = Field(description="The variant, which may also be fp32.")
    runs: int


class Composition(Batched):
    """The same sentences in other batches, compared with running each window alone."""

    changed_labels: int
    equal_labels: float
    largest_score_change: float
    f1: float


class ClassComparison(Part):
    """One set of texts with their classes, from both variants."""

    name: Literal["texts", "documents"] = Field(description="Documents are the same texts, joined.")
    truth: Literal["gold", "fp32"] = Field(
        description="What classes are judged by: labels of people, or those that fp32 gives. The latter measures agreement, "
        "not quality."
    )
    texts: int
    windows: int
    overall: Row = Field(
        description="Macro-F1 (precision, recall and F1 are means over classes) or, if several labels may hold, micro-F1."
    )
    by_class: tuple[Row, ...]
    by_length: tuple[Row, ...]
    not_counted: tuple[str, ...] = Field(
        description="Classes with so few texts that one of them is more than the limit: macro-F1 leaves them out."
    )
    equal_classes: float = Field(description="Share of texts with the same classes in both variants.")
    changed_classes: int
    commonest: float = Field(description="Share of texts to which fp32 gives its most frequent answer.")
    largest_logit_difference: float
    not_finite_reference: int = Field(description="NaN or infinite logits of fp32, in rows of texts.")
    not_finite_reduced: int = Field(description="The same of the reduced variant.")


class ClassComposition(Batched):
    """The same texts in other batches, compared with running each window alone."""

    changed_classes: int
    equal_classes: float
    largest_score_change: float
    f1: float


class ClassFigures(Part):
    """The figures of a classification head."""

    multi_label: bool
    comparisons: tuple[ClassComparison, ...]
    compositions: tuple[ClassComposition, ...]


class VectorComparison(Part):
    """One set of texts with their vectors, from both variants. Distances are cosines."""

    name: Literal["texts", "documents"] = Field(description="Documents are the same texts, joined.")
    texts: int
    windows: int
    least_cosine: float = Field(description="Between both vectors of a text, for the worst text.")
    median_cosine: float
    typical_cosine: float = Field(description="Between fp32's vectors of two different texts: the median.")
    tie: float = Field(description="Neighbours whose cosines to a text differ by less, in fp32, count as equally near.")
    neighbours_of: int = Field(description="Texts whose ten nearest were compared, among each other; 0 if too few.")
    same_ten: float = Field(description="Share of them with the same ten nearest, ties aside.")
    same_ten_strict: float = Field(description="The same, where ties count as differences.")
    not_finite_reference: int = Field(description="NaN or infinite numbers in vectors of fp32.")
    not_finite_reduced: int = Field(description="The same of the reduced variant.")


class VectorComposition(Batched):
    """The same texts in other batches, compared with running each window alone."""

    least_cosine: float
    same_ten: float


class VectorFigures(Part):
    """The figures of an embedding head."""

    dimensions: int
    comparisons: tuple[VectorComparison, ...]
    compositions: tuple[VectorComposition, ...]


class GateReport(GateResult):
    """The whole report. A worker reads `passed`."""

    model_config = ConfigDict(extra="forbid")

    comparisons: tuple[Comparison, ...]
    compositions: tuple[Composition, ...]
    classes: ClassFigures | None = Field(default=None, exclude_if=is_absent, description="Only of classification.")
    vectors: VectorFigures | None = Field(default=None, exclude_if=is_absent, description="Only of embeddings.")


def write_report(folder: Path, report: GateReport) -> Path:
    """Write the JSON file. Raises OSError if the folder cannot be written."""
    path = report_path(folder, report.bound_to.variant)
    path.write_text(report.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return path
