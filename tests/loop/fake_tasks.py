"""Four tasks in two passes with tokens and windows that differ, and what each article must get, from its text alone.

The first pass has a token per word; it finds names, and the share of names as a vector. The second has two tokens per word;
it finds wide words in German, and tells long words from short ones in English. The first word of a title tells a language.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np
from loop import checker
from loop.fake_clock import TICK_S
from loop.fake_model import AFTER, BEFORE, DEADLY, DEADLY_TOKEN, LABELS, NAME_TOKEN, infer, spans_of, tokenize, without
from loop.fake_sink import DEAD_LETTERS, OUTPUT

from enricher.worker.heads import ClassHead, EmbeddingHead, EntityHead, Head
from enricher.worker.heads.languages import Languages
from enricher.worker.loop.ports import Tokenized
from enricher.worker.records import (
    Batch,
    BatchResult,
    FieldName,
    Float32Array,
    HeadOutput,
    Int32Array,
    ModelCard,
    Part,
    RunOutput,
    TaskCard,
    Ticket,
    TokenizedArticle,
    TokenizedField,
    TokenLabels,
    Window,
    WindowRows,
)
from enricher.worker.rules.batch_rules import BatchRules
from enricher.worker.rules.batching import LengthBucketScheduler
from enricher.worker.rules.lanes import LaneQueue
from enricher.worker.rules.packing import ArrivalScheduler
from enricher.worker.rules.passes import PassScheduler
from enricher.worker.rules.windowing import WindowCutter

MODEL = ModelCard("fake", "0", "fp32")
NAMES, LENGTH, WIDE, SHARE = CARDS = (
    TaskCard("names", "ner", MODEL),
    TaskCard("length", "classification", MODEL, "mean"),
    TaskCard("wide", "ner", MODEL),
    TaskCard("share", "embedding", MODEL, "mean"),
)
"""In the order of the settings, which is not that of the passes."""
_KNOWN = Languages(frozenset({"de", "en", "fr"}), default=True)
HEADS: tuple[tuple[Head, ...], ...] = (
    (EntityHead.of(LABELS, NAMES, _KNOWN, names_task=True), EmbeddingHead(SHARE, languages=_KNOWN)),
    (
        ClassHead(LENGTH, ("short", "long"), languages=Languages(frozenset({"en"}), default=True)),
        EntityHead.of(("O", "I-WIDE"), WIDE, Languages(frozenset({"de"})), names_task=True),
    ),
)
LIMIT_CHARS, WIDE_CHARS = 4.4321, 8
VENOM = "venom"
"""The word on which the model of the second pass fails; the one of the first fails on `poison`."""
_FIRST, _SECOND, _VENOM = 1_000, 2_000, 3_000
_WIDE = re.compile(rf"(?<!\S)\S{{{WIDE_CHARS},}}(?:\s+\S{{{WIDE_CHARS},}})*(?!\S)")


@dataclass(frozen=True, slots=True)
class Setup:
    """What depends on a worker's passes. `expected`: the topic and content of the one output of an input value."""

    cutters: Sequence[WindowCutter]
    heads: Sequence[Sequence[Head]]
    cards: Sequence[TaskCard]
    scheduler: Callable[[BatchRules], LaneQueue]
    tokenize: Callable[[list[Part]], Tokenized]
    infer: Callable[[Batch], BatchResult]
    expected: Callable[[bytes | None], tuple[str, object]]


@dataclass(frozen=True, slots=True)
class HalfWords:
    """Words of a text, each two tokens: its first letter and the rest."""

    text: str

    def chars_of(self, token: int) -> tuple[int, int]:
        """Where the half stands."""
        start, stop = spans_of(self.text)[token // 2]
        return (start + 1, stop) if token % 2 else (start, start + 1)


def language_of(title: str) -> str | None:
    """`de` of `de: Titel`."""
    match = re.match(r"(\w\w): ", title)
    return match[1] if match else None


def tokenize_passes(parts: list[Part]) -> Tokenized:
    """Each part as its pass does it."""
    return [(part, _halves(part.ticket) if part.pass_index else tokenize([part])[0][1]) for part in parts]


def _halves(ticket: Ticket) -> TokenizedArticle:
    assert ticket.article is not None
    names: tuple[FieldName, ...] = ("title", "body")
    fields = []
    for name in names:
        text = ticket.article.text(name)
        fields.append(TokenizedField(name, _half_ids(text), HalfWords(text)))
    return TokenizedArticle(tuple(fields))


@lru_cache(maxsize=100)
def _half_ids(text: str) -> Int32Array:
    ids = np.array([token for word in text.split() for token in _two_tokens(word)], np.int32)
    ids.flags.writeable = False  # all articles with this text have it
    return ids


def _two_tokens(word: str) -> tuple[int, int]:
    if word == DEADLY:
        return DEADLY_TOKEN, DEADLY_TOKEN
    return (_VENOM, _VENOM) if word == VENOM else (_FIRST + len(word), _SECOND + len(word))


def infer_passes(batch: Batch) -> BatchResult:
    """Each batch as its pass does it. Windows are of one pass."""
    assert {batch.pass_index} == {window.part.pass_index for window in batch.windows}
    return _infer_second(batch) if batch.pass_index else _infer_first(batch)


def _infer_first(batch: Batch) -> BatchResult:
    done = infer(batch)
    runs: list[RunOutput] = []
    for run in done.runs:
        shares = np.array([[_owned(each, _is_name).mean()] for each in run.windows], np.float32)
        heads: list[HeadOutput] = [*run.heads, WindowRows(shares)]
        runs.append(RunOutput(run.windows, run.starts, heads))
    return BatchResult(batch, runs, done.failures, busy_s=TICK_S)


def _infer_second(batch: Batch) -> BatchResult:
    windows, ids, failures = without(_VENOM, batch)
    if not windows:
        return BatchResult(batch, [], failures, busy_s=2 * TICK_S)
    starts = [0, *accumulate(len(each.ids) for each in windows[:-1])]
    wide = ((ids >= _FIRST + WIDE_CHARS) & (ids < _SECOND)).astype(np.int32)
    logits = [_owned(each, lambda ids: ids % _FIRST).mean() - LIMIT_CHARS for each in windows]
    rows = np.array([[-each, each] for each in logits], np.float32)
    heads: list[HeadOutput] = [WindowRows(rows), TokenLabels(wide, np.full(len(ids), 0.5, np.float32))]
    return BatchResult(batch, [RunOutput(windows, starts, heads)], failures, busy_s=2 * TICK_S)


def _owned(window: Window, value: Callable[[Float32Array], Float32Array]) -> Float32Array:
    """A value of each token that the window owns."""
    return value(window.ids[window.owned_tokens(0)].astype(np.float32))


def _is_name(ids: Float32Array) -> Float32Array:
    shares: Float32Array = (ids == NAME_TOKEN).astype(np.float32)
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


ONE_PASS = Setup(
    cutters=(WindowCutter(10, 4, BEFORE, AFTER),),
    heads=((EntityHead.of(LABELS),),),
    cards=(),
    scheduler=LengthBucketScheduler,
    tokenize=tokenize,
    infer=infer,
    expected=checker.expected,
)
TWO_PASSES = Setup(
    cutters=(WindowCutter(10, 4, BEFORE, AFTER), WindowCutter(7, 2, BEFORE, AFTER)),
    heads=HEADS,
    cards=CARDS,
    scheduler=lambda rules: PassScheduler([LengthBucketScheduler(rules), ArrivalScheduler(rules)]),
    tokenize=tokenize_passes,
    infer=infer_passes,
    expected=expected,
)
