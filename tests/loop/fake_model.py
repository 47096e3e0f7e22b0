"""Articles, and a codec, a tokenizer and an engine for them that need no model: what they find is plain from the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate
from operator import attrgetter

import numpy as np

from enricher.errors import InvalidArticle
from enricher.worker.inference.run.engine import OUT_OF_MEMORY, run_in_halves
from enricher.worker.loop.ports import Tokenized
from enricher.worker.records import (
    Article,
    Batch,
    BatchResult,
    FieldName,
    Int32Array,
    RawRecord,
    RunOutput,
    Ticket,
    TokenizedArticle,
    TokenizedField,
    TokenLabels,
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

    def chars_of(self, token: int) -> tuple[int, int]:
        """Where the word stands."""
        return spans_of(self.text)[token]


@lru_cache(maxsize=100)
def spans_of(text: str) -> tuple[tuple[int, int], ...]:
    """Find where each word of a text stands."""
    return tuple(match.span() for match in re.finditer(r"\S+", text))


def tokenize(tickets: list[Ticket]) -> Tokenized:
    """One token a word: a name is written large, "poison" breaks the engine, "untokenizable" the tokenizer."""
    return [(ticket, tokenized(ticket.article, _ids)) for ticket in tickets if ticket.article]


def tokenized(article: Article, ids_of: Callable[[str], Int32Array]) -> TokenizedArticle | InvalidArticle:
    """The tokens of title and body, one a word."""
    if "untokenizable" in article.body:
        return InvalidArticle("refused", stage="tokenize")
    names: tuple[FieldName, ...] = ("title", "body")
    return TokenizedArticle(
        tuple(TokenizedField(name, ids_of(article.text(name)), FakeSpans(article.text(name))) for name in names)
    )


@lru_cache(maxsize=100)
def _ids(text: str) -> Int32Array:
    special = {"poison": POISON_TOKEN, DEADLY: DEADLY_TOKEN}
    ids = [special.get(word) or (NAME_TOKEN if word[0].isupper() else _PLAIN) for word in text.split()]
    array = np.array(ids, dtype=np.int32)
    array.flags.writeable = False  # all articles with this text have it
    return array


def infer(batch: Batch) -> BatchResult:
    """Names are names; a poisoned window fails. Beyond what a window owns its labels are nonsense: nobody may use them."""
    windows, ids, failures = without(POISON_TOKEN, batch)
    starts = [0, *accumulate(len(each.ids) for each in windows)]
    owned = np.zeros(len(ids), np.bool_)
    for window, start in zip(windows, starts, strict=False):
        owned[window.owned_tokens(start)] = True
    labels = ((ids == NAME_TOKEN) == owned).astype(np.int32)
    run = RunOutput(windows, starts[:-1], [TokenLabels(labels, np.repeat(np.float32(0.5), len(ids)))])
    return BatchResult(batch, [run] if windows else [], failures)


def without(token: int, batch: Batch) -> tuple[Sequence[Window], Int32Array, list[WindowFailure]]:
    """The windows without this token, the ids of all of them, and failures about the others."""
    windows, ids = batch.windows, np.concatenate([each.ids for each in batch.windows])
    if token not in ids:
        return windows, ids, []
    failures = [WindowFailure(each, "NotFinite", "poisoned") for each in windows if token in each.ids]
    windows = tuple(each for each in windows if token not in each.ids)
    return windows, np.concatenate([each.ids for each in windows] or [ids[:0]]), failures


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
        if any(DEADLY_TOKEN in window.ids for window in batch.windows):
            die()
        return infer(batch)

    return run
