"""A head with one number: what its folder must say, that the number is that of transformers, and what records hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from heads.test_heads import MODEL, PART, rows
from safetensors.numpy import load_file, save_file

from enricher.errors import InvalidArticle, ModelError
from enricher.worker.heads import KINDS, RegressionHead, reads_of
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.sessions import open_session
from enricher.worker.inference.graph.builder import build
from enricher.worker.inference.graph.onnx_file import OnnxWriter
from enricher.worker.inference.graph.padded import PaddedFloat32
from enricher.worker.inference.run.selection import variants_for, why_not_reduced
from enricher.worker.records import Pooling, TaskCard
from tools.head_references import OUTPUTS, articles, write_folder

HEAD = RegressionHead(TaskCard("mood", "regression", MODEL, "mean"))
KEPT = 2
"""Of the classes of the reference head, the one whose logit is the number here."""


def folder_of(family: str, place: Path, **changes: object) -> Path:
    """The reference head for classes with only one of its rows, as a checkpoint for regression."""
    folder = write_folder(family, "single", place)
    config, weights = json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")
    names = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    (folder / "config.json").write_text(json.dumps({**config, **names, "problem_type": "regression", **changes}))
    for name in ("weight", "bias"):
        [last] = [f"{each}.{name}" for each in ("classifier", "classifier.out_proj") if f"{each}.{name}" in weights]
        weights[last] = np.ascontiguousarray(weights[last][KEPT : KEPT + 1])
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_a_folder_for_regression_gives_one_number(tmp_path: Path) -> None:
    """Its only label is named by nobody; a head with several numbers is refused, with what to do."""
    head = Checkpoint.open(folder_of("bert", tmp_path / "one")).head
    assert ("regression", (), "first", 1) == (head.kind, head.labels, head.reads, head.dimensions)
    assert "a number" == KINDS["regression"].in_words({})
    several = folder_of("bert", tmp_path / "two", id2label={"0": "a", "1": "b"})
    with pytest.raises(ModelError, match=r"it has 2 labels; only a head with one number is supported\. Choose"):
        Checkpoint.open(several)


def test_a_single_label_without_a_problem_type_is_not_guessed(tmp_path: Path) -> None:
    """A class that holds or does not, or a number: config.json has to say."""
    with pytest.raises(ModelError, match="regression for a number"):
        Checkpoint.open(folder_of("bert", tmp_path / "unknown", problem_type=None))


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
def test_the_number_of_an_article_is_that_of_transformers(family: str, tmp_path: Path) -> None:
    """Also of one with 40 windows, where it is the mean over the tokens."""
    checkpoint, variant = Checkpoint.open(folder_of(family, tmp_path / family)), PaddedFloat32()
    with (tmp_path / "weights").open("wb") as weights:
        graph = build([checkpoint], variant, OnnxWriter(weights, "weights")).SerializeToString()
    (tmp_path / "model.onnx").write_bytes(graph)
    session, expected = (
        open_session(tmp_path / "model.onnx", "cpu", threads_per_run=1),
        np.load(OUTPUTS / f"{family}.npz"),
    )
    for cut, article in zip(articles().values(), expected["articles.single"], strict=True):
        feeds = variant.feeds(cut.windows, 0, reads_of([checkpoint.head]))
        (values,) = session.run(["head.0.rows"], feeds)
        answers = rows(*((each.own_stop - each.own_start, row) for each, row in zip(cut.windows, values, strict=True)))
        [found] = HEAD.find(PART, answers)
        assert found == {"task": "mood", "value": pytest.approx(float(article[KEPT]), abs=1e-4)}


@pytest.mark.parametrize(("pooling", "value"), [("mean", 2.5), ("first_window", 1.0), ("max", 3.0)])
def test_windows_are_pooled_as_for_classes(pooling: Pooling, value: float) -> None:
    """Weighted by owned tokens, the first, or the largest; an article without tokens has no number."""
    head = RegressionHead(TaskCard("mood", "regression", MODEL, pooling))
    assert [{"task": "mood", "value": value}] == head.find(PART, rows((1, [1.0]), (3, [3.0])))
    assert [] == head.find(PART, [])


def test_a_number_has_the_digits_of_its_float32() -> None:
    """And reads back as the same float32."""
    [found] = HEAD.find(PART, rows((1, [0.1])))
    assert "0.1" == json.dumps(found["value"])
    assert np.float32(0.1) == np.float32(found["value"])


def test_a_number_that_is_not_finite_is_refused() -> None:
    """JSON has no infinity, and null would be silent."""
    found: list[dict[str, Any]] = [{"task": "mood", "value": float("inf")}]
    for write in (RegressionHead.as_json, RegressionHead.as_values):
        with pytest.raises(InvalidArticle, match="the number of task 'mood' is not finite"):
            write(found)


def test_people_see_four_digits() -> None:
    """In `doctor` and in `tail`."""
    found = [{"task": "mood", "value": -0.123456}]
    assert ["mood -0.1235"] == [*RegressionHead.summaries(found)]
    assert ("-0.1235", "no number") == (RegressionHead.tail_text(found), RegressionHead.tail_text([]))


def test_only_fp32_serves_what_the_gate_does_not_compare(tmp_path: Path) -> None:
    """Nobody would see what another precision does to the numbers."""
    checkpoint = Checkpoint.open(folder_of("bert", tmp_path / "one"))
    refused = {variant.precision for variant in variants_for("cpu") if why_not_reduced([checkpoint], variant)}
    assert {variant.precision for variant in variants_for("cpu")} - {"fp32"} == refused
