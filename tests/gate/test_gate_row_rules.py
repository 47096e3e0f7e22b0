"""The rules about classes and vectors, on figures made by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from enricher.errors import FatalError
from enricher.worker.heads import HeadSpec
from enricher.workshop.gate.gold import DEFAULT_GOLD, GoldText
from enricher.workshop.gate.measure import ClassScale, compare_classes, compare_vectors, compose_classes, same_nearest
from enricher.workshop.gate.quality_gate import gold_for
from enricher.workshop.gate.report import ClassFigures, VectorFigures
from enricher.workshop.gate.runs import RowsRun
from enricher.workshop.gate.verdict import GateVerdict, judge_classes, judge_vectors

LABELS = ("economy", "politics", "sports")
SINGLE = HeadSpec("classification", LABELS, multi_label=False, reads="first", normalised=False, dimensions=3)
MULTI = HeadSpec("classification", LABELS, multi_label=True, reads="first", normalised=False, dimensions=3)
VECTORS = HeadSpec("embedding", (), multi_label=False, reads="mean", normalised=False, dimensions=8)


def run_of(rows: object) -> RowsRun:
    """These rows, of short texts with one window each."""
    values = np.asarray(rows, np.float32)
    return RowsRun(values, 0, np.full(len(values), 20, np.int32), len(values), 1)


def answers(classes: list[int]) -> RowsRun:
    """Logits that give these classes."""
    return run_of(np.eye(3)[classes])


def judged(reference: RowsRun, reduced: RowsRun, gold: list[int] | None = None, head: HeadSpec = SINGLE) -> GateVerdict:
    """The verdict on texts alone."""
    names = [None if gold is None else frozenset([LABELS[each]]) for each in gold or [0] * len(reference.rows)]
    texts = [GoldText("text", classes=each) for each in names]
    scale = ClassScale(head, 0.3)
    compositions = [
        compose_classes("alone", name, scale, texts, reference, (each, each))
        for name, each in (("padded-fp32", reference), ("variant", reduced))
    ]
    compared = compare_classes("texts", scale, texts, reference, reduced)
    figures = ClassFigures(multi_label=head.multi_label, comparisons=(compared,), compositions=tuple(compositions))
    return judge_classes(figures, "variant", 0.3)


EVEN = [number % 3 for number in range(999)]


def changed(classes: list[int], texts: int, *, first: int = 0) -> list[int]:
    """Other classes for some texts."""
    return [(each + 1) % 3 if first <= number < first + texts else each for number, each in enumerate(classes)]


def test_agreement_of_995_per_mille_is_not_enough_without_the_f1() -> None:
    """Both rules hold: at most 0.3 points of macro-F1, and at least 99.5 % equal."""
    assert judged(answers(EVEN), answers(changed(EVEN, 2))).passed
    lost = judged(answers(EVEN), answers(changed(EVEN, 4)))
    assert not lost.passed
    assert lost.reasons[0].startswith("texts: macro-F1 -0.40 points")
    assert not any("get other classes" in reason for reason in lost.reasons)
    assert any("6 of 999 texts (0.60 %)" in each for each in judged(answers(EVEN), answers(changed(EVEN, 6))).reasons)


def test_by_labels_of_people_repairs_make_up_for_damage() -> None:
    """Quality counts then, and not agreement."""
    fp32 = changed(EVEN, 30)
    other = changed(EVEN, 30, first=90)
    assert judged(answers(fp32), answers(other), gold=EVEN).passed
    assert not judged(answers(fp32), answers(other)).passed


def test_rare_classes_are_left_out_of_the_mean() -> None:
    """One text of them would be more than the limit; the report names them, and agreement still counts them."""
    rare = [0] * 500 + [1] * 480 + [2] * 5
    truth = np.eye(3, dtype=np.bool_)[rare]
    assert [0, 1] == ClassScale(SINGLE, 0.3).judged_classes(truth)
    assert [0, 1, 2] == ClassScale(SINGLE, 10.0).judged_classes(truth)
    assert judged(answers(rare), answers([*rare[:-1], 0])).passed
    assert not judged(answers(rare), answers([0] * len(rare))).passed


@pytest.mark.parametrize(
    ("classes", "gold", "reason"),
    [
        pytest.param(EVEN[:60], EVEN[:60], "60 texts are too few", id="few"),
        pytest.param(
            [0] * 997 + [1, 2], None, "99.8 % of these texts the same answer", id="one class, as a constant has"
        ),
        pytest.param(changed(EVEN, len(EVEN)), EVEN, "do not fit the model", id="mostly wrong: another language"),
    ],
)
def test_texts_that_cannot_tell_a_loss_prove_nothing(classes: list[int], gold: list[int] | None, reason: str) -> None:
    """Not even equal answers pass."""
    verdict = judged(answers(classes), answers(classes), gold=gold)
    assert not verdict.passed
    assert any(reason in each for each in verdict.reasons)


def test_several_labels_are_judged_by_micro_f1() -> None:
    """Every label of every text counts once, whatever its class."""
    logits = np.where(np.eye(3)[EVEN] > 0, 4.0, -4.0)
    logits[:, 0] = 4.0
    lost = logits.copy()
    lost[:20, 0] = -4.0
    assert judged(run_of(logits), run_of(logits), head=MULTI).passed
    verdict = judged(run_of(logits), run_of(lost), head=MULTI)
    assert verdict.reasons[0].startswith("texts: micro-F1 -0.")


def vectors(texts: int = 1000) -> np.ndarray:
    """Random directions."""
    return np.random.default_rng(3).normal(size=(texts, 8)).astype(np.float32)


def judged_vectors(reference: np.ndarray, reduced: np.ndarray) -> GateVerdict:
    """The verdict on texts alone."""
    compared = compare_vectors("texts", run_of(reference), run_of(reduced))
    return judge_vectors(VectorFigures(dimensions=8, comparisons=(compared,), compositions=()), "variant")


def test_vectors_that_moved_a_little_pass_and_one_that_moved_far_fails() -> None:
    """Every text counts; lengths do not."""
    fp32 = vectors()
    noise = np.random.default_rng(4).normal(scale=0.0005, size=fp32.shape).astype(np.float32)
    assert judged_vectors(fp32, 3 * (fp32 + noise)).passed
    moved = fp32.copy()
    moved[7] = fp32[8]
    assert any("the cosine between" in reason for reason in judged_vectors(fp32, moved).reasons)


def test_neighbours_that_change_fail_though_every_cosine_is_good() -> None:
    """Noise that no cosine shows: in a cloud of texts that are close together."""
    cloud = np.concatenate([np.full((1000, 1), 6.0), vectors()[:, :7]], axis=1).astype(np.float32)
    noise = np.random.default_rng(4).normal(scale=0.04, size=cloud.shape).astype(np.float32)
    verdict = judged_vectors(cloud, cloud + noise)
    assert not verdict.passed
    assert all("have the same ten" in reason for reason in verdict.reasons), verdict.reasons


def test_ties_are_no_differences() -> None:
    """Near copies of one text are equally near: either may be among the ten."""
    random = np.random.default_rng(5)
    units, moved = (
        each / np.linalg.norm(each, axis=1, keepdims=True)
        for each in (np.repeat(vectors(50), 20, axis=0) + random.normal(scale=1e-3, size=(2, 1000, 8)))
    )
    strict, with_ties = same_nearest(units, moved)
    assert with_ties == 1.0
    assert strict < 1.0


def test_few_or_equal_vectors_cannot_tell() -> None:
    """The nearest of few texts are far apart; and where all texts are alike, every cosine is good."""
    few = vectors(999)
    assert "there are 999 texts" in judged_vectors(few, few).reasons[0]
    alike = vectors() * 0.01 + 1
    assert any("does not tell these texts apart" in reason for reason in judged_vectors(alike, alike).reasons)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"label": "sports"}', "text"),
        ('{"text": "Goal"}', "expected one of `label` and `labels`"),
        ('{"text": "Goal", "label": "sports", "labels": ["sports"]}', "expected one of"),
        ('{"text": "Goal", "label": "weather"}', "the model has no class 'weather'; it has economy, politics, sports"),
        ('{"text": "Goal", "labels": ["sports", "economy"]}', "2 classes, and the model gives exactly one"),
    ],
)
def test_a_line_without_a_usable_class_is_named(tmp_path: Path, line: str, problem: str) -> None:
    """With its number."""
    path = tmp_path / "gold.jsonl"
    path.write_text('{"text": "Goal", "label": "sports"}\n' + line + "\n")
    with pytest.raises(FatalError, match=f"line 2: .*{problem}"):
        gold_for(SINGLE, path)


def test_each_kind_of_head_reads_what_it_needs(tmp_path: Path) -> None:
    """Embeddings need texts only; without a file, the built-in texts have no classes."""
    path = tmp_path / "gold.jsonl"
    path.write_text(json.dumps({"text": "Goal", "labels": []}) + "\n")
    assert [frozenset()] == [each.classes for each in gold_for(MULTI, path).texts]
    assert [None] == [each.classes for each in gold_for(VECTORS, path).texts]
    built_in = gold_for(SINGLE, None)
    assert (1000, {None}, DEFAULT_GOLD.stem) == (
        len(built_in.texts),
        {each.classes for each in built_in.texts},
        built_in.name,
    )
