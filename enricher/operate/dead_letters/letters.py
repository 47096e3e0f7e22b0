"""Reads a dead letter: its reason, the place of its input, the input's own headers, and whether the letter is settled.

The headers are a contract (`schemas/README.md`), and anybody who may write to the topic can write something else. So
all of them are checked, and a record that breaks the contract is not one of our dead letters.

A letter is settled once it was redriven, or is superseded by a newer record of its key. Letters below the committed offset
of their partition are settled (`Progress`). The first letter that is left, for example because it was not selected, keeps
the offset where it is, so that a later run finds it. That run recognises the letters behind it that were sent: the record in
the input names its letter (`NewerRecords`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b

from confluent_kafka import Message, TopicPartition

from enricher.errors import SettingsError
from enricher.operate.inspector import Inspector
from enricher.operate.verify.contract import Source, source_of_dead_letter, split_headers
from enricher.worker.kafka.metadata import headers_of
from enricher.worker.kafka.ranges import RangeReader
from enricher.worker.records import Headers, reason_of
from enricher.worker.rules.commit_metadata import CommitMetadata
from enricher.worker.runtime.deadlines import Deadline

REDRIVE_COUNT = "enricher.redrive.count"
"""The header of a redriven record: how often this input was redriven. A worker that dead-letters it again keeps the header,
like all of the input's, with `input.` before its name."""

REDRIVEN_LETTER = "enricher.redrive.letter"
"""The header of a redriven record that names its dead letter: a later run does not send that again."""

_STAGE, _TYPE, _MESSAGE, _TIME = (f"enricher.dlq.{name}" for name in ("stage", "error.type", "error.message", "time"))
_HEADERS_OMITTED = "enricher.dlq.headers.omitted_bytes"
_ESCAPE = "input."
_ESCAPED = re.compile(r"(?:input\.)+enricher\.")
_COUNT = re.compile(rb"[0-9]{1,9}")
_MAX_TYPE_CHARS = 100
_MAX_OFFSET = 2**63 - 1
_END_OF_TIME_S = 253_402_300_800.0  # the year 10000, of which Python knows no date


_AWAY_S = 60.0
"""Once it has begun, a redrive waits so long for a broker that is away, as readers and the sender do."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter without key and value. `number` and `offset`: its place in the dead-letter topic.

    `reason`: its message without values. `source`: the place of its input. `is_complete`: it holds the input's key, value
    and headers, and nothing was omitted. `redrives`: how often its input was redriven already.
    """

    number: int
    offset: int
    stage: str
    error_type: str
    reason: str
    time_s: float
    source: Source
    is_complete: bool
    redrives: int


def letter_of(message: Message) -> Letter | None:
    """The dead letter in a message; None if it is none, or its headers break the contract."""
    before, own = split_headers(message)
    headers = dict(own)
    source = source_of_dead_letter(headers)
    try:
        time = datetime.fromisoformat(_text(headers.get(_TIME)))
        time_s = time.timestamp()
    except (ValueError, OverflowError):
        return None
    is_plausible = time.tzinfo is not None and 0 <= time_s < _END_OF_TIME_S
    if source is None or source.offset > _MAX_OFFSET or not is_plausible:
        return None
    omitted = source.omitted
    missing = omitted.unreadable or omitted.value_bytes is not None or omitted.key_bytes is not None
    stage, error_type = _text(headers[_STAGE]), _text(headers[_TYPE])[:_MAX_TYPE_CHARS]
    return Letter(
        number=message.partition() or 0,
        offset=message.offset() or 0,
        stage=stage,
        error_type=error_type,
        reason=reason_of(stage, error_type, _text(headers[_MESSAGE])),
        time_s=time_s,
        source=source,
        is_complete=not missing and _HEADERS_OMITTED not in headers,
        redrives=redrives_in(restore_names(before)),
    )


def input_headers(message: Message) -> Headers:
    """The headers that the input of a dead letter had."""
    before, _ = split_headers(message)
    return restore_names(before)


def restore_names(headers: Headers) -> Headers:
    """The headers as the input had them: a name that a worker has put `input.` before loses it, once."""
    return tuple((name.removeprefix(_ESCAPE) if _ESCAPED.match(name) else name, value) for name, value in headers)


def redrives_in(headers: Headers) -> int:
    """How often the record with these headers was redriven; 0 if no header says so in digits."""
    counts = [value for name, value in headers if name == REDRIVE_COUNT]
    return int(counts[-1]) if counts and counts[-1] and _COUNT.fullmatch(counts[-1]) else 0


def headers_to_send(headers: Headers, letter_name: bytes) -> list[tuple[str, str | bytes | None]]:
    """The headers of the record that is sent: the input's, with one redrive more, and the letter's name."""
    others = ((name, value) for name, value in headers if name not in {REDRIVE_COUNT, REDRIVEN_LETTER})
    return [*others, (REDRIVE_COUNT, b"%d" % (redrives_in(headers) + 1)), (REDRIVEN_LETTER, letter_name)]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which dead letters to redrive; empty sets select all. Times are when a letter was made: [`since_s`, `until_s`)."""

    types: frozenset[str] = frozenset()
    reasons: frozenset[str] = frozenset()
    since_s: float = -math.inf
    until_s: float = math.inf

    @classmethod
    def of(
        cls,
        types: Iterable[str],
        reasons: Iterable[str],
        since: datetime | None,
        until: datetime | None,
    ) -> Selection:
        """The selection of a command's options; times have a zone. Raises SettingsError for times in the wrong order."""
        if since and until and since >= until:
            raise SettingsError(f"--since {since} is not before --until {until}")
        return cls(
            frozenset(types),
            frozenset(reasons),
            since.timestamp() if since else -math.inf,
            until.timestamp() if until else math.inf,
        )

    def has(self, letter: Letter) -> bool:
        """Whether the letter is selected."""
        return (
            (not self.types or letter.error_type in self.types)
            and (not self.reasons or letter.reason in self.reasons)
            and self.since_s <= letter.time_s < self.until_s
        )


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "backslashreplace")


def committed_starts(committed: Iterable[TopicPartition], topic_id: str) -> dict[int, int]:
    """The offsets that the redrive's group has committed for this very topic, by partition."""
    ours = [tp for tp in committed if tp.offset >= 0 and CommitMetadata.decode(tp.metadata).is_of(topic_id)]
    return {tp.partition: tp.offset for tp in ours}


class Progress:
    """How far a run has come in each partition. `starts`: where it begins there."""

    def __init__(self, starts: Mapping[int, int]) -> None:
        self._next = dict(starts)
        self._first_left: dict[int, int] = {}

    def leave(self, letter: Letter) -> None:
        """Note a letter that stays unsettled."""
        self._first_left[letter.number] = min(letter.offset, self._first_left.get(letter.number, letter.offset))

    def pass_by(self, number: int, offset: int) -> None:
        """Note that every letter before the offset was sent, superseded or left, or is about to be committed."""
        self._next[number] = offset

    def offsets(self, waiting: Iterable[Letter] = ()) -> dict[int, int]:
        """The offset of each partition below which all is settled. `waiting`: letters passed by and sent later."""
        left = dict(self._first_left)
        for letter in waiting:
            left[letter.number] = min(letter.offset, left.get(letter.number, letter.offset))
        return {number: min(at, left.get(number, at)) for number, at in self._next.items()}


_Key = tuple[int, bytes]


class NewerRecords:
    """Knows the newest record of each key that was asked about. Keys are compared in one partition of the input `topic`.

    The input is read once, from the lowest source offset on, and then as it grows. Only letters that were asked about are
    kept: their names, and their keys as digests, each with the offset of its newest record.
    """

    def __init__(self, reader: RangeReader, inspector: Inspector, topic: str) -> None:
        self._reader = reader
        self._inspector = inspector
        self._topic = topic
        self._newest: dict[_Key, int] = {}
        self._sent: dict[bytes, bool] = {}
        """The letters that were asked about, by name, and whether their record is in the input."""
        self._positions: dict[int, int] = {}
        self._lows: Mapping[int, int] = {}

    def ask_about(self, name: bytes, number: int, key: bytes | None, offset: int) -> None:
        """Notice from now on newer records than the one at `offset` of the input, and the record of the letter `name`."""
        if key is not None:
            digest = number, _digest(key)
            self._newest[digest] = max(offset, self._newest.get(digest, offset))
        self._sent[name] = False
        self._positions[number] = min(offset + 1, self._positions.get(number, offset + 1))

    def note(self, number: int, key: bytes | None, offset: int) -> None:
        """Note that the input has, or had, a record of this key at `offset`."""
        if key is not None and self._newest.get(digest := (number, _digest(key)), offset) < offset:
            self._newest[digest] = offset

    def has_newer(self, number: int, key: bytes | None, offset: int) -> bool:
        """Whether a newer record than the one at `offset` is known. `ask_about` it first."""
        return key is not None and self._newest[number, _digest(key)] > offset

    def has_letter(self, name: bytes) -> bool:
        """Whether the record of the letter is known. `ask_about` it first."""
        return self._sent[name]

    def may_have_lost(self, number: int, offset: int) -> bool:
        """Whether retention had deleted records behind the one at `offset` at `read_all`."""
        return offset + 1 < self._lows[number]

    def read_all(self) -> None:
        """Read all partitions to their present end, as far as newer records matter there. Raises BrokerError."""
        if self._positions:
            with self._inspector.within(_AWAY_S):
                ends = self._inspector.ends(self._topic, sorted(self._positions), committed_only=True)
            self.read_to(ends)
        # Asked behind the reading, which retention may have overtaken.
        with self._inspector.within(_AWAY_S):
            self._lows = self._inspector.beginnings(self._topic)

    def read_to(self, ends: Mapping[int, int], deadline: Deadline | None = None) -> bool:
        """Read partitions on to `ends`; False if the deadline came first. Raises BrokerError.

        A batch that the client cannot unpack is passed over: no article will come of it.
        """
        ranges = {number: (self._positions[number], end) for number, end in ends.items()}
        doing = f"looking for newer records in '{self._topic}'"
        for message in self._reader.read(self._topic, ranges, doing, lambda *_: None, deadline=deadline):
            self.note(message.partition() or 0, message.key(), message.offset() or 0)
            for name, value in headers_of(message):
                if name == REDRIVEN_LETTER and value in self._sent:
                    self._sent[value] = True
        self._positions |= {
            number: max(start, end) for number, (start, end) in ranges.items() if number not in self._reader.left
        }
        return not self._reader.left


def _digest(key: bytes) -> bytes:
    """16 bytes for a key of any length: two keys never share one by chance."""
    return blake2b(key, digest_size=16).digest()
