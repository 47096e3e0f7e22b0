"""Makes the message of a finished ticket: an enriched record, a tombstone, or a dead letter that fits its topic.

Names and values of headers are a contract (`schemas/*-headers.*.schema.json`). Record headers have version 2 if the id of
the input topic is known, else version 1. All values that we add are UTF-8 text, which any console can show.

The broker refuses a message that is too large, and with it the whole transaction, so sizes are checked before producing. If
the topic's limit is unknown, a refused letter is written again in a smaller form. Topics, partitions and transactions
belong to the sink.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha1
from typing import TYPE_CHECKING, Literal, NamedTuple
from uuid import UUID

from enricher.errors import InvalidArticle, SettingsError
from enricher.worker.articles.record_formats import RecordWriter, record_writer
from enricher.worker.heads import kind_of_field
from enricher.worker.records import (
    DeadLetter,
    EnrichedRecord,
    LetterForm,
    Partition,
    RawRecord,
    Skipped,
    Ticket,
    Tombstone,
    Versioning,
    hot_record,
)

if TYPE_CHECKING:
    from hashlib import _Hash

OutgoingHeaders = list[tuple[str, bytes | None]]

MIN_MESSAGE_BYTES = 4096
"""A dead letter without the input's key, value and headers always fits: our headers are bounded."""

_OVERHEAD_BYTES = 512
"""Upper bound of Kafka's framing: 61 bytes of the batch, at most 36 of the record (record format version 2)."""
_HEADER_OVERHEAD_BYTES = 10
"""The framing of one header: two varints of at most 5 bytes each."""

RECORD_NAMESPACE = UUID("039dac1f-0581-5e81-9377-388d5ac680c4")
"""uuid5(NAMESPACE_URL, "urn:enricher:record"). Must never change, or repeated records would get new ids."""

MAX_REASON_BYTES = 1024
"""Bound of `enricher.dlq.error.type` and `.error.message`, so that a dead letter is little larger than its input."""

_ESCAPE = "input."
_OURS = re.compile(rf"(?:{re.escape(_ESCAPE)})*enricher\.")
"""Names of input headers that would be taken for ours, or for escaped ones."""
_RECORD = "enricher"
_DEAD_LETTER = "enricher.dlq"
_RECORD_OFFSET, _RECORD_ID = f"{_RECORD}.source.offset", f"{_RECORD}.record.id"
_RECORD_VERSION = f"{_RECORD}.version"
_HEADERS_VERSION = ("enricher.schema.version", b"2")
_VARIANT_10 = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
_JSON = b"application/json"


class Encoder:
    """Turns finished tickets into messages that their topics accept.

    `max_record_bytes` and `max_dead_letter_bytes` come from the settings; `limit_to` adds the limits of the topics. `clock`
    gives seconds since the epoch, for dead letters. `writer` writes records, by default as plain JSON. `versioning` gives
    records and tombstones their versions. Raises SettingsError if a limit is below `MIN_MESSAGE_BYTES`.
    """

    def __init__(
        self,
        *,
        version: str,
        max_record_bytes: int,
        max_dead_letter_bytes: int,
        clock: Callable[[], float],
        writer: RecordWriter | None = None,
        versioning: Versioning | None = None,
    ) -> None:
        if min(max_record_bytes, max_dead_letter_bytes) < MIN_MESSAGE_BYTES:
            raise SettingsError(f"max.message.bytes of an output topic must be at least {MIN_MESSAGE_BYTES}")
        self._version = version
        self._allowed = SizeLimits(max_record_bytes, max_dead_letter_bytes)
        self._clock = clock
        self._writer = writer or record_writer("json")
        self._versioning = versioning or Versioning()
        self.limits = self._allowed
        """The current limits: the smaller of setting and topic."""

    def limit_to(self, *, record_bytes: int | None, dead_letter_bytes: int | None) -> None:
        """Respect the topics' `max.message.bytes` from now on; None if it is unknown."""
        allowed = self._allowed
        self.limits = SizeLimits(
            min(allowed.record_bytes, record_bytes or allowed.record_bytes),
            min(allowed.dead_letter_bytes, dead_letter_bytes or allowed.dead_letter_bytes),
        )

    def outgoing(self, ticket: Ticket) -> Outgoing:
        """The message of a finished ticket. Never raises because of an article's content.

        Raises FatalError if its offset is too large for a version.
        """
        outcome = ticket.outcome
        assert outcome is not None, "only finished tickets are written"
        assert not isinstance(outcome, Skipped), "it has no output"
        if isinstance(outcome, DeadLetter):
            return self._dead_letter(ticket, outcome)
        if isinstance(outcome, Tombstone):
            message = self._tombstone(ticket, outcome)
        else:
            try:
                message = self._record(ticket, outcome)
            except InvalidArticle as error:
                return self._dead_letter(ticket, letter_for(error))
        size_bytes = message.size_bytes
        if size_bytes > self.limits.record_bytes:
            return self._dead_letter(ticket, self._too_large(size_bytes, outcome))
        return message

    def _too_large(self, size_bytes: int, outcome: EnrichedRecord | Tombstone) -> DeadLetter:
        """The dead letter that replaces a record; it names the smaller limit, of the setting or of the topic."""
        limit_bytes = self.limits.record_bytes
        limit = (
            "max.message.bytes of its topic"
            if limit_bytes < self._allowed.record_bytes
            else "articles.max_record_bytes"
        )
        shares = [] if isinstance(outcome, Tombstone) else self._shares(outcome)
        share = f" ({'; '.join(shares)})" if shares else ""
        message = f"the enriched record takes {size_bytes} bytes{share}, {limit} is {limit_bytes}"
        return DeadLetter("publish", "OutputTooLarge", message)

    def _shares(self, record: EnrichedRecord) -> list[str]:
        """The large parts of a record, and how to make them smaller."""
        shares = []
        if record.article.document:
            shares.append(f"{len(record.article.document)} of them are its article: output.article=whole")
        for field, findings in record.findings.items():
            if share := kind_of_field(field).large_share(findings, as_text=self._writer.writes_text):
                shares.append(share)
        return shares

    def _tombstone(self, ticket: Ticket, outcome: Tombstone) -> Outgoing:
        """A message without a value, which deletes the key in compacted topics."""
        raw = ticket.raw
        headers = record_headers(raw, version=self._versioning.version_of(raw), tombstone=True)
        key = raw.key if outcome.key is None else outcome.key
        return Outgoing("tombstone", key, None, [*headers, *ticket.trace], ticket)

    def _record(self, ticket: Ticket, outcome: EnrichedRecord) -> Outgoing:
        raw, version = ticket.raw, self._versioning.version_of(ticket.raw) + outcome.generation
        value, content_type = self._writer.write(outcome), self._writer.content_type
        headers = record_headers(raw, version=version, tombstone=False, content_type=content_type)
        return Outgoing("record", raw.key, value, [*headers, *ticket.trace], ticket)

    def _dead_letter(self, ticket: Ticket, letter: DeadLetter) -> Outgoing:
        """Keep as much of the input as the topic accepts and the letter's form allows.

        The value is omitted first: it is nearly always the large part, and the input can be found by its position. If
        even the bare letter exceeds the topic's limit, it is written all the same and the broker decides.
        """
        raw = ticket.raw
        omits_more = raw.value is not None, bool(raw.headers), raw.key is not None, True
        # Of forms with the same content only the smallest counts: parts that the input does not have count as omitted.
        for form in (form for form in LetterForm if form >= letter.form and omits_more[form]):
            message = self._letter_message(ticket, letter if form is letter.form else replace(letter, form=form))
            if message.size_bytes <= self.limits.dead_letter_bytes:
                break
        return message

    def _letter_message(self, ticket: Ticket, letter: DeadLetter) -> Outgoing:
        raw, form = ticket.raw, letter.form
        value = raw.value if form < LetterForm.WITHOUT_VALUE else None
        key = raw.key if form < LetterForm.BARE else None
        kept = raw if form < LetterForm.WITHOUT_HEADERS else replace(raw, headers=())
        value_bytes = None if raw.value is None or value is not None else len(raw.value)
        headers = dead_letter_headers(
            kept, letter, version=self._version, time_s=self._clock(), omitted_bytes=value_bytes
        )
        if raw.omitted_headers is not None:
            headers.append(omitted_header("headers", raw.omitted_headers.size_bytes))
        elif kept.headers != raw.headers:
            headers.append(omitted_header("headers", _size_bytes(raw.headers)))
        if key != raw.key:
            headers.append(omitted_header("key", len(raw.key or b"")))
        return Outgoing("dead_letter", key, value, headers, ticket, letter)


@hot_record(eq=False)
class Outgoing:
    """One message to write.

    `letter` is set for dead letters: the ticket's outcome, or what replaces an enriched record that is too large. Its form
    is the one that was written.
    """

    kind: Literal["record", "tombstone", "dead_letter"]
    key: bytes | None
    value: bytes | None
    headers: OutgoingHeaders
    ticket: Ticket
    letter: DeadLetter | None = None

    @property
    def size_bytes(self) -> int:
        """Upper bound of its size in the topic, to compare with the topic's `max.message.bytes`."""
        return len(self.key or b"") + len(self.value or b"") + _size_bytes(self.headers) + _OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """The size of the largest message that is written to each of the two topics."""

    record_bytes: int
    dead_letter_bytes: int


def letter_for(error: InvalidArticle) -> DeadLetter:
    """The dead letter of an input that can never be enriched, or whose record cannot be written."""
    foreign = error.foreign_type is not None
    return DeadLetter(error.stage, error.foreign_type or type(error).__name__, str(error), foreign=foreign)


def _size_bytes(headers: Sequence[tuple[str, bytes | None]]) -> int:
    size_bytes = len(headers) * _HEADER_OVERHEAD_BYTES
    for name, value in headers:
        size_bytes += len(name if name.isascii() else name.encode()) + len(value or b"")
    return size_bytes


def record_headers(
    raw: RawRecord, *, version: int, tombstone: bool, content_type: bytes = _JSON
) -> list[tuple[str, bytes]]:
    """Headers of the output of `raw`, whose version is `version`. A tombstone has no content type."""
    assert raw.topic_id is not None, "brokers without topic ids are refused"
    place, name = _share(raw.partition, raw.topic_id)
    offset = b"%d" % raw.offset
    record_id = (_RECORD_ID, _record_id(name, offset).encode())
    headers = [*place, (_RECORD_OFFSET, offset), record_id, (_RECORD_VERSION, b"%d" % version), _HEADERS_VERSION]
    if not tombstone:
        headers.append(("content-type", content_type))
    return headers


def dead_letter_headers(
    raw: RawRecord, letter: DeadLetter, *, version: str, time_s: float, omitted_bytes: int | None
) -> list[tuple[str, bytes | None]]:
    """The input's headers (order, duplicates and None kept), followed by ours.

    Names of the input that begin with `enricher.` get the prefix `input.`, once more if they have it already: such a header
    came from outside, or from an earlier worker, and says nothing about this dead letter. `version`: the worker's own.
    `time_s`: seconds since the epoch. `omitted_bytes`: the size of an omitted value.
    """
    time = datetime.fromtimestamp(time_s, UTC)
    omitted = [] if omitted_bytes is None else [omitted_header("value", omitted_bytes)]
    if raw.unreadable is not None:
        omitted.append((f"{_DEAD_LETTER}.batch.offset", b"%d" % raw.unreadable.batch_offset))
    return [
        *((_ESCAPE + name if _OURS.match(name) else name, value) for name, value in raw.headers),
        (f"{_DEAD_LETTER}.stage", letter.stage.encode()),
        (f"{_DEAD_LETTER}.error.type", clip(letter.error_type)),
        (f"{_DEAD_LETTER}.error.message", clip(letter.message)),
        (f"{_DEAD_LETTER}.attempts", b"%d" % letter.attempts),
        *_place_headers(_DEAD_LETTER, raw.partition, raw.topic_id),
        (f"{_DEAD_LETTER}.source.offset", b"%d" % raw.offset),
        (f"{_DEAD_LETTER}.version", version.encode()),
        (f"{_DEAD_LETTER}.time", time_text(time).encode()),
        *omitted,
    ]


def omitted_header(part: Literal["value", "headers", "key"], size_bytes: int) -> tuple[str, bytes]:
    """The header for an omitted part of a dead letter, with the part's size."""
    return (f"{_DEAD_LETTER}.{part}.omitted_bytes", b"%d" % size_bytes)


def time_text(time: datetime) -> str:
    """A time in UTC as RFC 3339, with milliseconds."""
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clip(text: str, max_bytes: int = MAX_REASON_BYTES) -> bytes:
    """At most `max_bytes` of UTF-8, cut between characters; lone surrogates become "?"."""
    return text.encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore").encode()


class _Shared(NamedTuple):
    """Values that the records of a partition share: position headers, and the hash of the id's beginning."""

    place: tuple[tuple[str, bytes], ...]
    name: _Hash


@lru_cache(maxsize=1024)
def _share(partition: Partition, topic_id: str) -> _Shared:
    beginning = f"{partition.topic}/{topic_id}/{partition.number}/"
    name = sha1(RECORD_NAMESPACE.bytes + beginning.encode(), usedforsecurity=False)
    return _Shared(_place_headers(_RECORD, partition, topic_id), name)


@lru_cache(maxsize=1024)
def _place_headers(prefix: str, partition: Partition, topic_id: str | None) -> tuple[tuple[str, bytes], ...]:
    known = () if topic_id is None else ((f"{prefix}.source.topic.id", topic_id.encode()),)
    return (
        (f"{prefix}.source.topic", partition.topic.encode()),
        *known,
        (f"{prefix}.source.partition", b"%d" % partition.number),
    )


def _record_id(beginning: _Hash, offset: bytes) -> str:
    """uuid5 over "topic/topic-id/partition/offset" (RFC 9562, section 5.5): the same input record always has the same id.

    Without a topic id it is over "topic/partition/offset": if the topic is deleted and created again, ids repeat.
    """
    # Equal to the standard library's uuid5 (version 5, variant 10), five times as fast.
    name = beginning.copy()
    name.update(offset)
    sha = name.hexdigest()
    return f"{sha[:8]}-{sha[8:12]}-5{sha[13:16]}-{_VARIANT_10[sha[16]]}{sha[17:20]}-{sha[20:32]}"
