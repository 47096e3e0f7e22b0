"""Precision, recall and F1 with intervals; what became of the findings of one model in another's."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enricher.workshop.comparison import changes_of
from enricher.workshop.gate.scoring import (
    Counts,
    EntitySpan,
    Interval,
    count_by_text,
    delta_interval,
    delta_points,
    score,
    share,
    total,
)

WORDS = 40


def span(start: int, end: int, label: str = "PER") -> EntitySpan:
    """A span in the body."""
    return EntitySpan("body", start, end, label)


def tags_of(spans: Sequence[EntitySpan]) -> list[str]:
    """IOB2 tags of words; offsets count words here. The last span may begin behind the others."""
    tags = ["O"] * (WORDS + 5)
    for each in spans:
        tags[each.start : each.end] = [f"B-{each.label}"] + [f"I-{each.label}"] * (each.end - each.start - 1)
    return tags


def chunks_of(tags: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Entities as seqeval's strict mode reads IOB2: each begins with B, and I of the same label continue it."""
    start, label = 0, ""
    for place, tag in enumerate([*tags, "O"]):
        if label and tag != f"I-{label}":
            yield start, place, label
            label = ""
        if tag.startswith("B-"):
            start, label = place, tag[2:]


def random_spans(source: random.Random) -> list[EntitySpan]:
    """Spans that do not overlap, some of them adjacent."""
    spans, place = [], 0
    while place < WORDS - 3:
        start = place + source.choice([0, 0, 1, 5])
        end = start + source.choice([1, 2])
        spans.append(span(start, end, source.choice(["PER", "LOC", "ORG"])))
        place = end
    return spans


def test_counts_are_those_of_strict_iob2_tags() -> None:
    """An independent count over tags of words gives the same right, predicted and expected entities, label by label."""
    source = random.Random(7)
    texts = [(random_spans(source), random_spans(source)) for _ in range(200)]
    for label in ("PER", "LOC", "ORG"):
        right = predicted = expected = 0
        for ours, gold in texts:
            found, wanted = ({each for each in chunks_of(tags_of(spans)) if each[2] == label} for spans in (ours, gold))
            right, predicted, expected = right + len(found & wanted), predicted + len(found), expected + len(wanted)
        counted = score(label, count_by_text([ours for ours, _ in texts], [gold for _, gold in texts], label))
        assert 0 < right < min(predicted, expected)
        assert (right, predicted, expected) == (counted.right, counted.predicted, counted.expected)
        assert counted.f1
        assert 2 * right / (predicted + expected) == pytest.approx(counted.f1.value)


def test_an_interval_holds_the_share_about_as_often_as_it_says() -> None:
    """Of 200 samples of texts with clustered errors, 95 % hold the share that they were drawn with, give or take."""
    source, held = np.random.default_rng(3), 0
    for _ in range(200):
        whole = source.integers(1, 6, 150)
        part = source.binomial(whole, source.choice([0.1, 0.5], 150))
        found = share(part, whole)
        assert found
        held += found.low <= 0.3 <= found.high
    assert 180 <= held <= 199


def test_few_findings_have_a_wide_interval() -> None:
    """Four of four are 51 to 100 %, as Wilson says, and not 100 to 100 %, as every draw of the texts does."""
    found = score("all", np.array([[2, 2, 2], [2, 2, 2]]))
    for each in (found.precision, found.recall, found.f1):
        assert each
        assert (1.0, 1.0) == (each.value, each.high)
        assert pytest.approx(0.51, abs=0.001) == each.low
    none = share(np.array([0, 0]), np.array([3, 3]))
    assert none
    assert 0.0 == none.low
    assert pytest.approx(0.39, abs=0.001) == none.high


def test_a_share_of_nothing_is_none() -> None:
    """Rather than 0 or 1; and a share does not change from run to run."""
    nothing, some = np.zeros(3, np.int64), np.array([0, 2, 1])
    assert share(nothing, nothing) is None
    assert share(some, some + 1) == share(some, some + 1)


@pytest.mark.parametrize(
    ("a", "b", "kinds"),
    [
        ([span(0, 4)], [span(0, 4)], []),
        ([span(0, 4)], [], ["lost"]),
        ([], [span(0, 4)], ["gained"]),
        ([span(0, 4)], [span(0, 4, "LOC")], ["relabelled"]),
        ([span(0, 4)], [span(0, 9)], ["moved"]),
        ([span(0, 4)], [span(2, 9, "LOC")], ["relabelled"]),
        ([span(0, 4)], [span(4, 9)], ["lost", "gained"]),
        ([span(0, 9)], [span(0, 3, "LOC"), span(4, 9)], ["moved", "gained"]),
        ([span(0, 3), span(4, 9)], [span(0, 9)], ["moved", "lost"]),
        ([span(0, 3)], [EntitySpan("title", 0, 3, "PER")], ["lost", "gained"]),
    ],
)
def test_each_finding_is_in_one_change(a: list[EntitySpan], b: list[EntitySpan], kinds: list[str]) -> None:
    """What overlaps stands for each other, the same span before others and the same label before others."""
    assert kinds == [each.kind for each in changes_of(a, b)]


@given(st.integers(0, 10_000))
def test_changes_account_for_every_finding(seed: int) -> None:
    """A's findings less what is lost are B's less what is gained: the same, relabelled or moved; and back again."""
    source = random.Random(seed)
    a, b = random_spans(source), random_spans(source)
    changes, back = changes_of(a, b), changes_of(b, a)
    kept = len(set(a) & set(b))
    assert len(a) == kept + sum(each.a is not None for each in changes)
    assert len(b) == kept + sum(each.b is not None for each in changes)
    assert [] == changes_of(a, a)
    assert sum(each.kind == "lost" for each in changes) == sum(each.kind == "gained" for each in back)


ANNA = EntitySpan("body", 0, 4, "PER")


ROME = EntitySpan("body", 10, 14, "LOC")


NOTHING = count_by_text([], [])


@pytest.mark.parametrize(
    "change", [{"field": "title"}, {"start": 1}, {"end": 5}, {"label": "ORG"}], ids=lambda change: next(iter(change))
)
def test_a_span_is_right_only_where_all_four_agree(change: dict[str, str | int]) -> None:
    """Half a match is none."""
    other = EntitySpan(**{"field": "body", "start": 0, "end": 4, "label": "PER", **change})  # type: ignore[arg-type]
    assert Counts(0, 1, 1) == total(count_by_text([[other]], [[ANNA]]))


def test_nothing_expected_and_nothing_predicted_is_perfect() -> None:
    """No division by zero, and no loss where there was nothing to lose."""
    counts = total(count_by_text([[]], [[]]))
    assert (1.0, 1.0, 1.0) == (counts.precision, counts.recall, counts.f1)
    assert (Counts(0, 0, 0), Interval(0.0, 0.0)) == (total(NOTHING), delta_interval(NOTHING, NOTHING))


def test_a_loss_is_told_in_points_below_zero() -> None:
    """From 1 to two thirds: 33.3 points are lost. One in another text is missed, and right nowhere."""
    reference = count_by_text([[ANNA, ROME]], [[ANNA, ROME]])
    assert pytest.approx(-100 / 3) == delta_points(reference, count_by_text([[ANNA]], [[ANNA, ROME]]))
    assert pytest.approx(-100) == delta_points(reference, count_by_text([[ANNA], []], [[], [ANNA]]))


def test_a_loss_everywhere_is_no_chance_and_a_loss_in_one_text_may_be() -> None:
    """The interval leaves zero out in the first case and holds it in the second. Nothing differs from itself."""
    expected = [[ANNA, ROME]] * 100
    all_right, half = count_by_text(expected, expected), count_by_text([[ANNA]] * 100, expected)
    one_less = count_by_text([[ANNA], *expected[1:]], expected)
    assert delta_interval(all_right, half).high_points < -30
    interval = delta_interval(all_right, one_less)
    assert interval.low_points < 0 <= interval.high_points
    assert interval == delta_interval(all_right, one_less), "the same seed draws the same texts"
    assert Interval(0.0, 0.0) == delta_interval(one_less, one_less)
