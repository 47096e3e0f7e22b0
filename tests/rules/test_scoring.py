"""Entities against a gold set, and one prediction against another: hand-made cases, counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enricher.worker.records import Entity
from enricher.workshop.gate.scoring import (
    Counts,
    EntitySpan,
    Interval,
    count_by_text,
    delta_interval,
    delta_points,
    labels_of,
    total,
)

ANNA = EntitySpan("body", 0, 4, "PER")
ROME = EntitySpan("body", 10, 14, "LOC")
ACME = EntitySpan("title", 0, 4, "ORG")


def test_two_of_three_found_and_one_of_three_wrong() -> None:
    """Precision and recall are both two thirds, and so is F1."""
    wrong = replace(ACME, label="LOC")
    counts = total(count_by_text([[ANNA, ROME], [wrong]], [[ANNA, ROME], [ACME]]))
    assert Counts(2, 3, 3) == counts
    assert (2 / 3, 2 / 3, 2 / 3) == pytest.approx((counts.precision, counts.recall, counts.f1))


@pytest.mark.parametrize(
    "change", [{"field": "title"}, {"start": 1}, {"end": 5}, {"label": "ORG"}], ids=lambda change: next(iter(change))
)
def test_a_span_is_right_only_where_all_four_agree(change: dict[str, str | int]) -> None:
    """Half a match is none."""
    other = EntitySpan(**{"field": "body", "start": 0, "end": 4, "label": "PER", **change})  # type: ignore[arg-type]
    assert Counts(0, 1, 1) == total(count_by_text([[other]], [[ANNA]]))


def test_the_same_place_in_another_text_is_no_match() -> None:
    """Spans are compared within their text."""
    assert Counts(0, 1, 1) == total(count_by_text([[ANNA], []], [[], [ANNA]]))


def test_types_are_counted_apart_and_add_up() -> None:
    """A wrong label is a mistake of the predicted type and a miss of the expected one."""
    predicted, expected = [[ANNA, replace(ROME, label="ORG")]], [[ANNA, ROME]]
    by_label = {label: total(count_by_text(predicted, expected, label)) for label in ("PER", "LOC", "ORG")}
    assert {"PER": Counts(1, 1, 1), "LOC": Counts(0, 0, 1), "ORG": Counts(0, 1, 0)} == by_label
    assert ("LOC", "PER") == labels_of(expected)


def test_nothing_expected_and_nothing_predicted_is_perfect() -> None:
    """No division by zero, and no loss where there was nothing to lose."""
    counts = total(count_by_text([[]], [[]]))
    assert (1.0, 1.0, 1.0) == (counts.precision, counts.recall, counts.f1)
    assert pytest.approx(0.0) == total(count_by_text([[ANNA]], [[]])).f1
    assert pytest.approx(0.0) == total(count_by_text([], [[]][:0])).right


def test_an_entity_is_compared_without_its_score() -> None:
    """Two forms never agree on the last digit of a score."""
    first, second = (
        Entity(field="body", start=0, end=4, text="Anna", label="PER", score=score) for score in (0.9, 0.8)
    )
    assert EntitySpan.of(first) == EntitySpan.of(second) == ANNA


def test_a_loss_is_told_in_points_below_zero() -> None:
    """From 1 to two thirds: 33.3 points are lost."""
    reference = count_by_text([[ANNA, ROME]], [[ANNA, ROME]])
    other = count_by_text([[ANNA]], [[ANNA, ROME]])
    assert pytest.approx(-100 / 3) == delta_points(reference, other)


def test_equal_predictions_differ_by_nothing_in_every_draw() -> None:
    """Paired: the same texts are drawn for both, so that only what differs between the two is left."""
    same = count_by_text([[ANNA], [], [ROME]] * 20, [[ANNA], [ACME], []] * 20)
    assert Interval(0.0, 0.0) == delta_interval(same, same)


def test_a_loss_everywhere_is_no_chance_and_a_loss_in_one_text_may_be() -> None:
    """The interval leaves zero out in the first case and holds it in the second."""
    expected = [[ANNA, ROME]] * 100
    all_right, half = count_by_text(expected, expected), count_by_text([[ANNA]] * 100, expected)
    one_less = count_by_text([[ANNA], *expected[1:]], expected)
    assert delta_interval(all_right, half).high_points < -30
    interval = delta_interval(all_right, one_less)
    assert interval.low_points < 0 <= interval.high_points
    assert interval == delta_interval(all_right, one_less), "the same seed draws the same texts"


def test_no_texts_have_no_interval() -> None:
    """An empty bucket is not an error."""
    nothing = count_by_text([], [])
    assert Interval(0.0, 0.0) == delta_interval(nothing, nothing)
