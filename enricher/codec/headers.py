"""The headers beside each output: where it came from, its record id, and why a dead letter died.

Names and forms are a contract (`schemas/*-headers.v1.schema.json`). All values that we add are UTF-8 text, so that any
console can read them. What is too large for a topic is decided in `encoder`, not here.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha1
from typing import TYPE_CHECKING, Literal
from uuid import UUID

from enricher.codec.enriched import SCHEMA_VERSION

if TYPE_CHECKING:
    from hashlib import _Hash

    from enricher.records import DeadLetter, Partition, RawRecord

RECORD_NAMESPACE = UUID("039dac1f-0581-5e81-9377-388d5ac680c4")
"""Never changes: uuid5(NAMESPACE_URL, "urn:enricher:record"). With another one, every repeat would look new."""

MAX_REASON_BYTES = 1024
"""Bound of `enricher.dlq.error.type` and `.error.message`: a dead letter is little more than its input."""

_RECORD = "enricher"
_DEAD_LETTER = "enricher.dlq"
_RECORD_OFFSET, _RECORD_ID = f"{_RECORD}.source.offset", f"{_RECORD}.record.id"
_VARIANT_10 = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
_SCHEMA = ("enricher.schema.version", b"%d" % SCHEMA_VERSION)
_JSON = ("content-type", b"application/json")


def record_id(partition: Partition, offset: int) -> str:
    """Return uuid5 over "topic/partition/offset" (RFC 9562, section 5.5): one input record, one id, at every read."""
    return _record_id(partition, b"%d" % offset)


def record_headers(raw: RawRecord, *, tombstone: bool) -> list[tuple[str, bytes]]:
    """Headers of the enriched record made from `raw`; a tombstone has no content, hence no content type."""
    partition, offset = raw.partition, b"%d" % raw.offset
    topic, number = _partition_headers(_RECORD, partition)
    record = (_RECORD_ID, _record_id(partition, offset).encode())
    headers = [topic, number, (_RECORD_OFFSET, offset), record, _SCHEMA]
    if not tombstone:
        headers.append(_JSON)
    return headers


def dead_letter_headers(
    raw: RawRecord, letter: DeadLetter, *, version: str, time_s: float, omitted_bytes: int | None
) -> list[tuple[str, bytes | None]]:
    """Put ours after the input's own, which stay as they came (order, doubles, None): the last one of a name counts.

    `version` is that of this worker, `time_s` seconds since the epoch, `omitted_bytes` the size of a value left out.
    """
    omitted = [] if omitted_bytes is None else [omitted_header("value", omitted_bytes)]
    return [
        *raw.headers,
        (f"{_DEAD_LETTER}.stage", letter.stage.encode()),
        (f"{_DEAD_LETTER}.error.type", clipped(letter.error_type)),
        (f"{_DEAD_LETTER}.error.message", clipped(letter.message)),
        (f"{_DEAD_LETTER}.attempts", b"%d" % letter.attempts),
        *_partition_headers(_DEAD_LETTER, raw.partition),
        (f"{_DEAD_LETTER}.source.offset", b"%d" % raw.offset),
        (f"{_DEAD_LETTER}.version", version.encode()),
        (f"{_DEAD_LETTER}.time", _timestamp(time_s).encode()),
        *omitted,
    ]


def omitted_header(part: Literal["value", "headers", "key"], size_bytes: int) -> tuple[str, bytes]:
    """Say which part of a dead letter did not fit, and how large it was."""
    return (f"{_DEAD_LETTER}.{part}.omitted_bytes", b"%d" % size_bytes)


def clipped(text: str, max_bytes: int = MAX_REASON_BYTES) -> bytes:
    """At most `max_bytes` of UTF-8, cut between characters; what UTF-8 cannot say (lone surrogates) becomes "?"."""
    return text.encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore").encode()


def _record_id(partition: Partition, offset: bytes) -> str:
    # What the standard library's uuid5 gives, five times as fast: version 5 and variant 10 in the place of six bits.
    name = _partition_name(partition).copy()
    name.update(offset)
    sha = name.hexdigest()
    return f"{sha[:8]}-{sha[8:12]}-5{sha[13:16]}-{_VARIANT_10[sha[16]]}{sha[17:20]}-{sha[20:32]}"


@lru_cache(maxsize=1024)
def _partition_name(partition: Partition) -> _Hash:
    """The beginning that the names of all records of a partition share, hashed as far as that goes."""
    return sha1(RECORD_NAMESPACE.bytes + f"{partition.topic}/{partition.number}/".encode(), usedforsecurity=False)


@lru_cache(maxsize=1024)
def _partition_headers(prefix: str, partition: Partition) -> tuple[tuple[str, bytes], tuple[str, bytes]]:
    return (
        (f"{prefix}.source.topic", partition.topic.encode()),
        (f"{prefix}.source.partition", b"%d" % partition.number),
    )


def _timestamp(time_s: float) -> str:
    """ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
