"""Which variant serves, one head or several: the fastest that runs and is proven for all, and why the others do not."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from gate.conftest import Damaged, Elsewhere, Quantised, Twin
from jsonschema import Draft202012Validator
from support.head_references import REFERENCE, write_folder
from support.models import MINILM_FOLDER
from support.reports import SHIPPED, empty_recipe, report

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.checkpoint.gate_report import report_path
from enricher.worker.inference.graph.builder import BUILDER_VERSION
from enricher.worker.inference.graph.int8 import Recipe, read_recipe, write_recipe
from enricher.worker.inference.graph.packed_cuda import PackedFloat16
from enricher.worker.inference.graph.padded import OpenVinoBfloat16, OpenVinoInt8, PaddedFloat32
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.inference.run import selection
from enricher.worker.inference.run.model import prepare_heads
from enricher.worker.inference.run.selection import choose, missing_reports, obstacle_to, report_folders, unproven
from enricher.workshop.gate.report import GateReport, write_report
from tools import ROOT


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


def test_the_newest_report_counts_in_the_folder_or_in_the_cache(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """A model that was checked again with another limit is judged by that, also where its folder cannot be written."""
    beside_graphs = report_folders(checkpoint, tmp_path / "cache")[-1]
    beside_graphs.mkdir(parents=True)
    write_report(checkpoint.folder, report(checkpoint, Twin(), passed=False, created_at="2026-01-01T00:00:00+00:00"))
    write_report(beside_graphs, report(checkpoint, Twin(), created_at="2026-01-02T00:00:00+00:00"))
    assert choose([checkpoint], "cpu", "auto").variant == PaddedFloat32()
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


BERT = REFERENCE / "bert"


@pytest.fixture
def heads(tmp_path: Path, quantised_first: None) -> list[Checkpoint]:
    """Entities, classes and vectors on one encoder, without reports."""
    del quantised_first
    ner = tmp_path / "ner"
    ner.mkdir()
    for name in ("config.json", "model.safetensors"):
        (ner / name).write_bytes((BERT / name).read_bytes())
    others = [write_folder("bert", "single", tmp_path / "topics"), write_folder("bert", "mean", tmp_path / "vectors")]
    return [Checkpoint.open(folder) for folder in (ner, *others)]


def pass_gates(*checkpoints: Checkpoint) -> None:
    """A report of bf16 that passed, for each."""
    for checkpoint in checkpoints:
        write_report(checkpoint.folder, report(checkpoint, Twin()))


def reasons(checkpoints: list[Checkpoint]) -> dict[str, str]:
    """Why faster variants do not serve."""
    return {variant.name: why for variant, why in choose(checkpoints, "cpu", "auto").rejected}


def test_a_reduced_variant_serves_a_pass_if_every_report_passes(
    heads: list[Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each head's own report, of the same variant: the fastest that runs here; what is slower is not even looked at."""
    monkeypatch.setattr(selection, "variants_for", lambda _device: (Elsewhere(), Twin(), Damaged(), PaddedFloat32()))
    assert PaddedFloat32() == choose(heads, "cpu", "auto").variant
    pass_gates(*heads)
    choice = choose(heads, "cpu", "auto")
    assert Twin() == choice.variant
    assert "passed its gate" in choice.reason
    assert {"padded-elsewhere": "the processor has no wings"} == reasons(heads), "of the machine, and of no model"
    assert Twin() == choose(heads, "cpu", "bf16").variant


@pytest.mark.parametrize("failed", [False, True], ids=["missing", "failed"])
@pytest.mark.parametrize("index", range(3), ids=["ner", "topics", "vectors"])
def test_one_head_without_a_passing_report_makes_the_pass_serve_float32(
    heads: list[Checkpoint], index: int, *, failed: bool
) -> None:
    """The reason names that head's model, and the command or what it lost; each of the other heads alone has bf16."""
    bad = heads[index]
    pass_gates(*(each for each in heads if each is not bad))
    command = f"enricher model check {bad.folder} --precision bf16"
    why = f"{bad.name}: there is no gate report for padded-twin; `{command}` makes one"
    if failed:
        write_report(bad.folder, report(bad, Twin(), passed=False))
        why = f"{bad.name}: padded-twin failed its gate: sentences: F1 -1.40"
    assert PaddedFloat32() == choose(heads, "cpu", "auto").variant
    assert reasons(heads)["padded-twin"].startswith(why)
    assert ([] if failed else [command]) == missing_reports(heads, "cpu", None)
    with pytest.raises(ModelError, match=f"bf16 is refused: {why.partition(';')[0]}.*Or choose auto"):
        choose(heads, "cpu", "bf16")
    assert [each is not bad for each in heads] == [choose([each], "cpu", "auto").variant == Twin() for each in heads]


def test_every_head_that_stands_in_the_way_is_told_at_once(heads: list[Checkpoint]) -> None:
    """Nobody has to make one report to learn of the next; where one failed, a report of another would not help."""
    write_report(heads[1].folder, report(heads[1], Twin(), passed=False))
    told = reasons(heads)["padded-twin"].split("; ")
    assert ["ner: there is no gate report for padded-twin", "topics: padded-twin failed its gate: sentences"] == [
        told[0],
        told[2].partition(": F1")[0],
    ]
    assert any(each.startswith("vectors: there is no gate report") for each in told)
    assert missing_reports(heads, "cpu", None) == []
    commands = [f"enricher model check {each.folder} --precision bf16" for each in (heads[0], heads[2])]
    assert commands == missing_reports([heads[0], heads[2]], "cpu", None)


@pytest.mark.usefixtures("quantised_first")
def test_models_of_one_name_are_told_by_their_folders(tmp_path: Path) -> None:
    """As in `topics/model` and `tones/model`. One model in two tasks has one report, and is told once."""
    folders = [tmp_path / name / "model" for name in ("topics", "tones")]
    first = Checkpoint.open(write_folder("bert", "single", folders[0]))
    second = Checkpoint.open(write_folder("bert", "multi", folders[1]))
    pass_gates(first)
    for together in ([first, second], [second, second]):
        assert 1 == reasons(together)["padded-twin"].count("there is no gate report")
        assert 1 == len(missing_reports(together, "cpu", None))
    assert reasons([first, second])["padded-twin"].startswith(f"{folders[1]}: there is no gate report")


def test_int8_serves_one_head_for_entities_by_itself(heads: list[Checkpoint]) -> None:
    """With another head, bf16 does, and the reason is told; nobody is told to calibrate."""
    pass_gates(*heads)
    recipe = empty_recipe(heads[0])
    write_recipe(heads[0].folder, recipe)
    write_report(heads[0].folder, report(heads[0], Quantised(), recipe_digest=recipe.digest))
    assert Quantised() == choose(heads[:1], "cpu", "auto").variant
    choice = choose(heads, "cpu", "auto")
    assert Twin() == choice.variant
    why = "int8 is calibrated for a single token classification head, and this worker has 3 heads"
    assert [(Quantised(), why)] == choice.rejected
    assert missing_reports(heads, "cpu", None) == []
    with pytest.raises(ModelError, match=f"int8 is refused: {why}. Choose auto"):
        choose(heads, "cpu", "int8")


@pytest.mark.parametrize(("index", "kind"), [(1, "classification"), (2, "embedding")])
def test_int8_serves_no_head_of_another_kind(heads: list[Checkpoint], index: int, kind: str) -> None:
    """Even by itself."""
    why = f"int8 is calibrated for a single token classification head, and this model is for {kind}"
    assert why == reasons([heads[index]])["padded-quantised"]
    assert why == obstacle_to(heads[index], "cpu", Quantised(), None)
    with pytest.raises(ModelError, match=f"int8 is refused: {why}"):
        choose([heads[index]], "cpu", "int8")


def test_where_nothing_runs_all_models_and_reasons_are_named(
    heads: list[Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the last reason only."""
    monkeypatch.setattr(selection, "variants_for", lambda _device: (Elsewhere(), Elsewhere()))
    with pytest.raises(
        ModelError,
        match=r"no variant of ner and topics and vectors runs on cpu: .*no wings; padded-elsewhere: .*no wings",
    ):
        choose(heads, "cpu", "auto")


def test_the_log_warns_of_reports_that_an_operator_can_make(
    heads: list[Checkpoint], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not of int8, which no command would bring to a pass of several heads, nor of a gate that failed."""
    pass_gates(heads[0], heads[1])
    prepare_and_level = {}
    for state in ("missing", "failed"):
        if state == "failed":
            write_report(heads[2].folder, report(heads[2], Twin(), passed=False))
        caplog.clear()
        with caplog.at_level(logging.INFO):
            prepared = prepare_heads(heads, device="cpu", precision="auto", cache_dir=tmp_path / "cache")
        prepare_and_level[state] = {
            each.getMessage().split()[1].rstrip(":"): each.levelno
            for each in caplog.records
            if each.getMessage().startswith("not ")
        }
        assert "fp32" == prepared.card.precision
        assert ["padded-quantised", "padded-twin"] == [name for name, _ in prepared.rejected]
    assert {
        "missing": {"padded-quantised": logging.INFO, "padded-twin": logging.WARNING},
        "failed": {"padded-quantised": logging.INFO, "padded-twin": logging.INFO},
    } == prepare_and_level
