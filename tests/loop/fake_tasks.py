"""Four tasks on one encoder, and what each article must get, from its text alone.

They find names, and the share of names as a vector; wide words in German; and tell long words from short ones in English.
The first word of a title tells a language.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np
from loop import checker
from loop.fake_model import (
    AFTER,
    BEFORE,
    DEADLY,
    DEADLY_TOKEN,
    LABELS,
    POISON_TOKEN,
    infer,
    tokenize,
    tokenized,
    without,
)
from loop.fake_sink import DEAD_LETTERS, OUTPUT

from enricher.worker.heads import ClassHead, EmbeddingHead, EntityHead, Head
from enricher.worker.heads.languages import Languages
from enricher.worker.loop.ports import Tokenized
from enricher.worker.records import (
    Batch,
    BatchResult,
    Float32Array,
    HeadOutput,
    Int32Array,
    ModelCard,
    RunOutput,
    TaskCard,
    Ticket,
    TokenLabels,
    Window,
    WindowFailure,
    WindowRows,
)
from enricher.worker.rules.windowing import WindowCutter

MODEL = ModelCard("fake", "0", "fp32")
NAMES, LENGTH, WIDE, SHARE = CARDS = (
    TaskCard("names", "ner", MODEL),
    TaskCard("length", "classification", MODEL, "mean"),
    TaskCard("wide", "ner", MODEL),
    TaskCard("share", "embedding", MODEL, "mean"),
)
_KNOWN = Languages(frozenset({"de", "en", "fr"}), default=True)
HEADS: tuple[Head, ...] = (
    EntityHead.of(LABELS, NAMES, _KNOWN, names_task=True),
    ClassHead(LENGTH, ("short", "long"), languages=Languages(frozenset({"en"}), default=True)),
    EntityHead.of(("O", "I-WIDE"), WIDE, Languages(frozenset({"de"})), names_task=True),
    EmbeddingHead(SHARE, languages=_KNOWN),
)
LIMIT_CHARS, WIDE_CHARS = 4.4321, 8
VENOM = "venom"
"""The word on which the heads of `length` and `wide` fail; all fail on `poison`."""
_VENOM_TOKEN, _WORD, _NAME = 14, 1_000, 2_000
"""Tokens of words, and of names, are these and their length."""
_WIDE = re.compile(rf"(?<!\S)\S{{{WIDE_CHARS},}}(?:\s+\S{{{WIDE_CHARS},}})*(?!\S)")


@dataclass(frozen=True, slots=True)
class Setup:
    """What depends on a worker's tasks. `expected`: the topic and content of the one output of an input value."""

    heads: Sequence[Head]
    tokenize: Callable[[list[Ticket]], Tokenized]
    infer: Callable[[Batch], BatchResult]
    expected: Callable[[bytes | None], tuple[str, object]]
    cutter: WindowCutter = WindowCutter(10, 4, BEFORE, AFTER)  # noqa: RUF009  it has no state


def language_of(title: str) -> str | None:
    """`de` of `de: Titel`."""
    match = re.match(r"(\w\w): ", title)
    return match[1] if match else None


def tokenize_lengths(tickets: list[Ticket]) -> Tokenized:
    """One token a word, which tells its length."""
    return [(ticket, tokenized(ticket.article, _ids)) for ticket in tickets if ticket.article]


@lru_cache(maxsize=100)
def _ids(text: str) -> Int32Array:
    special = {"poison": POISON_TOKEN, DEADLY: DEADLY_TOKEN, VENOM: _VENOM_TOKEN}
    ids = [special.get(word) or (_NAME if word[0].isupper() else _WORD) + len(word) for word in text.split()]
    array = np.array(ids, np.int32)
    array.flags.writeable = False  # all articles with this text have it
    return array


def infer_tasks(batch: Batch) -> BatchResult:
    """What all heads say, in their order. A window on which only some fail is in the run and in the failures."""
    windows, ids, failures = without(POISON_TOKEN, batch)
    if not windows:
        return BatchResult(batch, [], failures)
    venom = [WindowFailure(each, "NotFinite", "poisoned", heads=(1, 2)) for each in windows if _VENOM_TOKEN in each.ids]
    starts = [0, *accumulate(len(each.ids) for each in windows[:-1])]
    scores = np.full(len(ids), 0.5, np.float32)
    logits = [_owned(each, lambda ids: ids % _WORD).mean() - LIMIT_CHARS for each in windows]
    heads: list[HeadOutput] = [
        TokenLabels((ids >= _NAME).astype(np.int32), scores),
        WindowRows(np.array([[-each, each] for each in logits], np.float32)),
        TokenLabels(((ids >= _WORD) & (ids % _WORD >= WIDE_CHARS)).astype(np.int32), scores),
        WindowRows(np.array([[_owned(each, _is_name).mean()] for each in windows], np.float32)),
    ]
    return BatchResult(batch, [RunOutput(windows, starts, heads)], [*failures, *venom])


def _owned(window: Window, value: Callable[[Float32Array], Float32Array]) -> Float32Array:
    """A value of each token that the window owns."""
    return value(window.ids[window.owned_tokens(0)].astype(np.float32))


def _is_name(ids: Float32Array) -> Float32Array:
    shares: Float32Array = (ids >= _NAME).astype(np.float32)
    return shares


@lru_cache(maxsize=10_000)
def expected(value: bytes | None) -> tuple[str, object]:
    """The topic and the content of the one output that belongs to an input value."""
    topic, content = checker.expected(value)
    if value is None or content == "decode":
        return topic, content
    title, _, body = value.decode().partition("\n")
    words = (title + " " + body).split()
    language = language_of(title)
    runs = {"names": language in (None, "de", "en", "fr"), "length": language in (None, "en"), "wide": language == "de"}
    runs["share"] = runs["names"]
    if runs["names"] and topic == DEAD_LETTERS:
        return topic, content
    if VENOM in words and (runs["length"] or runs["wide"]):
        return DEAD_LETTERS, "inference"
    texts = (("title", title), ("body", body))
    found: list[tuple[object, ...]] = []
    if runs["names"]:
        assert isinstance(content, list)
        found += [(*entity, "names") for entity in content]
    if runs["wide"]:
        found += [(name, *at.span(), at.group(), "WIDE", "wide") for name, text in texts for at in _WIDE.finditer(text)]
    mean_chars = sum(map(len, words)) / len(words)
    classes = [("length", "long" if mean_chars > LIMIT_CHARS else "short")] if runs["length"] else []
    share = sum(word[0].isupper() for word in words) / len(words)
    vectors = [("share", round(share, 3))] if runs["share"] else []
    return OUTPUT, (found, classes, vectors, [(card.name, runs[card.name]) for card in CARDS])


ONE_TASK = Setup((EntityHead.of(LABELS),), tokenize, infer, checker.expected)
FOUR_TASKS = Setup(HEADS, tokenize_lengths, infer_tasks, expected)
