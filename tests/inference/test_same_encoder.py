"""Whether two checkpoints have the same encoder: what counts, what does not, and how a difference is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support.head_references import FAMILIES, HEADS, REFERENCE, HeadName, write_folder

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.checkpoint.same_encoder import encoder_digest, first_difference
from enricher.worker.inference.run.model import open_model, prepare_heads
from tools.bench.plain_export import export

BERT = REFERENCE / "bert"
TOKENIZER = {"truncation": None, "padding": None, "model": {"type": "WordPiece", "vocab": {"[PAD]": 0, "a": 1}}}


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """NER, and classes on the same encoder, with the same tokenizer."""
    folders = Path(shutil.copytree(BERT, tmp_path / "ner")), write_folder("bert", "single", tmp_path / "topics")
    for folder in folders:
        _write(folder / "tokenizer.json", TOKENIZER)
        _write(folder / "tokenizer_config.json", {"model_max_length": 512, "do_lower_case": True})
    return folders


def _write(path: Path, values: object) -> None:
    path.write_text(json.dumps(values))


def _compared(pair: tuple[Path, Path]) -> str | None:
    """The difference; digests must say the same."""
    first, second = map(Checkpoint.open, pair)
    difference = first_difference(first, second)
    assert (difference is None) == (encoder_digest(first) == encoder_digest(second))
    return difference


@pytest.mark.parametrize(
    ("family", "head"), [*(("bert", head) for head in HEADS), *((family, "single") for family in FAMILIES[1:])]
)
def test_heads_on_one_encoder_share_it(family: str, head: HeadName, tmp_path: Path) -> None:
    """Whatever the head, and whether or not names have the family's prefix."""
    assert _compared((REFERENCE / family, write_folder(family, head, tmp_path / head))) is None


def test_a_pooler_that_no_head_reads_does_not_count(tmp_path: Path) -> None:
    """Two vectors' checkpoints, one of which was saved with its pooler."""
    folders = [write_folder("bert", "mean", tmp_path / name) for name in ("with", "without")]
    weights = load_file(folders[0] / "model.safetensors")
    save_file({**weights, "pooler.dense.weight": np.ones((64, 64), np.float32)}, folders[0] / "model.safetensors")
    assert _compared((folders[0], folders[1])) is None


@pytest.mark.parametrize("family", ["bert", "distilbert", "electra"])
def test_one_flipped_bit_of_any_encoder_weight_is_named(family: str, tmp_path: Path) -> None:
    """The lowest bit of one number, in every tensor that the graph is built from."""
    folder = write_folder(family, "single", tmp_path / "topics")
    original = load_file(folder / "model.safetensors")
    checkpoint = Checkpoint.open(folder)
    for name in checkpoint.family.encoder_weights(checkpoint.config):
        flipped = original[name].copy()
        flipped.reshape(-1).view(np.uint32)[-1] ^= 1
        save_file({**original, name: flipped}, folder / "model.safetensors")
        assert f"{name} differs" == _compared((REFERENCE / family, folder))


def test_weights_that_mean_the_same_numbers_are_the_same(pair: tuple[Path, Path]) -> None:
    """Stored as float16 in one folder and as float32 in the other."""
    for folder, kind in zip(pair, (np.float16, np.float32), strict=True):
        weights = load_file(folder / "model.safetensors")
        halves = {name: value.astype(np.float16).astype(kind) for name, value in weights.items()}
        save_file(halves, folder / "model.safetensors")
    assert _compared(pair) is None


@pytest.mark.parametrize(
    ("file", "changes", "differs"),
    [
        # sentence-transformers writes its truncation and padding into the same files.
        ("tokenizer.json", {"truncation": {"max_length": 128}, "padding": {"strategy": "BatchLongest"}}, False),
        ("tokenizer_config.json", {"name_or_path": "somewhere", "padding_side": "right"}, False),
        ("tokenizer.json", {"model": {"type": "WordPiece", "vocab": {"[PAD]": 1, "a": 0}}}, True),
        ("tokenizer_config.json", {"model_max_length": 128}, True),
        ("config.json", {"layer_norm_eps": 1e-5}, True),
        ("vocab.txt", {}, True),  # only one has it
        ("merges.txt", {}, True),
        ("added_tokens.json", {}, True),
    ],
)
def test_files_differ_only_in_what_changes_tokens_or_windows(
    pair: tuple[Path, Path], file: str, changes: dict[str, Any], *, differs: bool
) -> None:
    """A file that differs is named, before any weight is read."""
    path = pair[1] / file
    _write(path, (json.loads(path.read_text()) if path.is_file() else {}) | changes)
    assert (f"{file} differs" if differs else None) == _compared(pair)


def test_a_model_that_is_onnx_already_shares_with_none(tmp_path: Path) -> None:
    """There is no telling its encoder from its head."""
    export(Checkpoint.open(BERT), tmp_path)
    shutil.copy(BERT / "config.json", tmp_path)
    model = open_model(tmp_path)
    why = "model.onnx, a model that is ONNX already, runs by itself"
    assert why == first_difference(model, Checkpoint.open(BERT)) == first_difference(model, model)
    assert model.digest == encoder_digest(model)
    for together in ([model, Checkpoint.open(BERT)], [Checkpoint.open(BERT), model]):
        with pytest.raises(ModelError, match=f"{tmp_path}: a model that is ONNX already runs by itself"):
            prepare_heads(together, device="cpu", precision="fp32", cache_dir=tmp_path / "cache")
