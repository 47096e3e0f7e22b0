"""The headers of outputs: the position of the input, the record id, and the reason of a dead letter.

Names and values are a contract (`schemas/*-headers.*.schema.json`). Record headers have version 2 if the id of the input
topic is known, else version 1. All values that we add are UTF-8 text, which any console can show. `encoder` checks sizes.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha1
from typing import TYPE_CHECKING, Literal, NamedTuple
from uuid import UUID

if TYPE_CHECKING:
    from hashlib import _Hash

    from enricher.worker.records import DeadLetter, Partition, RawRecord

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
_VERSION_1, _VERSION_2 = ("enricher.schema.version", b"1"), ("enricher.schema.version", b"2")
_VARIANT_10 = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
_JSON = b"application/json"


def record_headers(
    raw: RawRecord, *, version: int, tombstone: bool, content_type: bytes = _JSON
) -> list[tuple[str, bytes]]:
    """Headers of the output of `raw`, whose version is `version`. A tombstone has no content type."""
    place, name, schema = _share(raw.partition, raw.topic_id)
    offset = b"%d" % raw.offset
    record_id = (_RECORD_ID, _record_id(name, offset).encode())
    headers = [*place, (_RECORD_OFFSET, offset), record_id, (_RECORD_VERSION, b"%d" % version), schema]
    if not tombstone:
        headers.append(("content-type", content_type))
    return headers


def dead_letter_headers(
    raw: RawRecord, letter: DeadLetter, *, version: str, time_s: float, omitted_bytes: int | None
) -> list[tuple[str, bytes | None]]:
    """The input's headers (order, duplicates and None kept), followed by ours.

    Names of the input that begin with `enricher.` get the prefix `input.`, once more if they have it already: such a header
    came from outside, or from an earlier worker, and says nothing about this dead letter. `version`: of this worker.
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
    """Values that the records of a partition share: position headers, the hash of the id's beginning, the version."""

    place: tuple[tuple[str, bytes], ...]
    name: _Hash
    schema: tuple[str, bytes]


@lru_cache(maxsize=1024)
def _share(partition: Partition, topic_id: str | None) -> _Shared:
    topic = partition.topic if topic_id is None else f"{partition.topic}/{topic_id}"
    name = sha1(RECORD_NAMESPACE.bytes + f"{topic}/{partition.number}/".encode(), usedforsecurity=False)
    return _Shared(_place_headers(_RECORD, partition, topic_id), name, _VERSION_1 if topic_id is None else _VERSION_2)


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
