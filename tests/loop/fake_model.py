"""Articles, and a codec, a tokenizer and an engine for them that need no model: what they find is plain from the text."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

import numpy as np
from support.answers import WindowLabels, WindowResult, batch_result

from enricher.errors import InvalidArticle
from enricher.worker.inference.run.memory import OUT_OF_MEMORY, run_in_halves
from enricher.worker.loop.ports import Tokenized
from enricher.worker.records import (
    Article,
    Batch,
    BatchResult,
    FieldName,
    Int32Array,
    Part,
    RawRecord,
    TokenizedArticle,
    TokenizedField,
    Window,
    WindowFailure,
)

LABELS = ("O", "I-NAME")
BEFORE, AFTER = (1,), (2,)
_PLAIN, NAME_TOKEN, POISON_TOKEN, DEADLY_TOKEN = 10, 11, 12, 13
DEADLY = "deadly"
"""The word that kills the process whose model reads it, where the engine is `killed_by_deadly`."""


def article_value(title: str, body: str) -> bytes:
    """An article as the fake codec reads it."""
    return f"{title}\n{body}".encode()


def read(raw: RawRecord) -> Article:
    """Title on the first line, body on the second; no second line is no article."""
    title, newline, body = (raw.value or b"").decode().partition("\n")
    if not newline:
        raise InvalidArticle("no body")
    language = title[:2] if title[2:4] == ": " else None
    return Article("id", title, body, language=language)


@dataclass(frozen=True, slots=True)
class FakeSpans:
    """Words of a text, each one token."""

    text: str

    def word_of(self, token: int) -> int:
        """0, 1, 2, ..."""
        return token

    def chars_of(self, token: int) -> tuple[int, int]:
        """Where the word stands."""
        return [match.span() for match in re.finditer(r"\S+", self.text)][token]


def tokenize(parts: list[Part]) -> Tokenized:
    """One token a word: a name is written large, "poison" breaks the engine, "untokenizable" the tokenizer."""
    return [(part, _tokenized(part.ticket.article)) for part in parts if part.ticket.article]


def _tokenized(article: Article) -> TokenizedArticle | InvalidArticle:
    if "untokenizable" in article.body:
        return InvalidArticle("refused", stage="tokenize")
    names: tuple[FieldName, ...] = ("title", "body")
    return TokenizedArticle(
        tuple(TokenizedField(name, _ids(article.text(name)), FakeSpans(article.text(name))) for name in names)
    )


def _ids(text: str) -> Int32Array:
    special = {"poison": POISON_TOKEN, DEADLY: DEADLY_TOKEN}
    ids = [special.get(word) or (NAME_TOKEN if word[0].isupper() else _PLAIN) for word in text.split()]
    return np.array(ids, dtype=np.int32)


def infer(batch: Batch) -> BatchResult:
    """Names are names; a poisoned window fails. Beyond what a window owns its labels are nonsense: nobody may use them."""
    return batch_result(map(_infer, batch.windows))


def with_room_for(max_tokens: int, run: Callable[[Batch], BatchResult] = infer) -> Callable[[Batch], BatchResult]:
    """The same on a device that has memory for so many padded tokens at once."""

    def attempt(batch: Batch) -> BatchResult:
        if batch.padded_tokens > max_tokens:
            return BatchResult(
                batch, [], [WindowFailure(window, OUT_OF_MEMORY, "no memory") for window in batch.windows]
            )
        return run(batch)

    return partial(run_in_halves, attempt, tokens_of=attrgetter("padded_tokens"))


def killed_by_deadly(
    die: Callable[[], None], infer: Callable[[Batch], BatchResult] = infer
) -> Callable[[Batch], BatchResult]:
    """The same in a library that crashes on a word, and takes the process with it."""

    def run(batch: Batch) -> BatchResult:
        if any((window.ids == DEADLY_TOKEN).any() for window in batch.windows):
            die()
        return infer(batch)

    return run


def _infer(window: Window) -> WindowResult:
    if (window.ids == POISON_TOKEN).any():
        return WindowFailure(window, "NotFinite", "poisoned")
    shift = window.specials_before - window.start
    labels = (window.ids != NAME_TOKEN).astype(np.int32)
    owned = slice(window.own_start + shift, window.own_stop + shift)
    labels[owned] = window.ids[owned] == NAME_TOKEN
    return WindowLabels(window, labels, np.full(len(labels), 0.5, np.float32))
