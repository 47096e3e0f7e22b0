"""`enricher model check`, `inspect` and `evaluate`: verdicts, figures, exit codes and reports, for heads of every kind."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands.model_app import run_model, tiny_model
from safetensors.numpy import load_file, save_file
from support.heads import class_model, vector_model
from support.reports import empty_recipe

from enricher.errors import FatalError, ModelError, SettingsError
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.sessions import openvino_problem
from enricher.worker.inference.graph.int8 import write_recipe
from enricher.worker.inference.graph.padded import OpenVinoInt8
from enricher.worker.inference.run import selection
from enricher.worker.inference.run.model import EMBEDDED
from enricher.workshop.gate.gold import DEFAULT_GOLD, read_gold
from enricher.workshop.gate.report import GateReport


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small model, in a folder of the test's own, with a recipe."""
    folder = tiny_model(tmp_path / "tiny")
    write_recipe(folder, empty_recipe(Checkpoint.open(folder)))
    return folder


@pytest.fixture
def gold(tmp_path: Path) -> Path:
    """Some labelled sentences."""
    path = tmp_path / "gold.jsonl"
    path.write_bytes(b"".join(DEFAULT_GOLD.read_bytes().splitlines(keepends=True)[:6]))
    return path


@pytest.fixture
def runs_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe quantises nothing, so that any processor that OpenVINO runs on gives right answers."""
    monkeypatch.setattr(OpenVinoInt8, "problem", lambda _self: openvino_problem("fp32"))


@pytest.mark.usefixtures("runs_anywhere")
def test_a_failed_check_ends_with_code_3_and_leaves_its_report(model: Path, gold: Path, tmp_path: Path) -> None:
    """The reasons are told; the report lies in the cache, beside the model only if that is asked for."""
    cache, before = tmp_path / "cache", sorted(model.iterdir())
    check = ("check", model, "--gold", gold, "--precision", "int8", "--limit-points", "50")
    result = run_model(*check, cache_dir=cache)
    assert result.exit_code == 3, result.output
    assert "does not fit the model" in re.sub(r"\s+", " ", result.output)
    (path,) = cache.rglob("gate-openvino-int8.json")
    assert str(path) in result.stderr.replace("\n", "")
    report = GateReport.model_validate_json(path.read_bytes())
    assert not report.passed
    assert (6, "gold") == (report.comparisons[0].texts, report.bound_to.gold_name)
    assert before == sorted(model.iterdir())
    assert 3 == run_model(*check, "--out", model, cache_dir=cache).exit_code
    assert (model / path.name).is_file()


def test_too_few_entities_are_refused_before_a_report_is_written(model: Path, gold: Path, tmp_path: Path) -> None:
    """A failed report would replace one that has passed, and workers would serve fp32 from their next start on."""
    result = run_model("check", model, "--gold", gold, cache_dir=tmp_path / "cache")
    assert isinstance(result.exception, SettingsError)
    assert "at least 334 are needed" in str(result.exception)
    assert [] == list((tmp_path / "cache").rglob("gate-*"))


@pytest.mark.usefixtures("runs_anywhere")
def test_a_passed_check_ends_with_code_0_and_inspect_says_so(
    model: Path, gold: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is the user's; a model without skill is let through here only because the test lets it."""
    monkeypatch.setattr("enricher.workshop.gate.verdict.LEAST_REFERENCE_F1", 0.0)
    cache = tmp_path / "cache"
    check = run_model("check", model, "--gold", gold, "--precision", "int8", "--limit-points", "100", cache_dir=cache)
    assert check.exit_code == 0, check.output
    inspect = run_model("inspect", model, "--device", "cpu", "--json", cache_dir=cache)
    variants = {variant["precision"]: variant for variant in json.loads(inspect.stdout)["variants"]}
    assert variants["int8"]["may_serve"]
    assert variants["fp32"]["may_serve"]


def test_fp32_needs_no_check_and_a_variant_of_elsewhere_cannot_be_checked(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Usage, and the machine: two different exit codes."""
    cache = tmp_path / "cache"
    assert isinstance(run_model("check", model, "--precision", "fp32", cache_dir=cache).exception, SettingsError)
    monkeypatch.setattr(OpenVinoInt8, "problem", lambda _self: "the processor has no VNNI")
    error = run_model("check", model, "--precision", "int8", "--device", "cpu", cache_dir=cache).exception
    assert isinstance(error, ModelError)
    assert "the processor has no VNNI" in str(error)


def test_inspect_says_that_weights_do_not_fit(model: Path, tmp_path: Path) -> None:
    """No variant may serve, and each says which weight it is."""
    config = json.loads((model / "config.json").read_bytes())
    (model / "config.json").write_text(json.dumps(config | {"intermediate_size": 7}))
    facts = json.loads(run_model("inspect", model, "--device", "cpu", "--json", cache_dir=tmp_path).stdout)
    assert {False} == {variant["may_serve"] or variant["chosen_by_auto"] for variant in facts["variants"]}
    assert all("intermediate.dense.weight is" in variant["why"] for variant in facts["variants"])


def test_inspect_tells_what_a_model_is(tmp_path: Path) -> None:
    """The embedded one."""
    facts = json.loads(run_model("inspect", "--device", "cpu", "--json", cache_dir=tmp_path).stdout)
    assert (EMBEDDED, "bert", 6, 128, 16) == tuple(
        facts[name] for name in ("name", "family", "layers", "window_tokens", "overlap_tokens")
    )
    assert (["de", "en", "zh"], ["en", "pt", "sv", "zh"]) == (
        facts["languages_measured"],
        facts["languages_trained"],
    )
    assert [variant.name for variant in selection.variants_for("cpu")] == [
        variant["variant"] for variant in facts["variants"]
    ]
    assert sum(variant["chosen_by_auto"] for variant in facts["variants"]) == 1


def test_commands_about_models_name_the_unread_weights(tmp_path: Path) -> None:
    """Before anything is built or written."""
    made = tiny_model(tmp_path / "model")
    crf = {"crf.transitions": np.ones((7, 7), np.float32), "crf.start_transitions": np.ones(7, np.float32)}
    save_file({**load_file(made / "model.safetensors"), **crf}, made / "model.safetensors")
    result = run_model("prepare", made, "--out", tmp_path / "out", cache_dir=tmp_path / "cache")
    assert isinstance(result.exception, ModelError)
    assert "2 of 57 weights would be ignored" in str(result.exception)
    assert "(crf.start_transitions, crf.transitions)" in str(result.exception)
    assert not (tmp_path / "cache").exists()
    assert not (tmp_path / "out").exists()


LABELS = ("economy", "politics", "sports")
ENCODER_WEIGHT = "bert.encoder.layer.1.output.dense.bias"


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    """Three heads on one encoder, and a fourth on an encoder with one other weight."""
    ner = tiny_model(tmp_path / "ner")
    topics = class_model(ner, tmp_path / "topics", LABELS)
    other = class_model(ner, tmp_path / "other", LABELS, multi_label=True)
    weights = load_file(other / "model.safetensors")
    weights[ENCODER_WEIGHT] = weights[ENCODER_WEIGHT].copy()
    weights[ENCODER_WEIGHT][0] += np.float32(0.5)
    save_file(weights, other / "model.safetensors")
    return {"ner": ner, "topics": topics, "vectors": vector_model(ner, tmp_path / "vectors"), "other": other}


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """Texts with topics."""
    path = tmp_path / "gold.jsonl"
    words = ("The budget grew", "The vote failed", "The match ended")
    lines = [{"text": f"{words[number % 3]} in {number}.", "label": LABELS[number % 3]} for number in range(12)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def inspected(source: Path, cache_dir: Path) -> dict[str, Any]:
    """The output of `inspect --json`."""
    result = run_model("inspect", source, "--device", "cpu", "--json", cache_dir=cache_dir)
    assert result.exit_code == 0, (result.output, result.exception)
    shown: dict[str, Any] = json.loads(result.stdout)
    return shown


def test_inspect_tells_what_each_kind_of_head_finds(folders: dict[str, Path], tmp_path: Path) -> None:
    """Labels and pooling; heads on one encoder have one encoder digest and digests of their own."""
    facts = {name: inspected(folder, cache_dir=tmp_path) for name, folder in folders.items()}
    assert ("ner", None, None) == tuple(facts["ner"][each] for each in ("kind", "multi_label", "pooling"))
    assert ("classification", [*LABELS], False) == tuple(
        facts["topics"][each] for each in ("kind", "labels", "multi_label")
    )
    assert facts["other"]["multi_label"]
    assert ("embedding", None, "mean of all tokens", False) == tuple(
        facts["vectors"][each] for each in ("kind", "labels", "pooling", "normalised")
    )
    assert 2 == len({each["encoder_digest"] for each in facts.values()})
    assert 4 == len({each["digest"] for each in facts.values()})
    shown = run_model("inspect", folders["vectors"], "--device", "cpu", cache_dir=tmp_path)
    assert "int8 is calibrated for a single token classification head" in " ".join(shown.stdout.split())


def test_what_a_head_cannot_be_asked_is_refused(folders: dict[str, Path], labelled: Path, tmp_path: Path) -> None:
    """With the reason: int8, entities where classes are needed, and the other way round."""
    entities = tmp_path / "entities.jsonl"
    entities.write_text('{"text": "In Rome", "entities": []}\n')
    for arguments, error, message in (
        (
            ("prepare", folders["topics"], "--out", tmp_path / "out", "--precision", "int8"),
            ModelError,
            "a single token",
        ),
        (("check", folders["topics"], "--precision", "int8"), ModelError, "int8 is calibrated for a single token"),
        (("check", folders["ner"], "--gold", labelled), FatalError, "entities"),
        (("check", folders["other"], "--gold", entities), FatalError, "`label` and `labels`"),
    ):
        with pytest.raises(error, match=message):
            raise run_model(*arguments, "--device", "cpu", cache_dir=tmp_path / "cache").exception or OSError
    assert not (tmp_path / "out").exists()


FP32 = ("--device", "cpu", "--precision", "fp32")


def gold_file(folder: Path, *lines: object) -> Path:
    """The lines as a gold set."""
    path = folder / "gold.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def test_figures_are_those_of_the_gold_set(tmp_path: Path) -> None:
    """Counts by label add up, F1 follows from them, shares lie in their intervals."""
    gold = tmp_path / "gold.jsonl"
    gold.write_bytes(b"".join(DEFAULT_GOLD.read_bytes().splitlines(keepends=True)[:40]))
    result = run_model("evaluate", EMBEDDED, "--gold", gold, *FP32, "--json", cache_dir=tmp_path / "cache")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    overall, by_label = found["overall"], found["by_label"]
    assert sum(len(each.entities) for each in read_gold(gold).texts) == overall["expected"]
    for count in ("right", "predicted", "expected"):
        assert (
            overall[count] == sum(each[count] for each in by_label) == sum(each[count] for each in found["by_length"])
        )
    assert 2 * overall["right"] / (overall["predicted"] + overall["expected"]) == pytest.approx(overall["f1"]["value"])
    assert 0.5 < overall["f1"]["low"] < overall["f1"]["value"] < overall["f1"]["high"] < 1


def test_classes_are_measured_too(tmp_path: Path) -> None:
    """Each text has one, so as many are found as expected, and each error counts for two classes."""
    model = class_model(tiny_model(tmp_path / "ner"), tmp_path / "topics", ("<b>", "\u202ex", "c"))
    gold = gold_file(tmp_path, *({"text": f"Story {number}", "label": "<b>"} for number in range(10)))
    arguments = ("--gold", gold, *FP32, "--json")
    result = run_model("evaluate", model, *arguments, cache_dir=tmp_path / "cache")
    assert result.exit_code == 0, result.output
    overall = json.loads(result.stdout)["overall"]
    assert 10 == overall["expected"] == overall["predicted"]


def test_what_cannot_be_measured_is_refused(tmp_path: Path) -> None:
    """A model that gives no labels, one that is none, labels that it does not have, and an empty file."""
    tiny = tiny_model(tmp_path / "tiny")
    odd = shutil.copytree(tiny, tmp_path / "odd")
    (odd / "config.json").write_text((odd / "config.json").read_text().replace('-PER"', '-\\ud800PER"'))
    gold = gold_file(tmp_path, {"text": "In Rome", "entities": [{"start": 3, "end": 7, "label": "<i>"}]})
    for model, error, message in (
        (vector_model(tiny, tmp_path / "vectors"), SettingsError, "only entities and classes"),
        (tmp_path, ModelError, "config.json"),
        (odd, ModelError, "half a surrogate pair"),
        (tiny, FatalError, r"line 1: entities.0.label: .*'<i>'"),
    ):
        with pytest.raises(error, match=message):
            raise run_model("evaluate", model, "--gold", gold, *FP32, cache_dir=tmp_path / "cache").exception or OSError
    gold.write_text("")
    with pytest.raises(FatalError, match="is empty"):
        raise run_model("evaluate", tiny, "--gold", gold, *FP32, cache_dir=tmp_path).exception or OSError
