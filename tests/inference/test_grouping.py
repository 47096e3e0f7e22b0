"""Which tasks share a pass, and what is said of those that do not."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.run.grouping import PassRequest, group_tasks, why_apart, windows_of
from enricher.worker.inference.run.model import open_model
from tools.bench.model.plain import export
from tools.head_references.folders import REFERENCE, write_folder

BERT = REFERENCE / "bert"
FLIPPED = "bert.encoder.layer.1.output.dense.weight"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Checkpoint]:
    """Four heads on one encoder, one on an encoder that differs in one bit, and one of another family."""
    place = tmp_path_factory.mktemp("models")
    folders = {
        "ner": BERT,
        "topics": write_folder("bert", "single", place / "topics"),
        "tones": write_folder("bert", "multi", place / "tones"),
        "vectors": write_folder("bert", "mean", place / "vectors"),
        "flipped": write_folder("bert", "single", place / "flipped"),
        "other": write_folder("roberta", "single", place / "other"),
    }
    weights = load_file(folders["flipped"] / "model.safetensors")
    weights[FLIPPED] = weights[FLIPPED].copy()
    weights[FLIPPED].reshape(-1).view(np.uint32)[0] ^= 1
    save_file(weights, folders["flipped"] / "model.safetensors")
    return {name: Checkpoint.open(folder) for name, folder in folders.items()}


def asked(checkpoint: Checkpoint, windows: tuple[int, int] | None = None) -> PassRequest:
    """A task that leaves its precision open."""
    return PassRequest(checkpoint, windows, "auto")


def test_tasks_with_one_encoder_share_one_pass(models: dict[str, Checkpoint]) -> None:
    """Whatever they find."""
    grouping = group_tasks([asked(models[name]) for name in ("ner", "topics", "tones", "vectors")])
    assert [[0, 1, 2, 3]] == [*grouping.groups]
    assert [[]] == [*grouping.reasons]


def test_two_tasks_may_have_one_model(models: dict[str, Checkpoint]) -> None:
    """For example with two thresholds."""
    assert [[0, 1]] == [*group_tasks([asked(models["tones"])] * 2).groups]


def test_an_encoder_that_differs_in_one_bit_has_its_own_pass(models: dict[str, Checkpoint]) -> None:
    """The weight is named; a task behind it still joins the first pass."""
    grouping = group_tasks([asked(models[name]) for name in ("ner", "flipped", "vectors")])
    assert [[0, 2], [1]] == [*grouping.groups]
    assert [[], [f"{FLIPPED} differs"]] == [*grouping.reasons]


def test_a_reason_is_told_for_each_earlier_pass(models: dict[str, Checkpoint]) -> None:
    """In the order of the passes."""
    grouping = group_tasks([asked(models[name]) for name in ("ner", "flipped", "other", "topics", "flipped")])
    assert [[0, 3], [1, 4], [2]] == [*grouping.groups]
    first, second = grouping.reasons[2]
    assert first == second
    assert first.startswith("model_type in config.json (bert, roberta)")


def test_tasks_without_windows_of_their_own_take_those_of_their_pass(models: dict[str, Checkpoint]) -> None:
    """Wherever the one that has some stands."""
    requests = [asked(models["ner"]), asked(models["topics"], (128, 32)), asked(models["tones"])]
    assert [[0, 1, 2]] == [*group_tasks(requests).groups]
    assert (128, 32) == windows_of(requests)
    assert windows_of(requests[:1]) is None
    assert [[0, 1]] == [*group_tasks([asked(models["ner"], (64, 16)), asked(models["topics"], (64, 16))]).groups]


@pytest.mark.parametrize("windows", [(256, 32), (128, 16)], ids=["length", "overlap"])
def test_tasks_with_other_windows_run_apart(models: dict[str, Checkpoint], windows: tuple[int, int]) -> None:
    """Of a pass that began with a task without windows, those count that it took since."""
    requests = [asked(models["ner"]), asked(models["topics"], (128, 32)), asked(models["tones"], windows)]
    grouping = group_tasks(requests)
    assert [[0, 1], [2]] == [*grouping.groups]
    here = f"windows of {windows[0]} tokens with an overlap of {windows[1]} here"
    assert [[], [f"windows of 128 tokens with an overlap of 32 there, {here}"]] == [*grouping.reasons]


def test_tasks_with_another_precision_run_apart(models: dict[str, Checkpoint]) -> None:
    """Also where the machine would give both the same: it is what was asked for that counts."""
    requests = [PassRequest(models["ner"], None, "auto"), PassRequest(models["topics"], None, "fp32")]
    grouping = group_tasks(requests)
    assert [[0], [1]] == [*grouping.groups]
    assert [[], ["precision auto there, fp32 here"]] == [*grouping.reasons]


def test_a_model_that_is_onnx_already_runs_by_itself(models: dict[str, Checkpoint], tmp_path: Path) -> None:
    """Even beside itself."""
    export(models["ner"], tmp_path)
    shutil.copy(BERT / "config.json", tmp_path)
    exported = asked(open_model(tmp_path))
    ner = asked(models["ner"])
    for pair in ((ner, exported), (exported, ner), (exported, exported)):
        assert "a model that is ONNX already runs by itself" == why_apart(*pair)


def test_weights_that_cannot_be_read_are_an_error(models: dict[str, Checkpoint], tmp_path: Path) -> None:
    """Not a difference: the task would silently cost its own pass."""
    broken = Checkpoint.open(write_folder("bert", "single", tmp_path / "broken"))
    (broken.folder / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(ModelError, match="broken"):
        group_tasks([asked(models["ner"]), asked(broken)])
