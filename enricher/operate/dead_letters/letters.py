"""Reads a dead letter: its reason, where its input came from, and the input's own headers. Pure.

The headers are a contract (`schemas/README.md`), and anybody who may write to the topic can write something else. So all of
them are checked, and a record that breaks the contract is not a dead letter of ours.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from confluent_kafka import Message

from enricher.errors import SettingsError
from enricher.operate.verify.headers import Source, source_of_dead_letter, split_headers
from enricher.worker.records import Headers

REDRIVE_COUNT = "enricher.redrive.count"
"""The header of a redriven record: how often this input was redriven. A worker that dead-letters it again keeps the header,
like all of the input's, with `input.` before its name."""

REDRIVEN_LETTER = "enricher.redrive.letter"
"""The header of a redriven record that names its dead letter: a later run does not send that again."""

_STAGE, _TYPE, _TIME = (f"enricher.dlq.{name}" for name in ("stage", "error.type", "time"))
_HEADERS_OMITTED = "enricher.dlq.headers.omitted_bytes"
_ESCAPE = "input."
_ESCAPED = re.compile(r"(?:input\.)+enricher\.")
_COUNT = re.compile(rb"[0-9]{1,9}")
_MAX_TYPE_CHARS = 100
_MAX_OFFSET = 2**63 - 1
_END_OF_TIME_S = 253_402_300_800.0  # the year 10000, of which Python knows no date


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter without key and value. `number` and `offset`: its place in the dead-letter topic.

    `source`: the place of its input. `is_complete`: it holds the input's key, value and headers, and nothing was omitted.
    `redrives`: how often its input was redriven already.
    """

    number: int
    offset: int
    stage: str
    error_type: str
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
    return Letter(
        number=message.partition() or 0,
        offset=message.offset() or 0,
        stage=_text(headers[_STAGE]),
        error_type=_text(headers[_TYPE])[:_MAX_TYPE_CHARS],
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

    stages: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    since_s: float = -math.inf
    until_s: float = math.inf

    @classmethod
    def of(
        cls, stages: Iterable[str], types: Iterable[str], since: datetime | None, until: datetime | None
    ) -> Selection:
        """The selection of a command's options; times have a zone. Raises SettingsError for times in the wrong order."""
        if since and until and since >= until:
            raise SettingsError(f"--since {since} is not before --until {until}")
        return cls(
            frozenset(stages),
            frozenset(types),
            since.timestamp() if since else -math.inf,
            until.timestamp() if until else math.inf,
        )

    def has(self, letter: Letter) -> bool:
        """Whether the letter is selected."""
        return (
            (not self.stages or letter.stage in self.stages)
            and (not self.types or letter.error_type in self.types)
            and self.since_s <= letter.time_s < self.until_s
        )


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "backslashreplace")
