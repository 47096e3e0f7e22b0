"""What comes in and what goes out: input records, articles and their tokens, entities, and how an input ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal, NamedTuple, Protocol, TypedDict, TypeVar, dataclass_transform

import numpy as np
import numpy.typing as npt

FieldName = Literal["title", "body"]
Headers = tuple[tuple[str, bytes | None], ...]
Int32Array = npt.NDArray[np.int32]
Float32Array = npt.NDArray[np.float32]
_Record = TypeVar("_Record")


@dataclass_transform(frozen_default=True)
def hot_record(*, eq: bool = True) -> Callable[[type[_Record]], type[_Record]]:
    """Decorate a record of which an article has many: a slotted dataclass that only the type checker keeps frozen.

    A frozen one sets each of its fields through a call, and takes three times as long to make.
    """
    return dataclass(slots=True, eq=eq, unsafe_hash=eq)


class Partition(NamedTuple):
    """One partition of a topic. A named tuple, because it is the key of every hot dictionary and hashes in C."""

    topic: str
    number: int


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why nothing of a record is known but its place: the client cannot unpack the batch that begins at `batch_offset`."""

    batch_offset: int
    reason: str


HEADER_BYTES = 176
"""What a header costs in memory beside its name and its value: a tuple of two, their two objects, a place in a list.

Measured in CPython 3.11: 95,000 headers with names of 6 and values of 5 bytes took 186 bytes each.
"""


@hot_record()
class OmittedHeaders:
    """Headers that a record had, and that were let go of on reading: there were too many."""

    count: int
    size_bytes: int
    """Of their names and values."""


@hot_record()
class RawRecord:
    """One input record as the source delivered it, untouched: what a dead letter gives back."""

    partition: Partition
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_s: float | None = None
    """When the publisher wrote it, in seconds since the epoch; None where the broker does not know."""
    topic_id: str | None = None
    """Kafka's id of the topic, which a topic that is deleted and created again does not keep; None where none is known."""
    leader_epoch: int | None = None
    """The epoch of the partition's leader that wrote it: committed with the offset, it tells a log that was cut off."""
    unreadable: Unreadable | None = None
    """Set where key, value and headers are missing because nobody could read them."""
    omitted_headers: OmittedHeaders | None = None
    """Set where there were more headers than `articles.max_headers`: then `headers` is empty."""

    @property
    def size_bytes(self) -> int:
        """What holding key, value and headers in memory costs."""
        size_bytes = len(self.key or b"") + len(self.value or b"") + HEADER_BYTES * len(self.headers)
        for name, value in self.headers:
            size_bytes += len(name) + len(value or b"")
        return size_bytes


@hot_record()
class Article:
    """A decoded input record: its texts, and the metadata that the enriched record repeats."""

    id: str
    title: str
    body: str
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def length_chars(self) -> int:
        """Unicode code points of both texts."""
        return len(self.title) + len(self.body)

    def text(self, field_name: FieldName) -> str:
        """The original text that offsets of `field_name` count in, in Unicode code points."""
        return self.title if field_name == "title" else self.body


class TokenSpans(Protocol):
    """Where the tokens of one text stand in it. Asked only about tokens in which something was found."""

    def word_of(self, token: int, /) -> int:
        """The word that a token belongs to; never decreasing from token to token."""
        ...

    def chars_of(self, token: int, /) -> tuple[int, int]:
        """Half-open, in Unicode code points of the original text."""
        ...


@hot_record(eq=False)
class TokenizedField:
    """One text of an article as tokens: `ids` is `int32 [tokens]`, without special tokens."""

    name: FieldName
    ids: Int32Array
    spans: TokenSpans


@hot_record()
class TokenizedArticle:
    """The tokens of an article, title first, then body."""

    fields: tuple[TokenizedField, ...]
    truncated: bool = False
    """True where tokens above `max_article_tokens` were left out."""

    @property
    def length_tokens(self) -> int:
        """Tokens of all fields together, special tokens not counted."""
        return sum(len(part.ids) for part in self.fields)


class Entity(TypedDict):
    """A named entity: `article.text(field)[start:end] == text`, half-open, in Unicode code points.

    A dictionary, its names in this order: an article has many, and this is written as it is.
    """

    field: FieldName
    start: int
    end: int
    text: str
    label: str
    score: float  # a probability, to the fourth decimal


@hot_record()
class Coverage:
    """How much of an article the model saw."""

    tokens: int
    windows: int
    truncated: bool


@hot_record()
class EnrichedRecord:
    """What the model found in one article."""

    article: Article
    entities: Sequence[Entity]
    coverage: Coverage


class LetterForm(IntEnum):
    """How much of its input a dead letter gives back; each form leaves out what the one before it does, and more."""

    WHOLE = 0
    WITHOUT_VALUE = 1
    WITHOUT_HEADERS = 2
    BARE = 3
    """Without the key as well: only why it is dead, and where the input stands."""

    @property
    def smaller(self) -> LetterForm | None:
        """The next one; None for the bare one."""
        return None if self is LetterForm.BARE else LetterForm(self + 1)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Why an input can never succeed. `message` never holds text of the article.

    `form` is the largest in which it may be written: a broker that refuses one may take a smaller one.
    """

    stage: Literal["decode", "tokenize", "inference", "publish"]
    error_type: str
    message: str
    attempts: int = 1
    form: LetterForm = LetterForm.WHOLE


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The input had no value: its key is deleted downstream as well."""


Outcome = EnrichedRecord | DeadLetter | Tombstone


@dataclass(frozen=True, slots=True)
class ModelCard:
    """Which model made a record."""

    name: str
    digest: str
    precision: str
