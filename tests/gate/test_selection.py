"""Which variant serves: the fastest that runs and is proven, and why the others do not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from gate.conftest import Damaged, Elsewhere, Quantised, Twin
from jsonschema import Draft202012Validator
from support.models import MINILM_FOLDER
from support.recipes import empty_recipe
from support.reports import SHIPPED, report

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.checkpoint.gate_report import report_path
from enricher.worker.inference.graph.builder import BUILDER_VERSION
from enricher.worker.inference.graph.int8 import Recipe, read_recipe, write_recipe
from enricher.worker.inference.graph.packed_cuda import PackedFloat16
from enricher.worker.inference.graph.padded import OpenVinoBfloat16, OpenVinoInt8, PaddedFloat32
from enricher.worker.inference.run import selection
from enricher.worker.inference.run.selection import choose, missing_reports, report_folders, unproven
from enricher.workshop.gate.report import GateReport, write_report
from tools import ROOT
from tools.head_references import REFERENCE

if TYPE_CHECKING:
    from enricher.worker.inference.graph.variants import Variant


@pytest.fixture(autouse=True)
def variants(monkeypatch: pytest.MonkeyPatch) -> None:
    """One variant that does not run, one that is fast, one that is slower, and float32."""

    def variants_for(_device: str) -> tuple[Variant, ...]:
        return (Elsewhere(), Twin(), Damaged(), PaddedFloat32())

    monkeypatch.setattr(selection, "variants_for", variants_for)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """A model without any report."""
    return Checkpoint.open(Path(shutil.copytree(REFERENCE / "bert", tmp_path / "model")))


def test_without_any_report_auto_takes_float32_and_says_why_nothing_faster(checkpoint: Checkpoint) -> None:
    """Each faster variant with its reason, and the command that would make a report."""
    choice = choose([checkpoint], "cpu", "auto")
    assert choice.variant == PaddedFloat32()
    reasons = {variant.name: why for variant, why in choice.rejected}
    assert ["padded-elsewhere", "padded-twin", "padded-damaged"] == list(reasons)
    assert reasons["padded-elsewhere"] == "the processor has no wings"
    assert f"`enricher model check {checkpoint.folder} --precision bf16` makes one" in reasons["padded-twin"]


def test_with_a_passing_report_auto_takes_the_reduced_variant(checkpoint: Checkpoint) -> None:
    """The fastest that runs here; what is slower is not even looked at."""
    write_report(checkpoint.folder, report(checkpoint, Twin()))
    choice = choose([checkpoint], "cpu", "auto")
    assert choice.variant == Twin()
    assert ["padded-elsewhere"] == [variant.name for variant, _ in choice.rejected]
    assert "passed its gate" in choice.reason


def test_a_report_in_the_cache_counts_where_the_folder_cannot_be_written(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    """It is found by the model's digest."""
    beside_graphs = report_folders(checkpoint, tmp_path / "cache")[-1]
    beside_graphs.mkdir(parents=True)
    write_report(beside_graphs, report(checkpoint, Twin()))
    assert choose([checkpoint], "cpu", "auto").variant == PaddedFloat32()
    assert choose([checkpoint], "cpu", "auto", cache_dir=tmp_path / "cache").variant == Twin()


@pytest.mark.parametrize(
    "bound_to", [{"model_digest": "0" * 64}, {"variant": "padded-other"}, {"builder_version": BUILDER_VERSION + 1}]
)
def test_a_report_about_something_else_is_none(checkpoint: Checkpoint, bound_to: dict[str, Any]) -> None:
    """Another model, variant or builder computes something else."""
    path = report_path(checkpoint.folder, Twin().name)
    path.write_text(report(checkpoint, Twin(), **bound_to).model_dump_json())
    choice = choose([checkpoint], "cpu", "auto")
    assert choice.variant == PaddedFloat32()
    assert (
        "no gate report of this model and builder"
        in {variant.name: why for variant, why in choice.rejected}["padded-twin"]
    )


@pytest.mark.parametrize(
    ("measured", "counts"),
    [
        ("sdpa_kernel=19 use_tf32=0 ORT_CUDA_GEMM_OPTIONS=0 disabled=MatMulAddFusion", True),
        ("sdpa_kernel=0 use_tf32=0 ORT_CUDA_GEMM_OPTIONS=0 disabled=MatMulAddFusion", False),
        ("sdpa_kernel=19 use_tf32=0 ORT_CUDA_GEMM_OPTIONS=1 disabled=MatMulAddFusion", False),
        (None, False),
    ],
)
def test_a_report_of_a_gpu_is_about_its_arithmetic(
    checkpoint: Checkpoint, measured: str | None, *, counts: bool
) -> None:
    """Other attention kernels, products summed in float16, and reports that do not say: none counts."""
    # Another GPU and another version are information.
    made = report(checkpoint, PackedFloat16(), arithmetic=measured, processor="NVIDIA H200", onnxruntime="1.0.0")
    write_report(checkpoint.folder, made)
    told = unproven(checkpoint, "cuda", PackedFloat16(), None)
    assert counts == (told is None)
    assert told is None or "no gate report of this model, builder and arithmetic for packed-fp16" in told


def test_a_report_of_a_processor_names_no_arithmetic(checkpoint: Checkpoint) -> None:
    """So those that were made before it was named stay valid; one of a GPU does not count there."""
    write_report(checkpoint.folder, report(checkpoint, Twin()))
    assert "arithmetic" not in SHIPPED["bound_to"]
    assert choose([checkpoint], "cpu", "auto").variant == Twin()
    write_report(checkpoint.folder, report(checkpoint, Twin(), arithmetic="sdpa_kernel=19"))
    assert choose([checkpoint], "cpu", "auto").variant == PaddedFloat32()


def test_a_variant_that_failed_its_gate_is_refused_with_the_reason(checkpoint: Checkpoint) -> None:
    """By auto, and by name."""
    write_report(checkpoint.folder, report(checkpoint, Twin(), passed=False))
    assert choose([checkpoint], "cpu", "auto").variant == PaddedFloat32()
    with pytest.raises(ModelError, match=r"bf16 is refused: padded-twin failed its gate: sentences: F1 -1\.40"):
        choose([checkpoint], "cpu", "bf16")


def test_the_newest_report_counts(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """A model that was checked again with another limit is judged by that."""
    beside_graphs = report_folders(checkpoint, tmp_path / "cache")[-1]
    beside_graphs.mkdir(parents=True)
    write_report(checkpoint.folder, report(checkpoint, Twin(), passed=False, created_at="2026-01-01T00:00:00+00:00"))
    write_report(beside_graphs, report(checkpoint, Twin(), created_at="2026-01-02T00:00:00+00:00"))
    assert choose([checkpoint], "cpu", "auto", cache_dir=tmp_path / "cache").variant == Twin()


def test_a_precision_by_name_must_run_here_and_be_proven(checkpoint: Checkpoint) -> None:
    """Nothing else is taken in its place; the message says what to do."""
    with pytest.raises(ModelError, match=r"fp16 does not run here: the processor has no wings\. Choose auto"):
        choose([checkpoint], "cpu", "fp16")
    with pytest.raises(
        ModelError, match=r"int8 is refused: there is no gate report .*enricher model check .* --precision int8"
    ):
        choose([checkpoint], "cpu", "int8")
    assert choose([checkpoint], "cpu", "fp32").variant == PaddedFloat32()


def test_the_schema_that_ships_is_the_reports() -> None:
    """It is the schema that pydantic derives; and a report that a model has is valid by it."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **GateReport.model_json_schema()}
    written = json.loads((ROOT / "enricher" / "models" / "gate-report.schema.json").read_text())
    assert schema == written
    Draft202012Validator(written).validate(SHIPPED)


def test_reports_that_are_missing_are_told_with_their_commands(checkpoint: Checkpoint) -> None:
    """For variants that this machine runs; a failed report is a report."""
    commands = missing_reports([checkpoint], "cpu", None)
    assert [f"enricher model check {checkpoint.folder} --precision {name}" for name in ("bf16", "int8")] == commands
    write_report(checkpoint.folder, report(checkpoint, Twin(), passed=False))
    assert commands[1:] == missing_reports([checkpoint], "cpu", None)


@pytest.mark.parametrize(
    ("variant", "recipe"),
    [(OpenVinoBfloat16(), None), (OpenVinoInt8(), read_recipe(MINILM_FOLDER))],
    ids=["bf16", "int8"],
)
def test_reports_beside_a_model_are_about_that_model(variant: Variant, recipe: Recipe | None) -> None:
    """After a change of model, variant, builder or recipe, `enricher model check` must run again."""
    shipped = GateReport.model_validate_json(report_path(MINILM_FOLDER, variant.name).read_bytes())
    digest = None if recipe is None else recipe.digest
    assert shipped.counts_for(Checkpoint.open(MINILM_FOLDER).digest, variant.name, BUILDER_VERSION, digest, None)
    assert shipped.passed


@pytest.fixture
def quantised_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """int8 before bf16, as on a CPU."""
    monkeypatch.setattr(selection, "variants_for", lambda _device: (Quantised(), Twin(), PaddedFloat32()))


@pytest.mark.usefixtures("quantised_first")
def test_int8_serves_with_its_recipe_and_the_report_of_that_recipe(checkpoint: Checkpoint) -> None:
    """Otherwise bf16 does: a report is about the recipe that it names, not about int8."""
    write_report(checkpoint.folder, report(checkpoint, Twin()))
    write_report(checkpoint.folder, report(checkpoint, Quantised()))
    choice = choose([checkpoint], "cpu", "auto")
    assert Twin() == choice.variant
    assert "there is no int8.json" in choice.rejected[0][1]
    recipe = empty_recipe(checkpoint)
    write_recipe(checkpoint.folder, recipe)
    choice = choose([checkpoint], "cpu", "auto")
    assert Twin() == choice.variant
    assert "no gate report of this model, builder and recipe" in choice.rejected[0][1]
    write_report(checkpoint.folder, report(checkpoint, Quantised(), recipe_digest=recipe.digest))
    assert Quantised() == choose([checkpoint], "cpu", "auto").variant
    write_recipe(checkpoint.folder, empty_recipe(checkpoint, seed=1))
    assert Twin() == choose([checkpoint], "cpu", "auto").variant
    with pytest.raises(ModelError, match="int8 is refused: there is no gate report of this model, builder and recipe"):
        choose([checkpoint], "cpu", "int8")


@pytest.mark.usefixtures("quantised_first")
def test_auto_does_not_take_int8_whose_calibration_fell_short(checkpoint: Checkpoint) -> None:
    """Even if its gate passed; who names it gets it, and nobody is told to make another report."""
    recipe = empty_recipe(checkpoint)
    recipe = recipe.model_copy(update={"measured": recipe.measured.model_copy(update={"equal_labels": 0.99})})
    write_recipe(checkpoint.folder, recipe)
    assert "--precision int8" not in " ".join(missing_reports([checkpoint], "cpu", None))
    write_report(checkpoint.folder, report(checkpoint, Quantised(), recipe_digest=recipe.digest))
    choice = choose([checkpoint], "cpu", "auto")
    assert Quantised() != choice.variant
    assert "calibration wanted 99.80 % of labels, reached 99.00 %" == choice.rejected[0][1]
    assert Quantised() == choose([checkpoint], "cpu", "int8").variant


@pytest.mark.usefixtures("quantised_first")
def test_the_command_that_is_told_makes_what_is_missing(checkpoint: Checkpoint) -> None:
    """The recipe first, and then the report alone."""
    prepare = f"enricher model prepare {checkpoint.folder} --out DIR --precision int8"
    assert prepare == missing_reports([checkpoint], "cpu", None)[0]
    with pytest.raises(ModelError, match=r"int8 is refused: there is no int8\.json .*enricher model prepare"):
        choose([checkpoint], "cpu", "int8")
    write_recipe(checkpoint.folder, empty_recipe(checkpoint))
    assert f"enricher model check {checkpoint.folder} --precision int8" == missing_reports([checkpoint], "cpu", None)[0]
