"""Checkpoints: what is read from a folder, its head of each kind, and how one that cannot be used is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from inference.conftest import change_config, refusal_of
from safetensors.numpy import load_file, save_file
from support.head_references import CLASSES, FAMILIES, HEADS, REFERENCE, HeadName, write_folder
from support.models import MINILM_FOLDER

from enricher.errors import ModelError
from enricher.worker.heads import HeadSpec, Reads, reads_of
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.graph.builder import build
from enricher.worker.inference.graph.graph_files import OnnxWriter
from enricher.worker.inference.graph.padded import PaddedFloat32
from enricher.worker.inference.run import model
from enricher.worker.inference.run.model import open_model
from enricher.worker.records import TaskKind


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a small checkpoint, to be damaged."""
    return Path(shutil.copytree(REFERENCE / "bert", tmp_path / "small"))


def test_labels_name_and_limits_come_from_the_folder() -> None:
    """Positions of RoBERTa's family begin after the padding id: 162 less two make windows of 160."""
    minilm, xlm_r = Checkpoint.open(MINILM_FOLDER), Checkpoint.open(REFERENCE / "xlm-roberta")
    assert minilm.labels == ("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC")
    assert (minilm.name, minilm.max_window_tokens, minilm.first_position) == ("newswire-minilm", 512, 0)
    assert (xlm_r.first_position, xlm_r.max_window_tokens) == (2, 160)


@pytest.mark.parametrize("stored", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_weights_are_read_as_float32_whatever_they_are_stored_as(folder: Path, stored: type[np.generic]) -> None:
    """The three float types of published checkpoints."""
    weights = load_file(folder / "model.safetensors")
    save_file({name: value.astype(stored) for name, value in weights.items()}, folder / "model.safetensors")
    read = Checkpoint.open(folder).weight("classifier.weight")
    assert read.dtype == np.float32
    np.testing.assert_array_equal(weights["classifier.weight"].astype(stored).astype(np.float32), read)


def test_a_weight_of_another_type_is_refused(folder: Path) -> None:
    """Quantised checkpoints need their scales, which we would not know about."""
    weights = load_file(folder / "model.safetensors")
    weights["classifier.weight"] = weights["classifier.weight"].astype(np.int8)
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"classifier\.weight.* is int8"):
        Checkpoint.open(folder).weight("classifier.weight")


def test_shards_are_found_through_their_index(folder: Path) -> None:
    """Large checkpoints come in several files; a missing one is named before any work is done."""
    weights = load_file(folder / "model.safetensors")
    names = sorted(weights)
    parts = {"one.safetensors": names[:5], "two.safetensors": names[5:]}
    for file, part in parts.items():
        save_file({name: weights[name] for name in part}, folder / file)
    index = {name: file for file, part in parts.items() for name in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    (folder / "model.safetensors").unlink()
    checkpoint = Checkpoint.open(folder)
    for name in (names[0], names[-1]):
        np.testing.assert_array_equal(weights[name], checkpoint.weight(name))
    (folder / "two.safetensors").unlink()
    assert "weights missing: two.safetensors" in refusal_of(folder)


def test_an_index_beside_a_whole_file_is_an_earlier_saves(folder: Path) -> None:
    """save_pretrained removes the shards of the last time and leaves their index; transformers reads the whole file."""
    digest = Checkpoint.open(folder).digest
    index = {"weight_map": {"classifier.weight": "model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    expected = load_file(folder / "model.safetensors")["classifier.weight"]
    np.testing.assert_array_equal(expected, Checkpoint.open(folder).weight("classifier.weight"))
    assert digest == Checkpoint.open(folder).digest


@pytest.mark.parametrize("index", ["[]", '{"weight_map": []}', "{", '{"weight_map": {"a": "../model.safetensors"}}'])
def test_an_index_that_cannot_be_used_is_refused(folder: Path, index: str) -> None:
    """Whatever is in it."""
    (folder / "model.safetensors").rename(folder.parent / "model.safetensors")
    (folder / "model.safetensors.index.json").write_text(index)
    assert "Copy the folder again" in refusal_of(folder)


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no file here that nobody can read")
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_file_that_cannot_be_read_is_named(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of another user's is in a pod. Here a link stands for it, which would be refused before."""
    monkeypatch.setattr(model, "refuse_outside_links", lambda _folder: None)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to("/proc/self/mem")
    with pytest.raises(ModelError, match=f"{folder}.* cannot be read: "):
        open_model(folder)


def test_names_that_tensorflow_left_behind_are_understood(folder: Path) -> None:
    """Old conversions say gamma and beta."""
    weights = load_file(folder / "model.safetensors")
    old = {name.replace("LayerNorm.weight", "LayerNorm.gamma"): value for name, value in weights.items()}
    save_file(old, folder / "model.safetensors")
    name = "bert.embeddings.LayerNorm.weight"
    np.testing.assert_array_equal(weights[name], Checkpoint.open(folder).weight(name))


def test_the_digest_is_of_what_the_model_is_made_from(folder: Path) -> None:
    """A README may change; config, weights or tokenizer may not. A copy elsewhere is the same model."""
    digest = Checkpoint.open(folder).digest
    assert len(bytes.fromhex(digest)) == 32
    (folder / "README.md").write_text("hello")
    assert digest == Checkpoint.open(Path(shutil.copytree(folder, folder.parent / "copy"))).digest
    (folder / "vocab.txt").write_text("[PAD]\n")
    with_vocabulary = Checkpoint.open(folder).digest
    change_config(folder, dropout=0.2)
    assert len({digest, with_vocabulary, Checkpoint.open(folder).digest}) == 3


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"model_type": "deberta", "architectures": ["DebertaForTokenClassification"]},
            "DebertaForTokenClassification",
        ),
        ({"architectures": ["BertForMaskedLM"]}, "BertForMaskedLM: it has no token classification head"),
        ({"architectures": None}, "it has no token classification head"),
        ({"architectures": {"a": "b"}}, "it has no token classification head"),
        ({"hidden_act": "relu"}, "activation 'relu'"),
        ({"position_embedding_type": "relative_key"}, "position embeddings 'relative_key'"),
        ({"is_decoder": True}, "a decoder"),
        ({"num_attention_heads": 5}, "5 heads over width 64"),
        ({"hidden_size": "wide"}, "this configuration cannot be read"),
        ({"id2label": {"0": "O", "2": "B-PER"}}, "id2label must name every label"),
        ({"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}, "only placeholders"),
    ],
)
def test_what_we_do_not_build_is_refused_by_name(folder: Path, changes: dict[str, Any], reason: str) -> None:
    """A silent approximation would be worse than no model."""
    change_config(folder, **changes)
    assert reason in refusal_of(folder)


def test_missing_and_broken_files_are_named(folder: Path) -> None:
    """Each refusal says which file, and of which folder."""
    assert "no such folder" in refusal_of(folder / "nowhere")
    (folder / "model.safetensors").write_bytes(b"not safetensors")
    assert "the weights cannot be read" in refusal_of(folder)
    (folder / "model.safetensors").unlink()
    assert "no model.safetensors" in refusal_of(folder)
    (folder / "config.json").write_text("[]")
    assert "this configuration cannot be read" in refusal_of(folder)
    (folder / "config.json").unlink()
    assert "no config.json" in refusal_of(folder)


POOLING = "1_Pooling/config.json"
WEIGHTS = "model.safetensors"
MODES = "pooling_mode_mean_tokens"


@pytest.fixture
def with_head(tmp_path: Path) -> Callable[[HeadName], Path]:
    """A BERT with such a head, to be damaged."""
    return lambda head: write_folder("bert", head, tmp_path / head)


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


def test_what_a_configuration_need_not_say_or_says_twice(with_head: Callable[[HeadName], Path]) -> None:
    """Older releases of transformers write no problem type; one label may hold or not; a pooling has two names."""
    multi = with_head("multi")
    assert ("urgent",) == Checkpoint.open(change_config(multi, id2label={"0": "urgent"})).head.labels
    assert not Checkpoint.open(
        change_config(multi, problem_type=None, id2label={"0": "a", "1": "b", "2": "c"})
    ).head.multi_label
    assert "mean" == Checkpoint.open(change_config(with_head("mean"), POOLING, pooling_mode="mean")).head.reads


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
    head: HeadName, file: str, changes: dict[str, Any], reason: str, with_head: Callable[[HeadName], Path]
) -> None:
    """What we read differently from transformers, we do not read; for pooling, the message says what to do."""
    refusal = refusal_of(change_config(with_head(head), file, **changes))
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
    kinds: list[str], paths: list[str] | None, reason: str, with_head: Callable[[HeadName], Path]
) -> None:
    """A vector without one of them would be another vector."""
    damaged = with_head("mean")
    places = paths or ["", "1_Pooling", "2_Third", "3_Fourth"][: len(kinds)]
    entries = [
        {"idx": number, "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, path) in enumerate(zip(kinds, places, strict=True))
    ]
    (damaged / "modules.json").write_text(json.dumps(entries))
    assert reason in refusal_of(damaged)


@pytest.mark.parametrize("content", ["{", "[1]", '[{"type": "Pooling"}]', "null"])
def test_modules_that_cannot_be_read_are_refused(content: str, with_head: Callable[[HeadName], Path]) -> None:
    """Whatever is in the file."""
    damaged = with_head("mean")
    (damaged / "modules.json").write_text(content)
    assert "it does not list modules" in refusal_of(damaged)


def test_pooling_alone_is_enough(with_head: Callable[[HeadName], Path]) -> None:
    """Without modules.json nothing is normalised; newer releases name the mode, and some checkpoints another head."""
    path = change_config(with_head("cls"), architectures=["BertForMaskedLM"])
    (path / "modules.json").unlink()
    (path / POOLING).write_text(json.dumps({"pooling_mode": "mean", "embedding_dimension": 64}))
    assert _spec("embedding", (), "mean", 64) == Checkpoint.open(path).head


@pytest.mark.parametrize("name", ["classifier.weight", "bert.pooler.dense.weight"])
def test_a_head_without_its_weights_is_refused_before_anything_is_built(
    name: str, with_head: Callable[[HeadName], Path]
) -> None:
    """As one saved from the encoder alone."""
    path = with_head("single")
    weights = load_file(path / WEIGHTS)
    del weights[name]
    save_file(weights, path / WEIGHTS)
    refusal = refusal_of(path)
    assert f"no weight '{name}'" in refusal
    assert "Is this a complete BertForSequenceClassification?" in refusal


@pytest.mark.parametrize("name", ["classifier.weight", "bert.pooler.dense.weight", "classifier.bias"])
def test_a_head_of_another_shape_is_refused(name: str, with_head: Callable[[HeadName], Path], tmp_path: Path) -> None:
    """Named with both shapes."""
    path = with_head("single")
    weights = load_file(path / WEIGHTS)
    save_file({**weights, name: np.ascontiguousarray(weights[name][:-1])}, path / WEIGHTS)
    with (
        (tmp_path / "weights").open("wb") as file,
        pytest.raises(ModelError, match=rf"{name} is .*, not .* as config.json says"),
    ):
        build([Checkpoint.open(path)], PaddedFloat32(), OnnxWriter(file, "weights"))
