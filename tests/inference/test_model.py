"""Preparing a model: its graph, of one head or several; the cache; and which checkpoints have the same encoder."""

from __future__ import annotations

import json
import logging
import os
import shutil
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support.head_references import FAMILIES, HEADS, REFERENCE, HeadName, write_folder

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.checkpoint.same_encoder import encoder_digest, first_difference
from enricher.worker.inference.device.sessions import open_session
from enricher.worker.inference.graph import graph_files
from enricher.worker.inference.graph.builder import BUILDER_VERSION
from enricher.worker.inference.run import model
from enricher.worker.inference.run.model import PreparedModel, open_model, prepare, prepare_heads
from enricher.worker.records import ModelCard
from tools.bench.plain_export import export

BERT = REFERENCE / "bert"


def _prepare(cache_dir: Path) -> PreparedModel:
    return prepare(REFERENCE / "distilbert", device="cpu", precision="fp32", cache_dir=cache_dir)


def _full_disk(*_: object) -> NoReturn:
    raise OSError(28, "No space left on device")


def test_the_second_time_nothing_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph is found by digest, variant and builder."""
    first = _prepare(tmp_path)
    monkeypatch.setattr(model, "build", None)
    assert first == _prepare(tmp_path)


def test_another_builder_builds_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph of an older release is not taken for ours."""
    first = _prepare(tmp_path)
    monkeypatch.setattr("enricher.worker.inference.run.model.BUILDER_VERSION", BUILDER_VERSION + 1)
    assert first.onnx_path != _prepare(tmp_path).onnx_path


def test_a_build_that_was_cut_short_is_never_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed process leaves behind lies aside, and the next one builds a whole graph."""
    with monkeypatch.context() as patch:
        patch.setattr(graph_files, "_move_into_place", _full_disk)
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)  # a killed process does not clean up
        with pytest.raises(OSError, match="No space"):
            _prepare(tmp_path)
    left_behind = {path.name for path in tmp_path.iterdir()}
    assert all(name.startswith(".building-") for name in left_behind)
    path = _prepare(tmp_path).onnx_path
    assert path.parent.name not in left_behind
    assert open_session(path, "cpu", threads_per_run=1)


def test_what_killed_builds_left_is_swept_away_after_an_hour(tmp_path: Path) -> None:
    """A build that may still be going on, of another process, is left alone."""
    old, young = tmp_path / ".building-old", tmp_path / ".building-young"
    old.mkdir()
    young.mkdir()
    os.utime(old, (0, 0))
    path = _prepare(tmp_path).onnx_path
    assert {young, path.parent} == set(tmp_path.iterdir())


def test_a_full_disk_is_a_model_error_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what to do about it."""
    monkeypatch.setattr("os.fsync", _full_disk)
    with pytest.raises(ModelError, match="Free some space"):
        _prepare(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_graph_of_which_a_part_was_removed_is_built_again(tmp_path: Path) -> None:
    """For example by a clean-up of unused files."""
    path = _prepare(tmp_path).onnx_path
    path.unlink()
    assert path == _prepare(tmp_path).onnx_path
    assert open_session(path, "cpu", threads_per_run=1)


@pytest.mark.parametrize("name", ["model.onnx", "model.weights"])
def test_a_graph_that_was_damaged_is_refused_with_the_folder_to_remove(name: str, tmp_path: Path) -> None:
    """By what reads it: to read all of it at every start to find that out would take as long as to build it."""
    path = _prepare(tmp_path).onnx_path
    (path.parent / name).write_bytes((path.parent / name).read_bytes()[:1000])
    with pytest.raises(ModelError, match=f"{path.parent} is damaged, remove it"):
        open_session(path, "cpu", threads_per_run=1)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such modes")
def test_a_graph_may_be_read_by_others(tmp_path: Path) -> None:
    """It may be made by one user and mounted for another, as in a pod."""
    assert 0o755 == stat.S_IMODE(_prepare(tmp_path).onnx_path.parent.stat().st_mode)


def test_two_at_once_get_the_same_complete_graph(tmp_path: Path) -> None:
    """The second takes what the first has built."""
    with ThreadPoolExecutor(4) as pool:
        paths = {each.onnx_path for each in pool.map(lambda _: _prepare(tmp_path), range(4))}
    (path,) = paths
    assert [path.parent] == list(tmp_path.iterdir())
    assert open_session(path, "cpu", threads_per_run=1)


def test_a_cache_that_cannot_be_written_is_replaced_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A read-only container still starts."""
    (tmp_path / "file").write_text("in the way")
    with caplog.at_level(logging.WARNING):
        prepared = _prepare(tmp_path / "file" / "cache")
    assert open_session(prepared.onnx_path, "cpu", threads_per_run=1)
    assert "cannot be written" in caplog.text


def test_the_built_in_model_is_there_by_name_and_by_none(cache_dir: Path) -> None:
    """The same one, whose card names it and its precision."""
    by_name, by_none = (
        prepare(source, device="cpu", precision="fp32", cache_dir=cache_dir) for source in ("newswire-e5", None)
    )
    assert by_name == by_none
    assert ("newswire-e5", "fp32") == (by_name.card.name, by_name.card.precision)


def test_a_name_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    """Nothing is downloaded; the message says how to."""
    with pytest.raises(ModelError, match=r"no such folder.*hf download"):
        prepare("someone/some-model", device="cpu", precision="auto", cache_dir=tmp_path)


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


def test_other_heads_or_another_order_are_another_graph(heads: list[Checkpoint], tmp_path: Path) -> None:
    """The outputs are named by their place."""
    passes = [heads, heads[::-1], heads[:2], heads[1:], [heads[0], heads[0]], *([each] for each in heads)]
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


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such modes")
@pytest.mark.parametrize(("index", "name"), [(0, "config.json"), *((each, "model.safetensors") for each in range(3))])
def test_a_graph_is_as_private_as_the_most_private_of_its_heads(
    heads: list[Checkpoint], tmp_path: Path, index: int, name: str
) -> None:
    """A file of a model that others may not read is in no graph that they may."""
    (heads[index].folder / name).chmod(0o600)
    path = _path(heads, tmp_path / "cache")
    assert {0o600} == {stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    assert [0o700, 0o700] == [stat.S_IMODE(each.stat().st_mode) for each in (path.parent, tmp_path / "cache")]


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


@pytest.mark.slow
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
