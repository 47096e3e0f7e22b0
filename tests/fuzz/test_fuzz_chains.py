"""Any text through eight kinds of tokenizers, with a label for each piece: entities are whole words, and none is lost."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzz.chains import CHAINS, trained, untrimmed, write_checkpoint
from fuzz.test_fuzz_spans import FUZZ, LABELS, TASK, TEXTS, check_spans, folder, windows_of, written
from hypothesis import example, given
from hypothesis import strategies as st
from rules.word_rule import is_border, words
from support.answers import WindowLabels, batch_result, by_window
from support.properties import examples

from enricher.worker.heads import EntityHead
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.graph.padded import PackedFloat32
from enricher.worker.inference.run.engine import OnnxEngine
from enricher.worker.inference.run.model import prepare_variant
from enricher.worker.inference.tokenizer import article_tokenizer
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.records import Article, Batch, Int32Array
from enricher.worker.rules.assembly import finish_enriched, store_answers

HEADS = [replace(EntityHead.of(LABELS, TASK), skip_addresses=False)]
ONE_LETTER_WORDS = "Zoe (A) x 'y' o\nÉ 7\u00a0km"
LETTERS = st.sampled_from(
    ["Anna", "Paris", "A", "É", "ж", "Ω", "ש", "ب", "ก", "東", "ト", "한", "7", " ", " ", ",", "'s", "\n"]
)
ANY_TEXT = TEXTS | st.lists(LETTERS, max_size=20).map("".join)


@cache
def checkpoint(chain: str) -> Checkpoint:
    """The chain's checkpoint."""
    return Checkpoint.open(write_checkpoint(chain, Path(folder().name) / chain))


@cache
def tokenizer(chain: str) -> ArticleTokenizer:
    """The worker's tokenizer of it, which has passed the probe."""
    return ArticleTokenizer(checkpoint(chain))


@cache
def labels_by_hash(chain: str) -> Int32Array:
    """A label for each piece of the vocabulary."""
    size = trained(chain).get_vocab_size()
    dice = np.random.default_rng(size)
    labels: Int32Array = dice.choice(len(LABELS), size, p=[0.3, *[0.7 / 6] * 6]).astype(np.int32)
    return labels


def document_of(text: str, chain: str, tokens_of: ArticleTokenizer, length_tokens: int = 16) -> Any:  # noqa: ANN401  JSON
    """The record of an article with this body, in which the label of each piece is that of its hash."""
    ticket, windows = windows_of(Article("a", "", text), length_tokens, 2, tokens_of)
    for window in windows:
        labels = labels_by_hash(chain)[window.ids]
        store_answers(batch_result([WindowLabels(window, labels, np.ones(len(labels), np.float32))]), HEADS)
    if not windows:
        finish_enriched(ticket, HEADS)
    return written(ticket)


def first_pieces(text: str, chain: str) -> dict[tuple[int, int], int]:
    """The first piece of each word that has a letter or digit first, and whose pieces all lie in it alone.

    By the library's own offsets, with the spaces that it may cut off.
    """
    encoding = untrimmed(chain).encode(text, add_special_tokens=False)
    place_of = {char: word for word in words(text) for char in range(*word)}
    found: dict[tuple[int, int], int] = {}
    shared = set[tuple[int, int]]()
    for number, piece, chars in zip(encoding.ids, encoding.tokens, encoding.offsets, strict=True):
        if piece in {"▁", "Ġ"} and text[slice(*chars)] not in {"▁", "Ġ"}:
            continue
        touched = dict.fromkeys(place_of[char] for char in range(*chars) if char in place_of)
        for word in touched:
            found.setdefault(word, number)
        if len(touched) > 1:
            shared |= touched.keys()
    return {word: number for word, number in found.items() if word not in shared and text[word[0]].isalnum()}


def check_words(document: Any, text: str, chain: str, labels: Int32Array) -> int:  # noqa: ANN401  JSON
    """Every word with a label is whole in one entity, and no other is in any. How many words had to be."""
    entities = [(each["start"], each["end"]) for each in document["entities"]]
    for start, end in entities:
        inside = [word for word in words(text) if start <= word[0] and word[1] <= end]
        assert not any(is_border(text[before:after]) for (_, before), (after, _) in pairwise(inside))
    kinds = {word: LABELS[labels[number]][2:] for word, number in first_pieces(text, chain).items()}
    for (first, last), kind in kinds.items():
        around = [each["label"] for each in document["entities"] if each["start"] <= first and last <= each["end"]]
        assert ([kind] if kind else []) == around
    return sum(map(bool, kinds.values()))


@pytest.mark.parametrize("chain", CHAINS)
def test_entities_are_words_whatever_the_tokenizer(chain: str) -> None:
    """They begin and end with words, cross no border, do not overlap, and lose no labelled word or character of one."""

    @FUZZ
    @given(text=ANY_TEXT, length_tokens=st.integers(8, 40))
    @example(ONE_LETTER_WORDS, 20)
    def holds(text: str, length_tokens: int) -> None:
        document = document_of(text, chain, tokenizer(chain), length_tokens)
        check_spans(document, Article("a", "", text))
        check_words(document, text, chain, labels_by_hash(chain))

    holds()


@pytest.mark.parametrize("chain", CHAINS)
def test_the_check_sees_words_of_every_kind(chain: str) -> None:
    """Most words of an ordinary text have a label, so that the property above is about something."""
    text = "Anna Zoe lives in Paris with Jan's friends, and so do the others. " * 5
    document = document_of(text, chain, tokenizer(chain))
    assert check_words(document, text, chain, labels_by_hash(chain)) > 20


def test_without_the_probe_words_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: with RobBERT's own offsets, the check finds that names of one letter are in no entity."""
    chain = "bytes of RobBERT"
    texts = [f"Zoe {letter} x" for letter in "AEIOaeio"]
    for text in texts:
        check_words(document_of(text, chain, tokenizer(chain)), text, chain, labels_by_hash(chain))
    monkeypatch.setattr(article_tokenizer, "require_characters", lambda *_: None)
    as_it_was = ArticleTokenizer(checkpoint(chain))

    def loses(text: str) -> bool:
        try:
            check_words(document_of(text, chain, as_it_was), text, chain, labels_by_hash(chain))
        except AssertionError:
            return True
        return False

    assert any(map(loses, texts))


@pytest.mark.slow
@pytest.mark.parametrize("chain", ["Unigram of XLM-R", "bytes of RobBERT"])
def test_a_model_whose_labels_depend_on_the_piece(chain: str) -> None:
    """The same through the engine, with a real checkpoint of one layer, whose labels are asked for once for each piece."""
    model = prepare_variant(checkpoint(chain), PackedFloat32(), "cpu", cache_dir=Path(folder().name) / "cache")
    engine = OnnxEngine(model, threads_per_run=1, pad_id=tokenizer(chain).pad_id)
    labels: dict[int, int] = {}

    @examples(40, parent=FUZZ)
    @given(text=ANY_TEXT)
    @example(ONE_LETTER_WORDS)
    def holds(text: str) -> None:
        ticket, windows = windows_of(Article("a", "", text), 16, 2, tokenizer(chain))
        if not windows:
            return
        result = engine.run(Batch(tuple(windows)))
        for window, answer in zip(windows, by_window(result), strict=True):
            assert isinstance(answer, WindowLabels)
            for number, label in zip(window.ids.tolist(), answer.labels.tolist(), strict=True):
                assert label == labels.setdefault(number, label)
        store_answers(result, HEADS)
        document = written(ticket)
        check_spans(document, Article("a", "", text))
        by_piece = np.zeros(trained(chain).get_vocab_size(), np.int32)
        by_piece[[*labels]] = [*labels.values()]
        check_words(document, text, chain, by_piece)

    holds()
    assert len(set(labels.values())) > 3
