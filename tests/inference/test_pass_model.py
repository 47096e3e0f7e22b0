"""The graph of a pass: which heads it is of, and when it is built again."""

from __future__ import annotations

import shutil
import stat
import sys
from pathlib import Path

import pytest

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.graph.builder import BUILDER_VERSION
from enricher.worker.inference.graph.padded import PackedFloat32, PaddedFloat32
from enricher.worker.inference.run import model
from enricher.worker.inference.run.model import open_model, prepare, prepare_heads, prepare_variant
from enricher.worker.records import ModelCard
from tools.bench.model.plain import export
from tools.head_references import REFERENCE, write_folder

BERT = REFERENCE / "bert"


@pytest.fixture
def heads(tmp_path: Path) -> list[Checkpoint]:
    """Entities, classes and vectors on one encoder."""
    folders = [
        Path(shutil.copytree(BERT, tmp_path / "ner")),
        write_folder("bert", "single", tmp_path / "topics"),
        write_folder("bert", "mean", tmp_path / "vectors"),
    ]
    return [Checkpoint.open(folder) for folder in folders]


def _path(checkpoints: list[Checkpoint], cache_dir: Path) -> Path:
    return prepare_heads(checkpoints, device="cpu", precision="fp32", cache_dir=cache_dir).onnx_path


def test_a_pass_names_the_checkpoint_and_the_card_of_each_head(heads: list[Checkpoint], tmp_path: Path) -> None:
    """In the order of the outputs; all in the precision of the pass."""
    prepared = prepare_heads(heads, device="cpu", precision="fp32", cache_dir=tmp_path / "cache")
    assert tuple(heads) == prepared.checkpoints
    assert heads[0] == prepared.checkpoint
    assert tuple(ModelCard(each.name, each.digest, "fp32") for each in heads) == prepared.cards
    assert prepared.cards[0] == prepared.card


def test_a_model_by_itself_is_a_pass_of_one(tmp_path: Path) -> None:
    """Same graph, same card, same place in the cache as ever."""
    prepared = prepare(BERT, device="cpu", precision="fp32", cache_dir=tmp_path)
    assert prepared == prepare_heads([open_model(BERT)], device="cpu", precision="fp32", cache_dir=tmp_path)
    assert (prepared.checkpoint,) == prepared.checkpoints
    key = f"{prepared.checkpoint.digest[:32]}-{prepared.variant.name}-{BUILDER_VERSION}"
    assert tmp_path / key / "model.onnx" == prepared.onnx_path


@pytest.mark.parametrize("index", [1, 2], ids=["topics", "vectors"])
def test_another_head_by_itself_has_its_own_graph(heads: list[Checkpoint], tmp_path: Path, index: int) -> None:
    """Found by its own digest."""
    path = _path([heads[index]], tmp_path / "cache")
    assert path.parent.name.startswith(heads[index].digest[:32])
    assert path != _path(heads[:1], tmp_path / "cache")


def test_the_second_time_nothing_is_built(
    heads: list[Checkpoint], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the folders were opened again."""
    first = _path(heads, tmp_path / "cache")
    monkeypatch.setattr(model, "build", None)
    assert first == _path([Checkpoint.open(each.folder) for each in heads], tmp_path / "cache")


def test_other_heads_or_another_order_are_another_graph(heads: list[Checkpoint], tmp_path: Path) -> None:
    """The outputs are named by their place."""
    passes = [heads, heads[::-1], heads[:2], heads[1:], [heads[0], heads[0]], heads[:1]]
    assert len(passes) == len({_path(each, tmp_path / "cache") for each in passes})


def test_a_head_that_was_trained_again_is_another_graph(heads: list[Checkpoint], tmp_path: Path) -> None:
    """Any file of any head counts: here how vectors are pooled, and their normalisation."""
    before = _path(heads, tmp_path / "cache")
    pooling = heads[2].folder / "1_Pooling" / "config.json"
    pooling.write_text(pooling.read_text().replace('"include_prompt": true', '"include_prompt": false'))
    changed = [*heads[:2], Checkpoint.open(heads[2].folder)]
    then = _path(changed, tmp_path / "cache")
    (heads[2].folder / "modules.json").unlink()
    after = _path([*heads[:2], Checkpoint.open(heads[2].folder)], tmp_path / "cache")
    assert 3 == len({before, then, after})


def test_variants_of_a_pass_are_graphs_of_their_own(heads: list[Checkpoint], tmp_path: Path) -> None:
    """As those of a single model."""
    paths = {
        prepare_variant(heads[0], variant, "cpu", cache_dir=tmp_path / "cache", others=heads[1:]).onnx_path
        for variant in (PaddedFloat32(), PackedFloat32())
    }
    assert len(paths) == 2


def test_a_model_that_is_onnx_already_takes_no_other_head(heads: list[Checkpoint], tmp_path: Path) -> None:
    """Its encoder cannot be told from its head; the message names its folder, wherever it is in the pass."""
    folder = tmp_path / "exported"
    folder.mkdir()
    export(heads[0], folder)
    shutil.copy(BERT / "config.json", folder)
    exported = open_model(folder)
    for together in ([exported, heads[1]], [heads[1], exported]):
        with pytest.raises(ModelError, match=f"{folder}: a model that is ONNX already runs by itself"):
            _path(together, tmp_path / "cache")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such modes")
@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_graph_is_as_private_as_the_most_private_of_its_heads(
    heads: list[Checkpoint], tmp_path: Path, index: int
) -> None:
    """A weight that others may not read is in no graph that they may."""
    (heads[index].folder / "model.safetensors").chmod(0o600)
    path = _path(heads, tmp_path / "cache")
    assert {0o600} == {stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}


@pytest.mark.parametrize("damage", ["removed", "cut short"])
def test_a_file_that_cannot_be_read_is_an_error_that_names_its_folder(
    heads: list[Checkpoint], tmp_path: Path, damage: str
) -> None:
    """Whichever head's it is; nothing is left in the cache."""
    weights = heads[1].folder / "model.safetensors"
    if damage == "removed":
        weights.unlink()
    else:
        weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(ModelError, match=f"^{heads[1].folder}: "):
        _path(heads, tmp_path / "cache")
    assert list((tmp_path / "cache").glob("*/model.onnx")) == []
