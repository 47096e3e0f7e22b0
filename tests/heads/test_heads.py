"""Heads: from the answers for windows to what a record says of an article."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rules.building import P0, answer, part_of, raw, spans_of_words

from enricher.worker.heads import ClassHead, EmbeddingHead, EntityHead
from enricher.worker.heads.classification import probabilities
from enricher.worker.heads.head import Threshold, pool
from enricher.worker.heads.languages import Languages
from enricher.worker.records import ModelCard, OwnedLabels, OwnedRow, Pooling, TaskCard, Ticket

MODEL = ModelCard("model", "0", "fp32")
PART = Ticket(raw(0), 0.0)
MEAN = TaskCard("task", "classification", MODEL, "mean")


def rows(*values: tuple[int, list[float]]) -> list[OwnedRow]:
    """The answers of windows that own so many tokens, in the order of the article."""
    starts = np.cumsum([0, *(tokens for tokens, _ in values)]).tolist()
    return [
        OwnedRow(start, tokens, np.array(row, np.float32))
        for start, (tokens, row) in zip(starts[:-1], values, strict=True)
    ]


@pytest.mark.parametrize(
    ("pooling", "expected"), [("mean", [2.5, 0.5]), ("first_window", [1.0, 2.0]), ("max", [3.0, 2.0])]
)
def test_an_articles_row_follows_from_those_of_its_windows(pooling: Pooling, expected: list[float]) -> None:
    """In whatever order they came back: the mean is weighted by owned tokens."""
    answers = rows((1, [1.0, 2.0]), (3, [3.0, 0.0]))
    assert expected == pool(answers, pooling).tolist()
    assert expected == pool(answers[::-1], pooling).tolist()


@given(st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=60), st.lists(st.integers(1, 59), max_size=5))
def test_the_mean_of_means_is_the_mean_of_all_tokens(values: list[float], cuts: list[int]) -> None:
    """However the article is cut: each token counts once."""
    bounds = sorted({0, len(values), *(cut for cut in cuts if cut < len(values))})
    parts = [values[start:stop] for start, stop in pairwise(bounds)]
    answers = rows(*((len(ticket), [float(np.mean(ticket))]) for ticket in parts))
    assert pool(answers, "mean").tolist() == pytest.approx([np.mean(values)], abs=1e-5)


def test_one_of_several_labels_is_the_most_probable_one() -> None:
    """With its probability to four decimals; without tokens there is none."""
    head = ClassHead(MEAN, ("sport", "politics", "science"))
    answers = rows((1, [0.0, 4.0, 0.0]), (3, [2.0, 0.0, 0.0]))
    values = [math.exp(logit) for logit in (1.5, 1.0, 0.0)]
    best = round(values[0] / sum(values), 4)
    assert [{"task": "task", "label": "sport", "score": best}] == head.find(PART, answers)
    assert [] == head.find(PART, [])


def test_labels_that_may_hold_together_are_all_those_above_the_threshold() -> None:
    """The most probable first."""
    head = ClassHead(MEAN, ("a", "b", "c"), multi_label=True, threshold=0.5)
    answers = rows((2, [0.1, -0.1, 3.0]))
    assert ["c", "a"] == [each["label"] for each in head.find(PART, answers)]
    assert [] == ClassHead(MEAN, ("a", "b", "c"), multi_label=True, threshold=0.99).find(PART, answers)


def test_each_of_several_labels_may_have_its_own_threshold() -> None:
    """A label that is not named has the default of the kind."""
    head = ClassHead(MEAN, ("a", "b", "c"), multi_label=True, threshold={"a": 0.9, "b": 0.4})
    assert ["c", "b"] == [each["label"] for each in head.find(PART, rows((2, [0.1, -0.1, 3.0])))]


@pytest.mark.parametrize(
    ("threshold", "kept"),
    [
        (None, ["Ada", "Oslo"]),
        (0.5, ["Ada"]),
        (0.95, []),
        ({"PER": 0.95}, ["Oslo"]),
        ({"LOC": 0.3}, ["Ada"]),
        ({"LOC": 0.2}, ["Ada", "Oslo"]),
        ({}, ["Ada", "Oslo"]),
    ],
)
@pytest.mark.parametrize("several", [False, True])
def test_entities_below_the_threshold_are_left_out(threshold: Threshold, kept: list[str], *, several: bool) -> None:
    """One for all labels, or one for each; a score that is equal to it is enough. Also where tasks are named."""
    ticket = part_of("", "Ada Oslo", spans_of_words(""), spans_of_words("Ada Oslo"))
    answer(ticket, [1, 2], scores=[0.9, 0.2])
    head = EntityHead.of(("O", "B-PER", "B-LOC"), MEAN, names_task=several, threshold=threshold)
    [[labels]] = ticket.answers
    assert isinstance(labels, OwnedLabels)
    found = head.find(ticket, [labels])
    assert kept == [entity["text"] for entity in found]
    assert {"task"} <= {*found[0]} if found and several else all("task" not in entity for entity in found)


def test_extreme_logits_have_probabilities_too() -> None:
    """Nothing overflows to NaN."""
    extreme = np.array([-1e4, 0.0, 1e4], np.float32)
    assert [0.0, 0.0, 1.0] == probabilities(extreme, multi_label=False)
    with np.errstate(over="raise"):
        assert [0.0, 0.5, 1.0] == pytest.approx(probabilities(extreme, multi_label=True), abs=1e-9)


def test_a_normalised_vector_has_length_one() -> None:
    """After the mean, not before; a vector of zeros stays as it is."""
    task = TaskCard("task", "embedding", MODEL, "mean")
    (found,) = EmbeddingHead(task, normalised=True).find(PART, rows((1, [6.0, 0.0]), (1, [0.0, 8.0])))
    assert found.vector.tolist() == pytest.approx([0.6, 0.8])
    assert found.vector.dtype == np.float32
    (zeros,) = EmbeddingHead(task, normalised=True).find(PART, rows((1, [0.0, 0.0])))
    assert [0.0, 0.0] == zeros.vector.tolist()
    (plain,) = EmbeddingHead(task).find(PART, rows((1, [6.0, 8.0])))
    assert [6.0, 8.0] == plain.vector.tolist()
    assert [] == EmbeddingHead(task).find(PART, [])


@pytest.mark.parametrize(
    ("language", "included"),
    [
        *(("de", True), ("DE", True), ("de-AT", True), ("de_CH", True), (" de ", True), ("den", False), ("en", False)),
        *(("pt-br", True), ("pt-BR-x-old", True), ("pt", False)),
    ],
)
def test_a_language_stands_for_its_regions(language: str, *, included: bool) -> None:
    """But a region not for its language; case and underscores do not matter."""
    assert included == Languages(frozenset({"de", "pt-br"})).include(language)


def test_an_article_without_a_language_is_for_the_default_task() -> None:
    """And for no other; an empty language is none."""
    for language in (None, "", " "):
        assert Languages(frozenset({"de"}), default=True).include(language)
        assert not Languages(frozenset({"de"})).include(language)
    assert raw(0).partition == P0
