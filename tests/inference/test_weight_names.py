"""Every weight of a file is used, changes no answer, or is named in a refusal: in all families, for all heads."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from inference.conftest import refusal_of
from safetensors.numpy import load_file, save_file
from support.head_references import FAMILIES, HEADS, REFERENCE, HeadName, write_folder

from enricher.worker.heads import KINDS
from enricher.worker.inference.checkpoint.bert_weights import BERT_FAMILIES
from enricher.worker.inference.checkpoint.configuration import head_weights
from enricher.worker.inference.checkpoint.folder import Checkpoint, OpenFiles
from enricher.worker.inference.checkpoint.same_encoder import encoder_digest
from enricher.worker.inference.graph.builder import build
from enricher.worker.inference.graph.graph_files import OnnxWriter
from enricher.worker.inference.graph.padded import PaddedFloat32
from enricher.worker.records import Float32Array

WEIGHTS = "model.safetensors"
HEAD_OR_NER: tuple[HeadName | None, ...] = (None, *HEADS)
"""None: the family's token classification."""


def folder_of(family: str, head: HeadName | None, folder: Path) -> Path:
    """A small checkpoint of the family with such a head."""
    return Path(shutil.copytree(REFERENCE / family, folder)) if head is None else write_folder(family, head, folder)


def add(folder: Path, names: Sequence[str]) -> Path:
    """Save the weights again, with others beside them."""
    others = {name: np.ones((2, 2), np.float32) for name in names}
    save_file({**load_file(folder / WEIGHTS), **others}, folder / WEIGHTS)
    return folder


def base_of(family: str) -> str:
    """The prefix of the family's encoder."""
    others = {"xlm-roberta": "roberta", "camembert": "roberta", "modernbert": "model", "deberta-v2": "deberta"}
    return others.get(family, family)


class _Watched:
    """A checkpoint that notes which weights are read."""

    def __init__(self, checkpoint: Checkpoint, read: set[str]) -> None:
        self._checkpoint, self._read = checkpoint, read

    def weight(self, name: str, opened: OpenFiles | None = None) -> Float32Array:
        self._read.add(name)
        return self._checkpoint.weight(name, opened)

    def __getattr__(self, name: str) -> object:
        return getattr(self._checkpoint, name)


@pytest.mark.parametrize("head", HEAD_OR_NER)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_graph_reads_every_weight_that_counts_as_read(family: str, head: HeadName | None, tmp_path: Path) -> None:
    """All but the bias of a key, which softmax takes away again: a name that nothing reads would be ignored in silence."""
    checkpoint, read = Checkpoint.open(folder_of(family, head, tmp_path / "model")), set[str]()
    with (tmp_path / "weights").open("wb") as file:
        build([_Watched(checkpoint, read)], PaddedFloat32(), OnnxWriter(file, "weights"))  # type: ignore[list-item]
    layers = KINDS[checkpoint.head.kind].layers
    named = {*checkpoint.family.encoder_weights(checkpoint.config), *head_weights(checkpoint.family, layers)}
    names = BERT_FAMILIES.get(family)
    unread_keys = {name for name in named if names is not None and name.endswith(f"{names.layer.key}.bias")}
    assert read == named - unread_keys
    assert len(named) == len(load_file(checkpoint.folder / WEIGHTS))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "names",
    [
        ["crf.transitions", "crf.start_transitions", "crf.end_transitions"],
        ["classifier2.weight", "classifier2.bias"],
        ["qa_outputs.weight"],
        ["lm_head.dense.weight", "cls.predictions.bias"],
        ["{base}.encoder.layer.0.output.adapters.ner.adapter_down.0.weight"],
        ["{base}.encoder.layer.0.attention.self.query.lora_A.default.weight"],
        ["{base}.embeddings.rotary.inv_freq"],
        ["pooler.weight"],
        ["_orig_mod.{base}.embeddings.word_embeddings.weight"],
    ],
)
def test_weights_that_answers_may_depend_on_are_named(family: str, names: list[str], tmp_path: Path) -> None:
    """A CRF, a second head, a head of pre-training beside labels, adapters, torch.compile's names."""
    added = sorted(name.format(base=base_of(family)) for name in names)
    stored = len(load_file(REFERENCE / family / WEIGHTS)) + len(added)
    said = refusal_of(add(folder_of(family, None, tmp_path / "model"), added))
    assert f"{len(added)} of {stored} weights would be ignored" in said
    assert f"may depend on them ({', '.join(added)}). A {family} of " in said
    assert "AutoModelForTokenClassification.from_pretrained" in said


def test_an_adapter_around_the_weights_is_named(tmp_path: Path) -> None:
    """PEFT renames the weights that it wraps, so they are missing too; the refusal is about the adapter."""
    folder = folder_of("bert", None, tmp_path / "model")
    wrapped = {
        name.replace("self.query.", "self.query.base_layer."): value
        for name, value in load_file(folder / WEIGHTS).items()
    }
    save_file(wrapped, folder / WEIGHTS)
    said = refusal_of(add(folder, ["bert.encoder.layer.0.attention.self.query.lora_A.default.weight"]))
    assert "query.base_layer.weight" in said
    assert "merge_and_unload" in said


@pytest.mark.parametrize("missing", [[], [WEIGHTS], [WEIGHTS, "config.json"]])
def test_an_adapter_in_a_file_of_its_own_is_refused(missing: list[str], tmp_path: Path) -> None:
    """PEFT saves no config.json beside it; transformers would add it to the weights of this folder, or of another."""
    folder = folder_of("roberta", None, tmp_path / "model")
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "base_model_name_or_path": "x"}))
    save_file({"base_model.model.lora_A.weight": np.ones((2, 2), np.float32)}, folder / "adapter_model.safetensors")
    for name in missing:
        (folder / name).unlink()
    assert "adapter_config.json describes an adapter" in refusal_of(folder)


@pytest.mark.parametrize("family", FAMILIES)
def test_layers_that_the_configuration_does_not_count_are_named(family: str, tmp_path: Path) -> None:
    """A config.json of another model: without its last layers the encoder says something else."""
    folder = folder_of(family, None, tmp_path / "model")
    config = json.loads((folder / "config.json").read_bytes())
    key = "n_layers" if family == "distilbert" else "num_hidden_layers"
    fewer = {**config, key: config[key] - 1, **({"layer_types": None} if "layer_types" in config else {})}
    (folder / "config.json").write_text(json.dumps(fewer))
    said = refusal_of(folder)
    assert f".{config[key] - 1}." in said
    assert f"A {family} of {config[key] - 1} layers with this head has no place for them" in said


def test_a_second_head_is_named_beside_each_kind_of_head(tmp_path: Path) -> None:
    """Classes for tokens beside a head for sequences, and labels beside vectors."""
    topics = add(write_folder("roberta", "single", tmp_path / "topics"), ["classifier.weight"])
    vectors = add(write_folder("bert", "mean", tmp_path / "vectors"), ["classifier.weight", "classifier.bias"])
    assert "depend on them (classifier.weight). " in refusal_of(topics)
    assert "AutoModelForSequenceClassification" in refusal_of(topics)
    assert "depend on them (classifier.bias, classifier.weight). " in refusal_of(vectors)
    assert "AutoModel.from_pretrained" in refusal_of(vectors)


def test_many_names_are_bounded(tmp_path: Path) -> None:
    """The first five, and their number."""
    said = refusal_of(
        add(folder_of("bert", None, tmp_path / "model"), [f"extra.{number:04}" for number in range(5000)])
    )
    assert "5000 of 5055 weights" in said
    assert "(extra.0000, extra.0001, extra.0002, extra.0003, extra.0004, ...)" in said


@pytest.mark.parametrize("head", HEAD_OR_NER)
@pytest.mark.parametrize("family", FAMILIES)
def test_buffers_and_a_pooler_are_passed_over(family: str, head: HeadName | None, tmp_path: Path) -> None:
    """With the family's prefix and without it; the encoder is the same with them and without them."""
    folder = folder_of(family, head, tmp_path / "model")
    digest = encoder_digest(Checkpoint.open(folder))
    idle = ["embeddings.position_ids", "embeddings.token_type_ids", "pooler.dense.weight", "pooler.dense.bias"]
    read = load_file(folder / WEIGHTS)
    names = [name for each in idle for name in (each, f"{base_of(family)}.{each}") if name not in read]
    assert digest == encoder_digest(Checkpoint.open(add(folder, names)))


@pytest.mark.parametrize(
    ("family", "names"),
    [
        ("bert", ["cls.predictions.transform.dense.weight", "cls.predictions.bias", "cls.seq_relationship.weight"]),
        ("xlm-roberta", ["lm_head.dense.weight", "lm_head.layer_norm.bias", "lm_head.decoder.weight"]),
        ("distilbert", ["vocab_transform.weight", "vocab_layer_norm.bias", "vocab_projector.bias"]),
        ("electra", ["discriminator_predictions.dense.weight", "generator_predictions.LayerNorm.weight"]),
    ],
)
def test_an_encoder_for_vectors_may_have_its_head_of_pre_training(
    family: str, names: list[str], tmp_path: Path
) -> None:
    """Vectors are made of hidden states, and such checkpoints are saved by the class that they were pre-trained with."""
    assert Checkpoint.open(add(write_folder(family, "cls", tmp_path / "model"), names)).head.kind == "embedding"
