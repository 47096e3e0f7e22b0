"""The quality gate's report: its schema, reading and writing. The gate package measures and judges.

gate_figures.py has the figures. A report on entities has `comparisons` and `compositions`, others have
`classes` or `vectors`.

A report is valid for the model, the variant, the graph builder, the int8 recipe and, on a GPU, the arithmetic that it
names: which attention kernels run, and in which precision products are summed. What else it names is information for people,
also the GPU and the version of ONNX Runtime: they change the order of sums and how a product is divided among cores, and not
the precision of sums.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, ValidationError

from enricher.worker.inference.checkpoint.gate_figures import ClassFigures, Comparison, Composition, Part, VectorFigures

if TYPE_CHECKING:
    from collections.abc import Iterator


def _is_absent(value: object) -> bool:
    """Left out where absent, so that reports from before these fields are the same bytes."""
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
        """True if it was measured on this model, in this variant, built by this builder after this recipe, computed so."""
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
