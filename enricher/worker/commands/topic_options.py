"""Options about an input topic: its name, and the two ends of a range, as people write them and as offsets."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Literal

import orjson
import typer

from enricher.errors import SettingsError
from enricher.worker.kafka.partition_reader import Ranges
from enricher.worker.settings import Settings

TIME_FORMS: Final = "a time such as 2026-11-24 or 2026-11-24T06:00Z"
FORMS: Final = f"'beginning', 'end', {TIME_FORMS}, or a JSON file of offsets"
InputOption = Annotated[
    str | None, typer.Option("--input", metavar="TOPIC", help="Which input topic, if the settings name several.")
]
Offsets = Mapping[int, int]
"""Offsets by partition number."""
AtTime = Callable[[Sequence[int], float], Mapping[int, int | None]]
"""Finds the offset of the first record with this time (seconds since the epoch) or a later one, or None, by partition."""
_MAX_DIGITS = 10
"""The digits of the largest partition number. Python does not parse a number with thousands of digits."""


def with_one_input(settings: Settings, topic: str | None) -> Settings:
    """The settings with this input topic alone; None: with the only one. Raises SettingsError if it is not one of them."""
    inputs = settings.kafka.inputs
    if topic is None and len(inputs) > 1:
        raise SettingsError(f"kafka.input_topics names several topics: choose one with --input, of {', '.join(inputs)}")
    chosen = topic or inputs[0]
    if chosen not in inputs:
        raise SettingsError(f"--input {chosen} is no input topic of the settings: {', '.join(inputs)}")
    kafka = settings.kafka.model_copy(update={"input_topic": chosen, "input_topics": ()})
    return settings.model_copy(update={"kafka": kafka})


def time_option(option: str, text: str | None) -> datetime | None:
    """The value of an option; None if it is not given. Raises SettingsError."""
    if text is None:
        return None
    time = parse_time(text)
    if time is None:
        raise SettingsError(f"{option} {text}: not {TIME_FORMS}")
    return time


def parse_time(text: str) -> datetime | None:
    """The time in UTC; None if the text is not a time."""
    try:
        time = datetime.fromisoformat(text)
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a range."""

    option: Literal["--from", "--to"]
    name: str
    """One word without spaces. Two ranges are the same if their bounds have the same names."""
    where: Literal["beginning", "end"] | datetime | Offsets
    """Offsets come from a file; partitions that it does not name are not in the range."""

    @classmethod
    def parse(cls, option: Literal["--from", "--to"], text: str) -> Bound:
        """Read an option. Times without a zone are UTC. Raises SettingsError."""
        if text in {"beginning", "end"}:
            return cls(option, text, "beginning" if text == "beginning" else "end")
        if time := parse_time(text):
            return cls(option, time.isoformat(), time)
        try:
            content = (path := Path(text)).read_bytes()
        except (OSError, ValueError):
            raise SettingsError(f"{option} {text}: neither a time nor a file to read; it takes {FORMS}") from None
        return cls(option, f"file:{hashlib.sha256(content).hexdigest()[:16]}", _parse_offsets(option, path, content))

    def resolve(self, topic: str, firsts: Offsets, ends: Offsets, at_time: AtTime) -> Offsets:
        """The offset of each partition; partitions that a file does not name are missing.

        Raises SettingsError for offsets in a file that the topic does not have, and the errors of `at_time`.
        """
        match self.where:
            case "beginning":
                return firsts
            case "end":
                return ends
            case datetime():
                found = at_time([*ends], self.where.timestamp())
                # Records that came after the ends were read are not in the range.
                return {number: ends[number] if at is None else min(at, ends[number]) for number, at in found.items()}
        _require_in_topic(self.option, topic, self.where, firsts, ends)
        return self.where


def range_name(start: Bound, end: Bound) -> str:
    """The name of a range: the same for the same options."""
    return f"{start.name}..{end.name}"


def require_forward(start: Bound | None, end: Bound | None, now: datetime) -> None:
    """Raise SettingsError for times that are in the future or in the wrong order."""
    for bound in (start, end):
        if bound and isinstance(bound.where, datetime) and bound.where > now:
            raise SettingsError(f"{bound.option} {bound.name} is in the future; 'end' is where the topic ends now")
    times = [bound.where if bound and isinstance(bound.where, datetime) else None for bound in (start, end)]
    if start and end and times[0] and times[1] and times[0] >= times[1]:
        raise SettingsError(f"--from {start.name} is not before --to {end.name}")


def ranges_between(topic: str, start: Bound, end: Bound, firsts: Offsets, ends: Offsets, at_time: AtTime) -> Ranges:
    """The offsets of each partition that both bounds have.

    Raises SettingsError for a range that is empty, reversed, or no longer or not yet in the topic.
    """
    lows, highs = (bound.resolve(topic, firsts, ends, at_time) for bound in (start, end))
    ranges = {number: _range(number, lows[number], highs[number]) for number in ends if number in lows.keys() & highs}
    if all(low == high for low, high in ranges.values()):
        raise SettingsError(f"the range {range_name(start, end)} of '{topic}' is empty: no record lies in it")
    return ranges


def _range(number: int, low: int, high: int) -> tuple[int, int]:
    if low > high:
        raise SettingsError(f"the range of partition {number} is reversed: from offset {low} to {high}")
    return low, high


def _require_in_topic(option: str, topic: str, offsets: Offsets, firsts: Offsets, ends: Offsets) -> None:
    for number, offset in sorted(offsets.items()):
        if number not in ends:
            raise SettingsError(f"{option}: '{topic}' has no partition {number}, only 0 to {len(ends) - 1}")
        first, end = firsts[number], ends[number]
        if not first <= offset <= end:
            gone = "the records before that were deleted" if offset < first else "nothing has been written there yet"
            limit = first if offset < first else end
            raise SettingsError(
                f"{option}: offset {offset} of partition {number} is not in '{topic}', use {limit}: {gone}"
            )


def _parse_offsets(option: str, path: Path, content: bytes) -> Offsets:
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        found = None
    if isinstance(found, dict) and all(_is_partition_and_offset(key, value) for key, value in found.items()):
        return {int(key): value for key, value in found.items()}
    raise SettingsError(f'{option} {path}: not a JSON object of offsets by partition, such as {{"0": 1200, "1": 980}}')


def _is_partition_and_offset(number: str, offset: object) -> bool:
    is_offset = isinstance(offset, int) and not isinstance(offset, bool) and offset >= 0
    return is_offset and number.isdecimal() and len(number) <= _MAX_DIGITS
