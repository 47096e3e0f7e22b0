"""The result of the quality gate on a model, as a worker reads it. `workshop/gate/report.py` has the whole report.

A report is valid for the model, the variant, the graph builder, the int8 recipe and, on a GPU, the arithmetic that it
names: which attention kernels run, and in which precision products are summed. The other facts in it, among them the GPU and
the version of ONNX Runtime, are information for people: they change the order of sums and how a product is divided among
cores, but not the precision of sums.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError


class Part(BaseModel):
    """A part of a report."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def is_absent(value: object) -> bool:
    """Whether to leave a field out, so that reports from before the field existed stay the same bytes."""
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
        exclude_if=is_absent,
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


class GateResult(Part):
    """The part of a report that a worker reads. The figures of the measurement are ignored."""

    model_config = ConfigDict(extra="ignore")

    schema_version: Literal[1] = 1
    passed: bool
    reasons: tuple[str, ...] = Field(description="Why it failed; after a pass, what was compared.")
    limit_points: float = Field(description="F1 points that may be lost.")
    bound_to: Binding

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
    """The JSON file of a variant's report."""
    return folder / f"gate-{variant}.json"


def read_reports(folders: list[Path], variant: str) -> Iterator[GateResult]:
    """The results in the reports of a variant in `folders`; ignores broken reports and those with another schema."""
    for folder in folders:
        with contextlib.suppress(OSError, ValidationError):
            yield GateResult.model_validate_json(report_path(folder, variant).read_bytes())
