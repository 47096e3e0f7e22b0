"""The gate over the real pipeline: what loses nothing passes, and what loses quality fails."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from gate.conftest import Damaged, NotFinite, Twin
from support.sessions import replace_session

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.checkpoint.gate_report import read_reports
from enricher.worker.inference.run.model import prepare_variant
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.workshop.check import write_into
from enricher.workshop.gate.gold import GoldSet
from enricher.workshop.gate.measure import compare
from enricher.workshop.gate.quality_gate import Gate, Measured
from enricher.workshop.gate.report import GateReport, write_report
from enricher.workshop.gate.runs import COMPOSITIONS, VariantRun, VariantRunner, tokenize_texts
from enricher.workshop.gate.verdict import GateVerdict, judge_entities

LIMIT_POINTS = 4.0
"""The small gold set has few entities: one weighs more than two points."""


@pytest.fixture(scope="module")
def gate(gold: GoldSet, cache_dir: Path) -> Gate:
    """A gate over the small gold set."""
    return Gate(gold, LIMIT_POINTS, cache_dir, lambda *_: None)


@pytest.fixture(scope="module")
def reference(gate: Gate, minilm: Checkpoint) -> Measured[VariantRun]:
    """What fp32 says."""
    return gate.reference(minilm, "cpu")


@pytest.fixture(scope="module")
def twin(gate: Gate, minilm: Checkpoint, reference: Measured[VariantRun]) -> GateReport:
    """The report of a variant that is float32 under another name."""
    return gate.check(minilm, Twin(), "cpu", reference)


def test_a_variant_that_computes_the_same_passes_without_any_difference(twin: GateReport) -> None:
    """Not one logit, label or span differs, in sentences and in documents."""
    assert twin.passed
    for each in twin.comparisons:
        assert (1.0, 0, 0.0) == (each.equal_labels, each.changed_labels, each.largest_logit_difference)
        assert (1.0, 0.0) == (each.spans.f1, each.overall.delta_points)
    assert twin.comparisons[0].overall.reference.f1 > 0.6
    assert twin.comparisons[0].tokens == twin.comparisons[1].tokens
    assert twin.comparisons[1].windows > twin.comparisons[1].texts, "some documents have several windows"


def test_float32_does_not_depend_on_its_batch(twin: GateReport) -> None:
    """No label changes, and scores in the last digits only."""
    assert {each.variant for each in twin.compositions} == {"padded-fp32", "padded-twin"}
    for each in twin.compositions:
        assert each.changed_labels == 0
        assert each.largest_score_change < 1e-5


def test_a_variant_that_loses_quality_fails(gate: Gate, minilm: Checkpoint, reference: Measured[VariantRun]) -> None:
    """The negative control: attention in steps of 2 loses more than the limit, and the report says so."""
    report = gate.check(minilm, Damaged(), "cpu", reference)
    assert not report.passed
    assert report.comparisons[0].overall.delta_points < -LIMIT_POINTS
    assert any(reason.startswith("sentences: F1 -") for reason in report.reasons), report.reasons
    assert report.comparisons[0].equal_labels < 1.0


def test_numbers_that_are_not_finite_fail_though_every_label_is_right(
    gate: Gate, minilm: Checkpoint, reference: Measured[VariantRun], twin: GateReport
) -> None:
    """A NaN where the label did not need it today is a wrong label tomorrow."""
    tokens = tokenize_texts(minilm, ArticleTokenizer(minilm), gate.gold.texts)
    runner = VariantRunner(prepare_variant(minilm, Twin(), "cpu", cache_dir=gate.cache_dir), gate.progress)
    replace_session(runner, NotFinite)
    run = runner.run(tokens, COMPOSITIONS[1][1], "")
    sentences = compare("sentences", gate.gold.texts, reference.runs[1], run)
    assert (1.0, 0, 2 * run.windows) == (
        sentences.equal_labels,
        sentences.not_finite_reference,
        sentences.not_finite_reduced,
    )
    verdict = judge_entities([sentences], twin.compositions, "padded-twin", LIMIT_POINTS)
    assert (f"sentences: {2 * run.windows} logits or scores of the variant are NaN or infinite",) == verdict.reasons


def test_a_report_survives_being_written(twin: GateReport, tmp_path: Path) -> None:
    """What is read is what was measured; a worker ignores figures, which other versions write differently.

    A broken file is as good as none.
    """
    path = write_report(tmp_path, twin)
    assert twin == GateReport.model_validate_json(path.read_bytes())
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"comparisons": "in a later form", "figures": 1}))
    (found,) = read_reports([tmp_path / "nowhere", tmp_path], "padded-twin")
    assert (twin.passed, twin.bound_to) == (found.passed, found.bound_to)
    path.write_text('{"passed": true}')
    assert [] == list(read_reports([tmp_path], "padded-twin"))


def test_a_report_that_cannot_be_written_is_a_model_error(twin: GateReport, tmp_path: Path) -> None:
    """As in a container whose file system is read-only."""
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ModelError, match=r"the report cannot be written: .*model\.cache_dir"):
        write_into(tmp_path / "file" / "reports", twin)


def judged(
    twin: GateReport, comparison: int = 0, limit_points: float = LIMIT_POINTS, /, **changes: object
) -> GateVerdict:
    """The verdict on a report's own figures, with changes to one of its comparisons."""
    comparisons = list(twin.comparisons)
    comparisons[comparison] = comparisons[comparison].model_copy(update=changes)
    return judge_entities(comparisons, twin.compositions, "padded-twin", limit_points)


def test_a_gold_set_of_few_entities_cannot_tell_a_small_loss(twin: GateReport) -> None:
    """Where one entity is more than the limit, not even equal predictions pass."""
    verdict = judged(twin, 0, 0.3)
    assert not verdict.passed
    assert "at least 334 are needed" in verdict.reasons[0]


def test_a_loss_of_exactly_the_limit_passes_and_more_does_not(twin: GateReport) -> None:
    """On both sets of texts; of one type or length, if it is beyond chance. Nothing can be lost where nothing is found."""
    for number, comparison in enumerate(twin.comparisons):
        for lost_points, passes in ((LIMIT_POINTS, True), (LIMIT_POINTS + 0.01, False)):
            overall = comparison.overall.model_copy(update={"delta_points": -lost_points})
            assert passes == judged(twin, number, overall=overall).passed
    sentences = twin.comparisons[0]
    for rows in ("by_type", "by_length"):
        first, *others = getattr(sentences, rows)
        for high_points, passes in ((-3.9, True), (-4.1, False)):
            lost = first.model_copy(update={"delta_points": -9.0, "low_points": -15.0, "high_points": high_points})
            assert passes == judged(twin, **{rows: (lost, *others)}).passed
    found = sentences.overall.reference.model_copy(update={"f1": 0.1})
    verdict = judged(twin, overall=sentences.overall.model_copy(update={"reference": found}))
    assert (False, True) == (verdict.passed, "does not fit the model" in verdict.reasons[0])


def test_each_of_several_sets_has_its_figures(gold: GoldSet, reference: Measured[VariantRun]) -> None:
    """Their entities add up to all; a single set is not named twice."""
    halves = [replace(text, source="de" if number % 2 else "en") for number, text in enumerate(gold.texts)]
    found = compare("sentences", halves, reference.runs[0], reference.runs[0])
    assert found.by_set is not None
    assert ["en", "de"] == [row.name for row in found.by_set]
    assert found.overall.reference.expected == sum(row.reference.expected for row in found.by_set)
    assert all(0 < row.reference.expected < found.overall.reference.expected for row in found.by_set)
    assert compare("sentences", gold.texts, reference.runs[0], reference.runs[0]).by_set is None


def test_no_language_may_lose_what_another_gains(twin: GateReport) -> None:
    """Each set is judged as if it were the only one, in sentences and in documents, chance or not."""
    for number, name in enumerate(("sentences", "documents")):
        every = twin.comparisons[number].overall
        lost = every.model_copy(update={"name": "de", "delta_points": -LIMIT_POINTS - 0.01, "high_points": 1.0})
        poor = every.model_copy(update={"name": "zh", "reference": every.reference.model_copy(update={"f1": 0.1})})
        for row, reason in ((lost, f"{name} of de: F1 -4.01 points"), (poor, f"{name} of zh: fp32 itself")):
            verdict = judged(twin, number, by_set=(every.model_copy(update={"name": "en"}), row))
            assert not verdict.passed
            assert [True] == [each.startswith(reason) for each in verdict.reasons]


def test_labels_that_depend_on_the_batch_fail_a_variant_and_not_fp32(twin: GateReport) -> None:
    """Scales that follow the batch change labels by chance: F1 alone would not notice. But it counts in any company too."""

    def changed(variant: str, share: float, lost: float = 0.0) -> GateVerdict:
        update = {"equal_labels": 1 - share, "changed_labels": 7}
        compositions = [
            each.model_copy(update={**update, "f1": each.f1 - lost} if each.variant == variant else {})
            for each in twin.compositions
        ]
        return judge_entities(twin.comparisons, compositions, "padded-twin", LIMIT_POINTS)

    verdict = changed("padded-twin", 0.004)
    assert not verdict.passed
    assert "7 labels (0.40 %) depend on the other windows of their batch, and 0.1 % may" in verdict.reasons[0]
    assert changed("padded-twin", 0.0005).passed
    assert not changed("padded-twin", 0.0005, lost=0.05).passed
    assert changed("padded-fp32", 0.004, lost=0.05).passed
