"""Output without Kafka: enriched records as JSON lines on one stream, dead letters as JSON lines on another.

Lines come in input order, because releases do. The streams belong to whoever opened them and are not closed here.
"""

from __future__ import annotations

import os
from base64 import b64encode
from contextlib import suppress
from io import UnsupportedOperation
from typing import TYPE_CHECKING, BinaryIO, NoReturn

import orjson

from enricher.codec import clipped, encode_record
from enricher.errors import FatalError, OutputClosed
from enricher.records import DeadLetter, EnrichedRecord, ModelCard, Partition, Release, Ticket

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class LineSink:
    """Writes enriched records to `records` and dead letters to `dead_letters`, as bytes, a line each.

    After each publish both are flushed and `committed` hears how far they got (`LineSource.note_committed`).
    `keep_lines`: a dead letter holds its line, too. Not for a stream that is also a log, which holds no text of articles.
    """

    def __init__(
        self,
        records: BinaryIO,
        dead_letters: BinaryIO,
        *,
        card: ModelCard,
        committed: Callable[[Mapping[Partition, int]], None],
        keep_lines: bool = False,
    ) -> None:
        self._records = records
        self._dead_letters = dead_letters
        self._card = card
        self._committed = committed
        self._keep_lines = keep_lines

    def open(self) -> None:
        """Nothing to do: the streams are open."""

    def publish(self, release: Release) -> Mapping[Ticket, DeadLetter]:
        """Write the lines of `release`; may block on a slow reader.

        A file has no transactions: a crash in here can leave some of the lines, the last one cut. Raises `OutputClosed`
        where a reader has gone, and another `FatalError` where a line cannot be written.
        """
        lines = [self._line(ticket) for ticket in release.tickets if isinstance(ticket.outcome, EnrichedRecord)]
        reasons = [self._letter(ticket) for ticket in release.tickets if isinstance(ticket.outcome, DeadLetter)]
        assert len(lines) + len(reasons) == len(release.tickets), "a line is never a tombstone, nor unfinished"
        _write(self._records, b"".join(lines))
        _write(self._dead_letters, b"".join(reasons))
        self._committed(release.committable)
        return {}

    def serve(self) -> None:
        """Nothing to do: a stream keeps no events."""

    def recover(self) -> NoReturn:
        """There is nothing to recover from: `publish` writes or ends the run."""
        raise AssertionError("a file knows no transaction trouble, so nobody recovers it")

    def close(self) -> None:
        """Nothing to do: every publish is flushed, and the streams are not ours."""

    def _line(self, ticket: Ticket) -> bytes:
        assert isinstance(ticket.outcome, EnrichedRecord)
        return encode_record(ticket.outcome, self._card) + b"\n"

    def _letter(self, ticket: Ticket) -> bytes:
        letter = ticket.outcome
        assert isinstance(letter, DeadLetter)
        found = {
            "offset": ticket.raw.offset,
            "stage": letter.stage,
            "error_type": letter.error_type,
            "message": clipped(letter.message).decode(),
            **(_line_of(ticket.raw.value or b"") if self._keep_lines else {}),
        }
        return orjson.dumps(found, option=orjson.OPT_APPEND_NEWLINE)


def _line_of(value: bytes) -> dict[str, str]:
    """The line itself: as text, or in base64 where it is not UTF-8."""
    try:
        return {"line": value.decode()}
    except UnicodeDecodeError:
        return {"line_base64": b64encode(value).decode()}


def _write(stream: BinaryIO, lines: bytes) -> None:
    if not lines:
        return
    try:
        stream.write(lines)
        stream.flush()
    except BrokenPipeError as error:
        abandon(stream)
        raise OutputClosed("the reader of the output has gone") from error
    except OSError as error:
        abandon(stream)
        raise FatalError(f"cannot write the output: {error.strerror}") from error


def abandon(stream: BinaryIO) -> None:
    """Send what the stream still buffers to nowhere, or closing it would fail again at exit.

    As Python's signal module documentation advises ("Note on SIGPIPE").
    """
    with suppress(UnsupportedOperation), open(os.devnull, "wb") as nowhere:  # noqa: PTH123  a device, not a path of ours
        os.dup2(nowhere.fileno(), stream.fileno())
