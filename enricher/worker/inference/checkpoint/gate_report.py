"""The quality gate's report: its schema, reading and writing. `workshop/gate` measures and judges.

A report on entities has `comparisons` and `compositions`; one on classes has `classes`, one on vectors `vectors`.

A report is valid for the model, the variant, the graph builder, the int8 recipe and, on a GPU, the arithmetic that it
names: which attention kernels run, and in which precision products are summed. The other facts in it, among them the GPU and
the version of ONNX Runtime, are information for people: they change the order of sums and how a product is divided among
cores, but not the precision of sums.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Part(BaseModel):
    """A part of a report."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


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


class Logits(Part):
    """The logits of both variants, token by token."""

    largest_difference: float
    largest_relative: float = Field(description="The same, over the largest logit of fp32.")
    median_difference: float
    p99_difference: float
    histogram_from: float = Field(description="Lower edge of the first bin, as a power of ten.")
    histogram_step: float = Field(description="Width of a bin, in powers of ten. Smaller differences are in the first.")
    histogram: tuple[int, ...] = Field(description="Logits per bin.")


class Comparison(Part):
    """One set of texts, run through both variants."""

    name: Literal["sentences", "documents"]
    texts: int
    tokens: int
    windows: int
    overall: Row
    by_type: tuple[Row, ...]
    by_length: tuple[Row, ...]
    spans: Agreement = Field(description="The reduced variant's entities against those of fp32.")
    equal_labels: float = Field(description="Share of tokens with the same label.")
    changed_labels: int
    logits: Logits
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
    logits: Logits
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
    p01_cosine: float = Field(description="1 % of the texts have less.")
    median_cosine: float
    histogram_from: float = Field(description="Lower edge of the first bin of `1 - cosine`, as a power of ten.")
    histogram_step: float = Field(description="Width of a bin, in powers of ten. Smaller values are in the first.")
    histogram: tuple[int, ...] = Field(description="Texts per bin.")
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


def _is_absent(value: object) -> bool:
    """Whether to leave a field out, so that reports made before it existed stay the same bytes."""
    return value is None


class Binding(Part):
    """The subject of the measurement. A report is valid for a worker if the first five fields are equal."""

    model_digest: str = Field(description="sha256 (hex) of config, weights and tokenizer, as in every record.")
    variant: str = Field(description="Name of the variant, such as `openvino-int8`.")
    builder_version: int = Field(description="Version of the graph builder.")
    recipe_digest: str | None = Field(
        default=None, description="sha256 (hex) of the int8 recipe; null for variants that are not quantised."
    )
    arithmetic: str | None = Field(
        default=None,
        exclude_if=_is_absent,
        description="What changes the results of a session on a GPU; absent on processors.",
    )
    model_name: str
    precision: str
    gold_digest: str = Field(description="sha256 (hex) of the gold file.")
    gold_name: str
    onnxruntime: str = Field(description="Version of ONNX Runtime.")
    provider: str = Field(description="Execution provider that ran the variant.")
    processor: str = Field(description="Model name of the processor or GPU.")
    processor_features: tuple[str, ...] = Field(description="Those that decide how numbers are multiplied.")
    enricher: str = Field(description="Version of this package.")
    created_at: str = Field(description="UTC, ISO 8601.")


class GateReport(Part):
    """The whole report. A worker reads `passed`."""

    schema_version: Literal[1] = 1
    passed: bool
    reasons: tuple[str, ...] = Field(description="Why it failed; after a pass, what was compared.")
    limit_points: float = Field(description="F1 points that may be lost.")
    bound_to: Binding
    comparisons: tuple[Comparison, ...]
    compositions: tuple[Composition, ...]
    classes: ClassFigures | None = Field(default=None, exclude_if=_is_absent, description="Only of classification.")
    vectors: VectorFigures | None = Field(default=None, exclude_if=_is_absent, description="Only of embeddings.")

    def counts_for(
        self,
        model_digest: str,
        variant: str,
        builder_version: int,
        recipe_digest: str | None,
        arithmetic: str | None,
    ) -> bool:
        """Whether the report was measured on exactly this model, variant, builder, recipe and arithmetic."""
        bound = self.bound_to
        measured = (bound.model_digest, bound.variant, bound.builder_version, bound.recipe_digest, bound.arithmetic)
        return measured == (model_digest, variant, builder_version, recipe_digest, arithmetic)


def report_path(folder: Path, variant: str) -> Path:
    """The JSON file of a variant's report; the page is beside it."""
    return folder / f"gate-{variant}.json"


def read_reports(folders: list[Path], variant: str) -> Iterator[GateReport]:
    """The readable reports of a variant in `folders`; broken ones and those with another schema are ignored."""
    for folder in folders:
        with contextlib.suppress(OSError, ValidationError):
            yield GateReport.model_validate_json(report_path(folder, variant).read_bytes())


def write_report(folder: Path, report: GateReport) -> Path:
    """Write the JSON file. Raises OSError if the folder cannot be written."""
    path = report_path(folder, report.bound_to.variant)
    path.write_text(report.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return path
