"""Checkpoints: what is read from a folder, and how one that cannot be used is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from inference.conftest import REFERENCE, change_config, refusal_of
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from support.models import MINILM_FOLDER

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.checkpoint.same_encoder import encoder_digest
from enricher.worker.inference.graph.padded import PaddedFloat32
from enricher.worker.inference.run import model
from enricher.worker.inference.run.model import open_model, prepare_variant


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


def test_a_file_of_weights_is_opened_once_for_a_graph(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The encoder opens it once, and so do the head and a digest; each weight used to, for up to some milliseconds."""
    checkpoint, opened = Checkpoint.open(folder), list[Path]()

    def counted(path: Path, framework: str) -> safe_open:
        opened.append(path)
        return safe_open(path, framework=framework)

    monkeypatch.setattr("enricher.worker.inference.checkpoint.folder.safe_open", counted)
    prepare_variant(checkpoint, PaddedFloat32(), "cpu", cache_dir=folder.parent / "cache")
    assert 2 * [folder / "model.safetensors"] == opened
    encoder_digest(checkpoint)
    assert 3 == len(opened)


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
