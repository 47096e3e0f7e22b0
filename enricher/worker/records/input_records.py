"""Input records, articles, where their text comes from in its source, and their tokens."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, dataclass_transform

import numpy as np
import numpy.typing as npt

_NUMBER = "I"  # four bytes; no value of a record has 2^32 characters


class SourceMap:
    """Maps ranges of a text to ranges of its source, and back. Ranges are half-open and count Unicode code points.

    The text consists of segments, in the order of the source. A run has its characters one by one in the source; any other
    segment, such as a character reference or the border of two paragraphs, is mapped as a whole. A segment takes 12 bytes,
    and is looked up by bisection, which is only done for findings.
    """

    __slots__ = ("_continues", "_source_chars", "_source_starts", "_text_starts", "length_chars", "source_end")

    def __init__(self) -> None:
        self._text_starts, self._source_starts, self._source_chars = array(_NUMBER), array(_NUMBER), array(_NUMBER)
        self.length_chars = 0
        """Characters of the text."""
        self.source_end = 0
        """The end of the last segment in the source."""
        self._continues = False  # whether the last segment is a run

    @property
    def size_bytes(self) -> int:
        """Memory of the segments."""
        return 3 * self._text_starts.itemsize * len(self._text_starts)

    def add(self, text_chars: int, source_start: int, source_chars: int) -> None:
        """Add a segment to the end; a segment that continues the run before it becomes part of that run."""
        is_run = text_chars == source_chars
        if is_run and self._continues and source_start == self.source_end:
            self._source_chars[-1] += source_chars
        else:
            self._text_starts.append(self.length_chars)
            self._source_starts.append(source_start)
            self._source_chars.append(source_chars)
        self._continues = is_run
        self.length_chars += text_chars
        self.source_end = source_start + source_chars

    def source_range(self, start: int, end: int) -> tuple[int, int]:
        """The range in the source from the first to the last character of a range of the text, which is not empty."""
        first, last = bisect_right(self._text_starts, start) - 1, bisect_right(self._text_starts, end - 1) - 1
        source_start, source_end = self._source_starts[first], self._source_starts[last] + self._source_chars[last]
        if self._is_run(first, self._text_end(first)):
            source_start += start - self._text_starts[first]
        if self._is_run(last, self._text_end(last)):
            source_end -= self._text_end(last) - end
        return source_start, source_end

    def text_range(self, start: int, end: int) -> tuple[int, int]:
        """The range of the text that is in a range of the source, from the first to the last character that it has there."""
        if not self.length_chars:
            return 0, 0
        first = max(0, bisect_right(self._source_starts, start) - 1)
        last = max(0, bisect_right(self._source_starts, end - 1) - 1)
        text_start, text_end = self._text_starts[first], self._text_end(last)
        if self._is_run(first, self._text_end(first)):
            text_start += start - self._source_starts[first]
        if self._is_run(last, text_end):
            text_end -= self._source_starts[last] + self._source_chars[last] - end
        return text_start, text_end

    def _text_end(self, segment: int) -> int:
        following = segment + 1
        return self._text_starts[following] if following < len(self._text_starts) else self.length_chars

    def _is_run(self, segment: int, text_end: int) -> bool:
        return self._source_chars[segment] == text_end - self._text_starts[segment]


FieldName = Literal["title", "body"]
Headers = tuple[tuple[str, bytes | None], ...]
Int32Array = npt.NDArray[np.int32]
Float32Array = npt.NDArray[np.float32]
_Record = TypeVar("_Record")


@dataclass_transform(frozen_default=True)
def hot_record(*, eq: bool = True) -> Callable[[type[_Record]], type[_Record]]:
    """Decorate a record type with many instances: a slotted dataclass that only the type checker treats as frozen.

    Instances of frozen dataclasses take three times as long to make, because each field is set through a call.
    """
    return dataclass(slots=True, eq=eq, unsafe_hash=eq)


class Partition(NamedTuple):
    """One partition of a topic. A named tuple, because it is the key of hot dictionaries and hashes in C."""

    topic: str
    number: int


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why only a record's position is known: the client cannot unpack the batch that begins at `batch_offset`."""

    batch_offset: int
    reason: str


HEADER_BYTES = 176
"""Memory of a header beside its name and value: a pair, two objects, a list entry.

Measured in CPython 3.11: 95,000 headers with names of 6 and values of 5 bytes took 186 bytes each.
"""


MAX_HEADERS = 300
"""The most headers of a record. A record with more keeps none of them and becomes a dead letter: in the topic a header
may take 2 bytes."""


@hot_record()
class OmittedHeaders:
    """Headers that were dropped on reading because a record had too many."""

    count: int
    size_bytes: int
    """Total size of their names and values."""


@hot_record()
class RawRecord:
    """One input record as the source delivered it; dead letters contain it unchanged."""

    partition: Partition
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_s: float | None = None
    """When the publisher wrote it, in seconds since the epoch; None if the broker does not know."""
    topic_id: str | None = None
    """Kafka's id of the topic, None if unknown. A topic that is deleted and created again gets another one."""
    leader_epoch: int | None = None
    """The epoch of the partition leader that wrote it; committed with the offset, it reveals a truncated log."""
    unreadable: Unreadable | None = None
    """Set if key, value and headers are missing because they could not be read."""
    omitted_headers: OmittedHeaders | None = None
    """Set if there were more headers than `MAX_HEADERS`; then `headers` is empty."""

    @property
    def size_bytes(self) -> int:
        """Memory of key, value and headers."""
        size_bytes = len(self.key or b"") + len(self.value or b"") + HEADER_BYTES * len(self.headers)
        for name, value in self.headers:
            size_bytes += len(name) + len(value or b"")
        return size_bytes


@hot_record()
class Article:
    """A decoded input record. `metadata`: its fields `language`, `source`, `url` and `published_at`, as far as it has them.

    `title` and `body` are the texts that the model reads: HTML is read without its markup.
    """

    id: str
    title: str
    body: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    further: bytes | None = None
    """A JSON object with the values that `articles.metadata` names and the article has. Parsed, it would take 20 times as
    much memory."""
    body_separator: str | None = None
    """The separator of the body's parts, if it was an array of strings."""
    document: bytes | None = None
    """The whole document as JSON, kept if the record is to contain it."""
    dropped: tuple[str, ...] = ()
    """The optional fields that were left out, because they were not text within their bounds."""
    language: str | None = None
    """The language as the publisher wrote it; set only for a worker whose tasks or warnings depend on it."""
    version: int | None = None
    """The version of its output (`records.version`), set if the record is to contain it."""
    source_map: SourceMap | None = None
    """Maps the body to the HTML that it was read from; None if the body is as it was published."""

    @property
    def length_chars(self) -> int:
        """Unicode code points of both texts."""
        return len(self.title) + len(self.body)

    def text(self, field_name: FieldName) -> str:
        """The text of a field as the model reads it."""
        return self.title if field_name == "title" else self.body


class TokenSpans(Protocol):
    """Positions of tokens in their text. They are looked up only for tokens in entities."""

    def chars_of(self, token: int, /) -> tuple[int, int]:
        """The token's range, half-open, in Unicode code points of the original text."""
        ...


@hot_record(eq=False)
class TokenizedField:
    """One text of an article as tokens; `ids` is `int32 [tokens]`, without special tokens."""

    name: FieldName
    ids: Int32Array
    spans: TokenSpans


@hot_record()
class TokenizedArticle:
    """The tokens of an article, title first, then body."""

    fields: tuple[TokenizedField, ...]
    truncated: bool = False
    """True if tokens beyond `max_article_tokens` were left out."""

    @property
    def length_tokens(self) -> int:
        """Tokens of all fields, without special tokens."""
        return sum(len(part.ids) for part in self.fields)
