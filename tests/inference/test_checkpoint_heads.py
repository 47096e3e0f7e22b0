"""What a folder's head is, for each kind, and how a folder is refused whose head would say something else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inference.conftest import refusal_of
from safetensors.numpy import load_file, save_file
from support.head_references import CLASSES, FAMILIES, HEADS, REFERENCE, HeadName, write_folder

from enricher.errors import ModelError
from enricher.worker.heads import HeadSpec, Reads, reads_of
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.graph.builder import build
from enricher.worker.inference.graph.graph_files import OnnxWriter
from enricher.worker.inference.graph.padded import PaddedFloat32
from enricher.worker.records import TaskKind

POOLING = "1_Pooling/config.json"
WEIGHTS = "model.safetensors"
MODES = "pooling_mode_mean_tokens"


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[HeadName], Path]:
    """A BERT with such a head, to be damaged."""
    return lambda head: write_folder("bert", head, tmp_path / head)


def _edit(folder: Path, file: str = "config.json", **changes: object) -> Path:
    path = folder / file
    values = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps({**values, **changes}))
    return folder


def _spec(
    kind: TaskKind,
    labels: tuple[str, ...],
    reads: Reads,
    dimensions: int,
    *,
    multi_label: bool = False,
    normalised: bool = False,
) -> HeadSpec:
    return HeadSpec(kind, labels, multi_label, reads, normalised, dimensions)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_head_of_each_kind_comes_from_its_folder(family: str, tmp_path: Path) -> None:
    """Kind, labels, what it reads, and how many numbers it gives."""
    opened = {head: Checkpoint.open(write_folder(family, head, tmp_path / head)) for head in HEADS}
    of_all: Reads = "whole" if family == "modernbert" else "first"
    width = opened["cls"].config.hidden_size
    assert {
        "single": _spec("classification", CLASSES["single"], "first", 4),
        "multi": _spec("classification", CLASSES["multi"], of_all, 3, multi_label=True),
        "mean": _spec("embedding", (), "mean", width, normalised=True),
        "cls": _spec("embedding", (), "first", width),
    } == {head: checkpoint.head for head, checkpoint in opened.items()}
    entities = Checkpoint.open(REFERENCE / family)
    assert _spec("ner", entities.labels, "tokens", 7) == entities.head
    assert (CLASSES["single"], ()) == (opened["single"].labels, opened["mean"].labels)
    assert {"tokens", "first", of_all} == reads_of([entities.head, opened["cls"].head, opened["multi"].head])


def test_what_a_configuration_need_not_say_or_says_twice(folder: Callable[[HeadName], Path]) -> None:
    """Older releases of transformers write no problem type; one label may hold or not; a pooling has two names."""
    multi = folder("multi")
    assert ("urgent",) == Checkpoint.open(_edit(multi, id2label={"0": "urgent"})).head.labels
    assert not Checkpoint.open(
        _edit(multi, problem_type=None, id2label={"0": "a", "1": "b", "2": "c"})
    ).head.multi_label
    assert "mean" == Checkpoint.open(_edit(folder("mean"), POOLING, pooling_mode="mean")).head.reads


CONFIG, OTHER_POOLING = "config.json", {MODES: False}
UNKNOWN_MODE = {MODES: False, "pooling_mode_lasttoken": True}
PROMPTED = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}


@pytest.mark.parametrize(
    ("head", "file", "changes", "reason"),
    [
        ("single", CONFIG, {"problem_type": "regression"}, "it has 4 labels; only a head with one number"),
        (
            "single",
            CONFIG,
            {"problem_type": None, "id2label": {"0": "price"}},
            "the meaning of its output is not clear",
        ),
        ("single", CONFIG, {"id2label": {}}, "id2label must name every label"),
        ("single", CONFIG, {"id2label": {"0": "sport", "1": "sport"}}, "each once"),
        ("mean", CONFIG, {"architectures": ["BertForTokenClassification"]}, "id2label"),
        ("mean", CONFIG, {"hidden_size": 128}, "it pools vectors of 64 numbers, and config.json says 128"),
        (
            "cls",
            CONFIG,
            {"model_type": "mpnet", "architectures": ["MPNetModel"]},
            "MPNetModel (mpnet) is not supported",
        ),
        ("mean", POOLING, {"pooling_mode_max_tokens": True}, "its pooling is mean and max_tokens; supported is either"),
        ("mean", POOLING, OTHER_POOLING, "its pooling is not named"),
        ("mean", POOLING, UNKNOWN_MODE, "its pooling is lasttoken; supported is either the mean"),
        ("mean", POOLING, {**OTHER_POOLING, "pooling_mode": "weightedmean"}, "its pooling is weightedmean"),
        ("mean", "sentence_bert_config.json", {"do_lower_case": True}, "do_lower_case"),
        ("mean", "config_sentence_transformers.json", PROMPTED, "its default prompt 'query'"),
    ],
)
def test_a_configuration_that_means_something_else_is_refused(
    head: HeadName, file: str, changes: dict[str, Any], reason: str, folder: Callable[[HeadName], Path]
) -> None:
    """What we read differently from transformers, we do not read; for pooling, the message says what to do."""
    refusal = refusal_of(_edit(folder(head), file, **changes))
    assert reason in refusal
    assert file == CONFIG or any(way in refusal for way in ("Choose a model", 'Set "default_prompt_name"'))


@pytest.mark.parametrize(
    ("kinds", "paths", "reason"),
    [
        (["Transformer", "Pooling", "Dense"], None, "no Dense layer after pooling"),
        (["Transformer", "Pooling", "Dense", "Normalize"], None, "no Dense layer after pooling"),
        (["WordEmbeddings", "Pooling"], None, "its modules are WordEmbeddings, Pooling"),
        (["Transformer"], None, "its modules are Transformer;"),
        (["Transformer", "Pooling"], ["0_Transformer", "1_Pooling"], "Copy the files of 0_Transformer there"),
        (["Transformer", "Pooling"], ["", "../1_Pooling"], "no ../1_Pooling/config.json"),
        (["Transformer", "Pooling"], ["", "elsewhere"], "no elsewhere/config.json for its pooling"),
    ],
)
def test_modules_that_are_not_built_are_refused(
    kinds: list[str], paths: list[str] | None, reason: str, folder: Callable[[HeadName], Path]
) -> None:
    """A vector without one of them would be another vector."""
    damaged = folder("mean")
    places = paths or ["", "1_Pooling", "2_Third", "3_Fourth"][: len(kinds)]
    entries = [
        {"idx": number, "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, path) in enumerate(zip(kinds, places, strict=True))
    ]
    (damaged / "modules.json").write_text(json.dumps(entries))
    assert reason in refusal_of(damaged)


@pytest.mark.parametrize("content", ["{", "[1]", '[{"type": "Pooling"}]', "null"])
def test_modules_that_cannot_be_read_are_refused(content: str, folder: Callable[[HeadName], Path]) -> None:
    """Whatever is in the file."""
    damaged = folder("mean")
    (damaged / "modules.json").write_text(content)
    assert "it does not list modules" in refusal_of(damaged)


def test_pooling_alone_is_enough(folder: Callable[[HeadName], Path]) -> None:
    """Without modules.json nothing is normalised; newer releases name the mode, and some checkpoints another head."""
    path = _edit(folder("cls"), architectures=["BertForMaskedLM"])
    (path / "modules.json").unlink()
    (path / POOLING).write_text(json.dumps({"pooling_mode": "mean", "embedding_dimension": 64}))
    assert _spec("embedding", (), "mean", 64) == Checkpoint.open(path).head


def test_the_digest_covers_what_describes_the_pooling(folder: Callable[[HeadName], Path]) -> None:
    """Other pooling, another model."""
    path = folder("mean")
    before = Checkpoint.open(path).digest
    modes = {MODES: False, "pooling_mode_cls_token": True}
    assert before != Checkpoint.open(_edit(path, POOLING, **modes)).digest
    assert path / POOLING in Checkpoint.open(path).files


@pytest.mark.parametrize("name", ["classifier.weight", "bert.pooler.dense.weight"])
def test_a_head_without_its_weights_is_refused_before_anything_is_built(
    name: str, folder: Callable[[HeadName], Path]
) -> None:
    """As one saved from the encoder alone."""
    path = folder("single")
    weights = load_file(path / WEIGHTS)
    del weights[name]
    save_file(weights, path / WEIGHTS)
    refusal = refusal_of(path)
    assert f"no weight '{name}'" in refusal
    assert "Is this a complete BertForSequenceClassification?" in refusal


@pytest.mark.parametrize("name", ["classifier.weight", "bert.pooler.dense.weight", "classifier.bias"])
def test_a_head_of_another_shape_is_refused(name: str, folder: Callable[[HeadName], Path], tmp_path: Path) -> None:
    """Named with both shapes."""
    path = folder("single")
    weights = load_file(path / WEIGHTS)
    save_file({**weights, name: np.ascontiguousarray(weights[name][:-1])}, path / WEIGHTS)
    with (
        (tmp_path / "weights").open("wb") as file,
        pytest.raises(ModelError, match=rf"{name} is .*, not .* as config.json says"),
    ):
        build([Checkpoint.open(path)], PaddedFloat32(), OnnxWriter(file, "weights"))
