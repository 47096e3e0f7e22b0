"""Heads: from the answers for windows to what a record says of an article; the languages that a task is for; numbers."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rules.building import answer, part_of, raw, spans_of_words
from support.head_references import write_folder

from enricher.errors import InvalidArticle, ModelError
from enricher.worker.heads import ClassHead, EmbeddingHead, EntityHead, RegressionHead
from enricher.worker.heads.classification import probabilities
from enricher.worker.heads.head import Threshold, pool
from enricher.worker.heads.languages import Languages, canonical_tag, loggable_tag
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.run.selection import variants_for, why_not_reduced
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


@pytest.mark.parametrize(
    ("threshold", "labels"), [(0.5, ["c", "a"]), (0.99, []), ({"a": 0.9, "b": 0.4}, ["c", "b"])], ids=str
)
def test_labels_that_may_hold_together_are_all_those_above_the_threshold(
    threshold: Threshold, labels: list[str]
) -> None:
    """The most probable first. Each may have its own threshold; a label that is not named has the default of the kind."""
    head = ClassHead(MEAN, ("a", "b", "c"), multi_label=True, threshold=threshold)
    assert labels == [each["label"] for each in head.find(PART, rows((2, [0.1, -0.1, 3.0])))]


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
    task = replace(MEAN, kind="embedding")
    (found,) = EmbeddingHead(task, normalised=True).find(PART, rows((1, [6.0, 0.0]), (1, [0.0, 8.0])))
    assert found.vector.tolist() == pytest.approx([0.6, 0.8])
    assert found.vector.dtype == np.float32
    (zeros,) = EmbeddingHead(task, normalised=True).find(PART, rows((1, [0.0, 0.0])))
    assert [0.0, 0.0] == zeros.vector.tolist()
    (plain,) = EmbeddingHead(task).find(PART, rows((1, [6.0, 8.0])))
    assert [6.0, 8.0] == plain.vector.tolist()
    assert [] == EmbeddingHead(task).find(PART, [])


@pytest.mark.parametrize(
    ("task", "spellings"),
    [
        ("en", "en EN En en-US en_GB en-Latn-US eng ENG eng_Latn __label__en __label__eng_Latn"),
        ("de", "de ger deu deu_Latn de_AT __label__de"),
        ("zh", "zh zho chi cmn zho_Hans cmn_Hans zh-TW zh_cn __label__zh"),
        ("zh-hant", "zh-Hant zho_Hant cmn_Hant_TW"),
        ("sr", "sr srp sr-Latn srp_Cyrl sh hbs"),
        ("ar", "ar ara arb arb_Arab"),
        ("he", "he heb iw heb_Hebr"),
        ("yue", "yue yue_Hant"),
        ("fil", "fil tl tgl tgl_Latn fil_Latn"),
        ("pt-br", "pt-br pt-BR pt-BR-x-old"),
    ],
)
def test_a_task_takes_its_language_however_it_is_spelled(task: str, spellings: str) -> None:
    """Two or three letters, a script or a region, either case, with a detector's prefix."""
    for spelling in spellings.split():
        assert Languages(frozenset({task})).include(spelling), spelling


@pytest.mark.parametrize(
    ("task", "languages"),
    [
        ("en", ["English", "english", "en glish", "enm", "enx", "de", "x-en", "", "__label__"]),
        ("zh-hant", ["zho_Hans", "cmn", "zh"]),
    ],
)
def test_no_task_takes_a_name_or_another_language(task: str, languages: list[str]) -> None:
    """Names are ambiguous and come in every language; `enm` is Middle English. A script is not the whole language."""
    assert not any(Languages(frozenset({task})).include(each) for each in languages)


def test_an_article_without_a_language_is_for_the_default_task() -> None:
    """And for no other; an empty language is none."""
    for language in (None, "", " "):
        assert Languages(frozenset({"de"}), default=True).include(language)
        assert not Languages(frozenset({"de"})).include(language)


@given(st.from_regex(r"[A-Za-z]{2,3}([-_][A-Za-z]{2,4}){0,2}", fullmatch=True))
def test_a_canonical_tag_stays_as_it_is(tag: str) -> None:
    """No alias leads to another one, so a task's name and an article's language are compared in one form."""
    assert canonical_tag(tag) == canonical_tag(canonical_tag(tag)) == canonical_tag(tag.upper())


@given(st.one_of(st.text(max_size=256), st.from_regex(r"[a-z]{36,256}", fullmatch=True)))
def test_no_other_text_is_logged(text: str) -> None:
    """Articles come from strangers: at most 44 characters, none that ends a line, a word or a quotation. A tag is."""
    tag = loggable_tag(text)
    assert tag is None or (len(tag) <= 44 and tag.isascii() and all(each.isalnum() or each in "-_" for each in tag))
    for none in ("", "the body of an article", "a\nb", "e'n", "x" * 36, "_en", "日本語", "ﬁ"):
        assert loggable_tag(none) is None
    for language in ("en", " pt-BR ", "eng_Latn", "__label__eng_Latn", "English"):
        assert language.strip() == loggable_tag(language)


HEAD = RegressionHead(TaskCard("mood", "regression", MODEL, "mean"))


def for_regression(place: Path, **changes: object) -> Path:
    """The configuration of the reference head for classes with only one label, as a checkpoint for regression has it."""
    folder = write_folder("bert", "single", place)
    config = json.loads((folder / "config.json").read_text()) | {"id2label": {"0": "LABEL_0"}}
    (folder / "config.json").write_text(json.dumps({**config, "problem_type": "regression", **changes}))
    return folder


def test_a_folder_for_regression_gives_one_number(tmp_path: Path) -> None:
    """Its only label is named by nobody; a head with several numbers is refused, with what to do."""
    head = Checkpoint.open(for_regression(tmp_path / "one")).head
    assert ("regression", (), "first", 1) == (head.kind, head.labels, head.reads, head.dimensions)
    several = for_regression(tmp_path / "two", id2label={"0": "a", "1": "b"})
    with pytest.raises(ModelError, match=r"it has 2 labels; only a head with one number is supported\. Choose"):
        Checkpoint.open(several)


def test_a_number_has_the_digits_of_its_float32() -> None:
    """And reads back as the same float32; people see four. An article without tokens has no number."""
    assert [] == HEAD.find(PART, [])
    [found] = HEAD.find(PART, rows((1, [0.1])))
    assert "0.1" == json.dumps(found["value"])
    assert np.float32(0.1) == np.float32(found["value"])
    shown = [{"task": "mood", "value": -0.123456}]
    assert ("-0.1235", "no number") == (RegressionHead.text_of(shown), RegressionHead.text_of([]))


def test_a_number_that_is_not_finite_is_refused() -> None:
    """JSON has no infinity, and null would be silent."""
    found: list[dict[str, Any]] = [{"task": "mood", "value": float("inf")}]
    for write in (RegressionHead.as_json, RegressionHead.as_values):
        with pytest.raises(InvalidArticle, match="the number of task 'mood' is not finite"):
            write(found)


def test_only_fp32_serves_what_the_gate_does_not_compare(tmp_path: Path) -> None:
    """Nobody would see what another precision does to the numbers."""
    checkpoint = Checkpoint.open(for_regression(tmp_path / "one"))
    refused = {variant.precision for variant in variants_for("cpu") if why_not_reduced([checkpoint], variant)}
    assert {variant.precision for variant in variants_for("cpu")} - {"fp32"} == refused
