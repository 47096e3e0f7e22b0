"""The quality gate's report: its schema, reading and writing. The gate package measures and judges.

A report is valid for the model, the variant, the graph builder and the int8 recipe that it names. What else it names (ONNX
Runtime, the processor) is information for people.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Binding(_Part):
    """What was measured. A report is valid for a worker if the first four fields are equal."""

    model_digest: str = Field(description="sha256 (hex) of config, weights and tokenizer, as in every record.")
    variant: str = Field(description="Name of the variant, such as `openvino-int8`.")
    builder_version: int = Field(description="Version of the graph builder.")
    recipe_digest: str | None = Field(
        default=None, description="sha256 (hex) of the int8 recipe; null for variants that are not quantised."
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


class Agreement(_Part):
    """Entities by exact span: precision, recall and F1 between 0 and 1, and the counts behind them."""

    model_config = ConfigDict(from_attributes=True)  # those of core/scoring.py's Counts

    precision: float
    recall: float
    f1: float
    right: int = Field(description="Predicted and in the gold set (or in the other prediction).")
    predicted: int
    expected: int


class Row(_Part):
    """One type, one length bucket, or all texts: both variants and the difference between them."""

    name: str
    reference: Agreement
    reduced: Agreement
    delta_points: float = Field(description="100 x (F1 of the reduced variant - F1 of fp32): below zero is a loss.")
    low_points: float = Field(description="2.5 % bound of delta_points, paired bootstrap over texts.")
    high_points: float = Field(description="97.5 % bound.")


class Logits(_Part):
    """The logits of both variants, token by token."""

    largest_difference: float
    largest_relative: float = Field(description="The same, over the largest logit of fp32.")
    median_difference: float
    p99_difference: float
    histogram_from: float = Field(description="Lower edge of the first bin, as a power of ten.")
    histogram_step: float = Field(description="Width of a bin, in powers of ten. Smaller differences are in the first.")
    histogram: tuple[int, ...] = Field(description="Logits per bin.")


class Comparison(_Part):
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


class Composition(_Part):
    """The same sentences in other batches, compared with running each window alone."""

    name: str = Field(description="How windows were batched.")
    variant: str = Field(description="The variant, which may also be fp32.")
    runs: int
    changed_labels: int
    equal_labels: float
    largest_score_change: float
    f1: float


class GateReport(_Part):
    """The whole report. A worker reads `passed`."""

    schema_version: Literal[1] = 1
    passed: bool
    reasons: tuple[str, ...] = Field(description="Why it failed; after a pass, what was compared.")
    limit_points: float = Field(description="F1 points that may be lost.")
    bound_to: Binding
    comparisons: tuple[Comparison, ...]
    compositions: tuple[Composition, ...]

    def counts_for(self, model_digest: str, variant: str, builder_version: int, recipe_digest: str | None) -> bool:
        """True if it was measured on this model, in this variant, built by this builder after this recipe."""
        bound = self.bound_to
        measured = (bound.model_digest, bound.variant, bound.builder_version, bound.recipe_digest)
        return measured == (model_digest, variant, builder_version, recipe_digest)


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
