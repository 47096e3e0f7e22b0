"""`scripts/train-head`: the regression, the measure, the checkpoint, and the head that ships."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import orjson
import pytest
from safetensors.numpy import load_file, save_file
from support.topics import QUICK_TO_START

from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.checkpoint.same_encoder import first_difference
from enricher.worker.inference.run.model import EMBEDDED, open_model
from tools.demo.tasks import GENRE as SHIPPED
from tools.heads.checkpoint import HEAD_FILE, UnfitHead, fit, join, logits
from tools.heads.features import first_tokens_of
from tools.heads.measuring import FOLDS, folds, quality
from tools.heads.regression import train
from tools.heads.texts import GENRE, UnfitTexts, read_texts


def encoder() -> Checkpoint:
    """The embedded checkpoint."""
    found = open_model(EMBEDDED)
    assert isinstance(found, Checkpoint)
    return found


def test_the_regression_finds_separable_classes_and_reaches_a_minimum() -> None:
    """Three clouds of points are told apart, and no class is favoured for its number of points."""
    random = np.random.default_rng(0)
    classes = np.repeat([0, 1, 2], [100, 40, 10])
    rows = (random.normal(size=(150, 4)) * 0.3 + np.eye(3, 4)[classes] * 3).astype(np.float32)
    assert classes.tolist() == train(rows, classes, 3, penalty=0.01).logits(rows).argmax(1).tolist()


@pytest.mark.parametrize("half", [True, False])
def test_pooler_and_classifier_say_what_the_regression_says(half: bool) -> None:  # noqa: FBT001  a parameter of the test
    """Rounding and tanh change no answer of a clear case."""
    random = np.random.default_rng(1)
    classes = np.repeat([0, 1], 60)
    rows = (random.normal(size=(120, 8)) + 4 * np.eye(2, 8)[classes] + 3).astype(np.float32)
    weights = fit(rows, classes, 2, penalty=0.1, half=half)
    answers = logits(weights, rows).argmax(1)
    assert train(rows, classes, 2, penalty=0.1).logits(rows).argmax(1).tolist() == answers.tolist()
    assert {np.dtype(np.float16 if half else np.float32)} == {each.dtype for each in weights.values()}


def test_no_document_is_on_both_sides() -> None:
    """All texts of a document are in one fold, and every fold has some."""
    documents = [f"d{number // 3}" for number in range(90)]
    found = folds(documents)
    assert all(len({int(f) for f, d in zip(found, documents, strict=True) if d == name}) == 1 for name in documents)
    assert set(range(FOLDS)) == {int(each) for each in found}


def test_quality_is_compared_with_the_commonest_label() -> None:
    """Perfect answers have 1; the baseline of two labels, 3 to 1, has 6/7 and 0."""
    documents = [str(number) for number in range(8)]
    perfect = quality([0, 0, 0, 1] * 2, [0, 0, 0, 1] * 2, documents, 2)
    assert 1.0 == perfect.macro_f1 == perfect.accuracy
    assert perfect.majority_f1 == pytest.approx(6 / 7 / 2)
    assert quality([0, 0, 1, 1], [0, 1, 0, 1], documents[:4], 2).macro_f1 == pytest.approx(0.5)


def test_genres_come_from_the_gold_set_and_a_bad_file_is_named(tmp_path: Path) -> None:
    """Half of the sentences are news; a line without a label is refused with its number."""
    genres = [each.label for each in read_texts(GENRE)]
    assert [500, 500] == [genres.count("news"), genres.count("encyclopedia")]
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "a", "label": "x"}\n{"text": "b"}\n')
    with pytest.raises(UnfitTexts, match="line 2"):
        read_texts(str(path))


def test_the_joined_checkpoint_has_the_same_encoder_and_the_head_of_the_folder(tmp_path: Path) -> None:
    """It is a sequence classification whose encoder is bit for bit that of the embedded model, so they share a pass."""
    join(SHIPPED, encoder(), tmp_path / "genre")
    joined = open_model(str(tmp_path / "genre"))
    assert isinstance(joined, Checkpoint)
    assert first_difference(encoder(), joined) is None
    assert ("encyclopedia", "news") == joined.head.labels
    config = orjson.loads((tmp_path / "genre" / "config.json").read_bytes())
    assert ["BertForSequenceClassification"] == config["architectures"]
    weights = load_file(tmp_path / "genre" / "model.safetensors")
    assert (2, 384) == weights["classifier.weight"].shape
    assert {"classifier.weight", "classifier.bias"} == {name for name in weights if name.startswith("classifier")}


def test_a_head_of_another_encoder_is_refused(tmp_path: Path) -> None:
    """A head names the digest of its encoder, and is not joined with any other."""
    shutil.copytree(SHIPPED, tmp_path / "genre")
    path = tmp_path / "genre" / HEAD_FILE
    save_file(load_file(path), path, metadata={"encoder": "another", "encoder_digest": "0" * 64})
    with pytest.raises(UnfitHead, match="another"):
        join(tmp_path / "genre", encoder(), tmp_path / "out")


def test_the_shipped_head_tells_genres_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was trained on these sentences: far better than chance, whatever rounds."""
    for name, value in QUICK_TO_START.items():
        monkeypatch.setenv(name, value)
    texts = read_texts(GENRE)[::25]
    rows, owners = first_tokens_of([each.text for each in texts], encoder())
    assert list(range(len(texts))) == list(owners), "a sentence is one window"
    found = [("encyclopedia", "news")[each] for each in logits(load_file(SHIPPED / HEAD_FILE), rows).argmax(1)]
    assert sum(name == each.label for name, each in zip(found, texts, strict=True)) >= 0.75 * len(texts)
