"""The gate on heads that find no entities: what loses nothing passes, and what loses quality fails."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from commands.model_app import tiny_model
from gate.conftest import SENTENCES, Damaged, Twin
from support.heads import class_model, vector_model

from enricher.worker.heads import TOKENS, Reads
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.sessions import Feeds
from enricher.worker.records import Window
from enricher.workshop.gate import verdict
from enricher.workshop.gate.gold import GoldSet
from enricher.workshop.gate.quality_gate import Gate, gold_for
from enricher.workshop.gate.report import GateReport
from enricher.workshop.gate.runs import RowsRunner

LIMIT_POINTS = 4.0
LABELS = ("economy", "politics", "sports")
KINDS = ("single", "vectors")


@dataclass(frozen=True, slots=True)
class Leaky(Twin):
    """Attention over padding too: what a window gets depends on the longest window of its batch."""

    name = "padded-leaky"

    def feeds(self, windows: Sequence[Window], pad_id: int, reads: frozenset[Reads] = TOKENS) -> Feeds:
        """All rows claim to be as long as the longest."""
        feeds = Twin.feeds(self, windows, pad_id, reads)
        return {**feeds, "lengths": np.full_like(feeds["lengths"], feeds["input_ids"].shape[1])}


@pytest.fixture(scope="module", autouse=True)
def _few_neighbours() -> Iterator[None]:
    """As many texts as the small gold set has are enough."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verdict, "NEIGHBOURS_OF", SENTENCES)
        yield


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> dict[str, Path]:
    """A folder for each kind: a small encoder, with heads that divide the small gold set evenly."""
    root = tmp_path_factory.mktemp("heads")
    tiny = tiny_model(root / "tiny")
    plain = class_model(tiny, root / "plain", LABELS)
    opened = Checkpoint.open(plain)
    logits = _gate(opened, None, cache_dir).reference(opened, "cpu")
    bias = -np.median(logits.runs[0].rows, axis=0)
    return {
        "single": class_model(tiny, root / "single", LABELS, bias=bias),
        "vectors": vector_model(tiny, root / "vectors"),
    }


def _gate(checkpoint: Checkpoint, labelled: Path | None, cache_dir: Path) -> Gate:
    """A gate over the small gold set, with labels if there are some."""
    gold = gold_for(checkpoint.head, labelled)
    if labelled is None:
        gold = GoldSet(gold.name, gold.digest, gold.texts[:SENTENCES])
    return Gate(gold, LIMIT_POINTS, cache_dir, lambda *_: None)


@pytest.fixture(scope="module")
def reports(folders: dict[str, Path], cache_dir: Path) -> dict[tuple[str, str], GateReport]:
    """The report on each kind in each variant."""
    variants, found = (Twin(), Damaged(), Leaky()), {}
    for kind, folder in folders.items():
        checkpoint = Checkpoint.open(folder)
        gate = _gate(checkpoint, None, cache_dir)
        reference = gate.reference(checkpoint, "cpu")
        for variant in variants:
            found[kind, variant.name] = gate.check(checkpoint, variant, "cpu", reference)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_variant_that_computes_the_same_passes(reports: dict[tuple[str, str], GateReport], kind: str) -> None:
    """Without any difference, in texts and in documents; the report says what was measured."""
    report = reports[kind, "padded-twin"]
    assert report.passed, report.reasons
    assert ((), ()) == (report.comparisons, report.compositions)
    if report.classes:
        for each in report.classes.comparisons:
            assert (1.0, 0, 0.0) == (each.equal_classes, each.changed_classes, each.overall.delta_points)
            assert "fp32" == each.truth
        assert "macro-F1" == report.classes.comparisons[0].overall.name
        assert "agreement, not quality" in report.reasons[0]
    else:
        assert report.vectors is not None
        for of_vectors in report.vectors.comparisons:
            assert (1.0, 1.0) == (of_vectors.same_ten, of_vectors.same_ten_strict)
            assert of_vectors.least_cosine > 0.9999999
        assert report.vectors.comparisons[1].windows > report.vectors.comparisons[1].texts


@pytest.mark.parametrize("kind", KINDS)
def test_a_variant_that_loses_quality_fails(reports: dict[tuple[str, str], GateReport], kind: str) -> None:
    """The negative control: attention in steps of 2. The reasons name the measure of the kind."""
    report = reports[kind, "padded-damaged"]
    assert not report.passed
    measure = {"single": "texts: macro-F1 -", "vectors": "texts: the cosine between"}[kind]
    assert any(reason.startswith(measure) for reason in report.reasons), report.reasons


@pytest.mark.parametrize("kind", KINDS)
def test_a_variant_whose_answers_depend_on_their_batch_fails(
    reports: dict[tuple[str, str], GateReport], kind: str
) -> None:
    """Only where windows of different lengths share a batch; fp32 never depends on it."""
    report = reports[kind, "padded-leaky"]
    assert not report.passed
    assert any("depend on the other windows of their batch" in reason for reason in report.reasons), report.reasons
    for each in report.classes.compositions if report.classes else ():
        assert each.changed_classes == 0 or (each.variant == "padded-leaky" and each.name != "alone")
    for of_vectors in report.vectors.compositions if report.vectors else ():
        assert of_vectors.least_cosine > 0.9999999 or of_vectors.variant == "padded-leaky"


def test_labels_of_people_are_the_truth_if_there_are_some(
    folders: dict[str, Path], few_sentences: Path, cache_dir: Path, tmp_path: Path
) -> None:
    """Then fp32 is judged too, and quality is measured; one label for every text is wrong for most."""
    texts = [json.loads(line)["text"] for line in few_sentences.read_text("utf-8").splitlines()]
    labelled = tmp_path / "topics.jsonl"
    lines = [{"id": str(number), "text": text, "label": LABELS[number % 3]} for number, text in enumerate(texts)]
    labelled.write_text("".join(json.dumps(line) + "\n" for line in lines))
    checkpoint = Checkpoint.open(folders["single"])
    report = _gate(checkpoint, labelled, cache_dir).check(checkpoint, Twin(), "cpu")
    assert report.classes is not None
    in_texts, in_documents = report.classes.comparisons
    assert ("gold", "fp32", "topics") == (in_texts.truth, in_documents.truth, report.bound_to.gold_name)
    assert in_texts.overall.reference.f1 < 0.9
    assert in_texts.overall.reference == in_texts.overall.reduced


@pytest.mark.parametrize("kind", ["single", "vectors"])
def test_numbers_that_are_not_finite_fail(
    folders: dict[str, Path],
    cache_dir: Path,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One NaN per batch is enough."""
    checkpoint = Checkpoint.open(folders[kind])
    gate = _gate(checkpoint, None, cache_dir)
    reference = gate.reference(checkpoint, "cpu")
    real = RowsRunner._output

    def damaged(self: RowsRunner, windows: list[Window], pad_id: int) -> npt.NDArray[np.float32]:
        rows = real(self, windows, pad_id).copy()
        rows[0, 0] = np.nan
        return rows

    monkeypatch.setattr(RowsRunner, "_output", damaged)
    report = gate.check(checkpoint, Twin(), "cpu", reference)
    assert not report.passed
    assert any("numbers of the variant are NaN or infinite" in reason for reason in report.reasons)
