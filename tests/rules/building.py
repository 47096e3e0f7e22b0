"""Small things that the tests of the core are built from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from enricher.worker.heads.labels import LabelScheme, decode_entities
from enricher.worker.records import (
    Article,
    Entity,
    OwnedLabels,
    Partition,
    RawRecord,
    Ticket,
    TokenizedArticle,
    TokenizedField,
    Window,
)

P0, P1, P2 = (Partition("articles", number) for number in range(3))


def raw(offset: int, partition: Partition = P0, value: bytes = b"value") -> RawRecord:
    """An input record of eight bytes."""
    return RawRecord(partition, offset, b"key", value)


@dataclass(frozen=True, slots=True)
class GivenSpans:
    """Token spans that are known."""

    chars: list[tuple[int, int]] = field(default_factory=list)

    def chars_of(self, token: int) -> tuple[int, int]:
        """As given."""
        return self.chars[token]


def spans_of_words(text: str) -> GivenSpans:
    """One token for each word of a text."""
    return GivenSpans([match.span() for match in re.finditer(r"\S+", text)])


def part_of(title: str, body: str, title_spans: GivenSpans, body_spans: GivenSpans) -> Ticket:
    """A tokenised article that no window has answered for."""
    fields = (
        TokenizedField("title", np.zeros(len(title_spans.chars), np.int32), title_spans),
        TokenizedField("body", np.zeros(len(body_spans.chars), np.int32), body_spans),
    )
    return Ticket(raw(0), 0.0, Article("id", title, body), tokens=TokenizedArticle(fields))


def answer(ticket: Ticket, labels: Sequence[int], scores: Sequence[float] | None = None) -> None:
    """Give the part all its labels, as one window that owns everything; scores are 1 where nothing else is said."""
    scores = [1.0] * len(labels) if scores is None else scores
    ticket.answers = [[OwnedLabels(0, np.array(labels, np.int32), np.array(scores, np.float32))]]


def entities_of(ticket: Ticket, scheme: LabelScheme) -> list[Entity]:
    """What a single token classification head decodes."""
    labels = [each for [each] in ticket.answers]
    assert all(isinstance(each, OwnedLabels) for each in labels)
    article, tokens = ticket.article, ticket.tokens
    assert article is not None
    assert tokens is not None
    return decode_entities(article, tokens, cast("list[OwnedLabels]", labels), scheme)


def window_of(length: int, arrived_s: float, ticket: Ticket | None = None) -> Window:
    """A window of some length."""
    return Window(ticket or Ticket(raw(0), arrived_s), np.zeros(length, np.int32), 0, 0, length, 0, arrived_s)


class Counting(str):
    """A text that counts how many of its characters are taken out of it."""

    taken = 0

    def __getitem__(self, key: object) -> str:
        """The same."""
        piece = super().__getitem__(key)  # type: ignore[index]
        Counting.taken += len(piece)
        return piece
