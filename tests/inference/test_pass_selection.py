"""Which variant serves several heads together: one that every head's report allows; and whose report does not."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from gate.conftest import Elsewhere, Quantised, Twin
from support.recipes import empty_recipe
from support.reports import report

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.graph.int8 import write_recipe
from enricher.worker.inference.graph.padded import PaddedFloat32
from enricher.worker.inference.run import selection
from enricher.worker.inference.run.model import prepare_heads
from enricher.worker.inference.run.selection import choose, missing_reports, obstacle_to
from enricher.worker.runtime.devices import Precision
from enricher.workshop.gate.report import write_report
from tools.head_references import REFERENCE, write_folder

BERT = REFERENCE / "bert"


@pytest.fixture(autouse=True)
def _variants(monkeypatch: pytest.MonkeyPatch) -> None:
    """int8, then bf16, then float32, as on a CPU."""
    monkeypatch.setattr(selection, "variants_for", lambda _device: (Quantised(), Twin(), PaddedFloat32()))


@pytest.fixture
def heads(tmp_path: Path) -> list[Checkpoint]:
    """Entities, classes and vectors on one encoder, without reports."""
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


def test_a_reduced_variant_serves_a_pass_if_every_report_passes(heads: list[Checkpoint]) -> None:
    """Each head's own report, of the same variant."""
    pass_gates(*heads)
    choice = choose(heads, "cpu", "auto")
    assert Twin() == choice.variant
    assert "passed its gate" in choice.reason
    assert Twin() == choose(heads, "cpu", "bf16").variant


@pytest.mark.parametrize("index", range(3), ids=["ner", "topics", "vectors"])
def test_one_missing_report_makes_the_pass_serve_float32(heads: list[Checkpoint], index: int) -> None:
    """The reason names that head's model, and the command that makes the report."""
    without = heads[index]
    pass_gates(*(each for each in heads if each is not without))
    assert PaddedFloat32() == choose(heads, "cpu", "auto").variant
    command = f"enricher model check {without.folder} --precision bf16"
    assert reasons(heads)["padded-twin"] == (
        f"{without.name}: there is no gate report for padded-twin; `{command}` makes one"
    )
    assert [command] == missing_reports(heads, "cpu", None)
    with pytest.raises(ModelError, match=rf"bf16 is refused: {without.name}: there is no gate report .*Or choose auto"):
        choose(heads, "cpu", "bf16")


@pytest.mark.parametrize("index", range(3), ids=["ner", "topics", "vectors"])
def test_one_head_that_failed_its_gate_makes_the_pass_serve_float32(heads: list[Checkpoint], index: int) -> None:
    """The reason names that head's model and what it lost; alone, each of the other heads has the faster variant."""
    bad = heads[index]
    pass_gates(*heads)
    write_report(bad.folder, report(bad, Twin(), passed=False))
    assert PaddedFloat32() == choose(heads, "cpu", "auto").variant
    assert f"{bad.name}: padded-twin failed its gate: sentences: F1 -1.40" in reasons(heads)["padded-twin"]
    with pytest.raises(ModelError, match=f"bf16 is refused: {bad.name}: padded-twin failed its gate"):
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


def test_models_of_one_name_are_told_by_their_folders(tmp_path: Path) -> None:
    """As in `topics/model` and `tones/model`."""
    folders = [
        write_folder("bert", "single", tmp_path / "topics" / "model"),
        write_folder("bert", "multi", tmp_path / "tones" / "model"),
    ]
    first, second = (Checkpoint.open(folder) for folder in folders)
    pass_gates(first)
    assert reasons([first, second])["padded-twin"].startswith(f"{folders[1]}: there is no gate report")


def test_one_model_in_two_tasks_is_told_once(heads: list[Checkpoint]) -> None:
    """It has one report."""
    twice = [heads[1], heads[1]]
    assert 1 == reasons(twice)["padded-twin"].count("there is no gate report")
    assert 1 == len(missing_reports(twice, "cpu", None))


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


def test_what_no_head_can_run_here_is_told_without_a_name(
    heads: list[Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine is the reason, not a model; and no report is asked for."""
    monkeypatch.setattr(selection, "variants_for", lambda _device: (Elsewhere(), PaddedFloat32()))
    assert {"padded-elsewhere": "the processor has no wings"} == reasons(heads)
    assert missing_reports(heads, "cpu", None) == []
    with pytest.raises(ModelError, match="fp16 does not run here: the processor has no wings"):
        choose(heads, "cpu", "fp16")


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


def test_missing_reports_are_one_warning_and_none_where_float32_was_chosen(
    heads: list[Checkpoint], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """However many variants lack one; whoever asked for fp32 lacks nothing."""
    asked: list[tuple[Precision, int]] = [("auto", 1), ("fp32", 0)]
    for precision, expected in asked:
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="enricher"):
            prepare_heads(heads[:1], device="cpu", precision=precision, cache_dir=tmp_path / "cache")
        warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
        assert expected == len(warnings)
