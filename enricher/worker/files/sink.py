"""Output without Kafka: enriched records as JSON lines on one stream, dead letters as JSON lines on another.

Lines are in input order, because releases are. The caller opened the streams and closes them.
"""

from __future__ import annotations

import os
from base64 import b64encode
from contextlib import suppress
from io import UnsupportedOperation
from typing import TYPE_CHECKING, BinaryIO, NoReturn

import orjson

from enricher.errors import FatalError, InvalidArticle, OutputClosed
from enricher.worker.articles import as_line, clip, encode_record, letter_for
from enricher.worker.records import DeadLetter, EnrichedRecord, Partition, Release, Ticket

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class LineSink:
    """Writes enriched records to `records` and dead letters to `dead_letters`, one line each.

    `publish` flushes both and passes the committable offsets to `committed` (`LineSource.note_committed`). `keep_lines`:
    a dead letter contains its input line; not for a stream that is also a log, because logs hold no text of articles.
    """

    def __init__(
        self,
        records: BinaryIO,
        dead_letters: BinaryIO,
        *,
        committed: Callable[[Mapping[Partition, int]], None],
        keep_lines: bool = False,
    ) -> None:
        self._records = records
        self._dead_letters = dead_letters
        self._committed = committed
        self._keep_lines = keep_lines

    def open(self) -> None:
        """Do nothing: the streams are open."""

    def publish(self, release: Release) -> Mapping[Ticket, DeadLetter]:
        """Write the lines of `release`. May block on a slow reader. Returns the reasons of records that cannot be written.

        A file has no transactions: a crash here can leave some of the lines, the last one incomplete. Raises OutputClosed
        if the reader has gone, another FatalError if a line cannot be written.
        """
        lines, reasons, substitutes = [], [], {}
        for ticket in release.tickets:
            written = self._line_or_letter(ticket)
            if isinstance(written, bytes):
                lines.append(written)
                continue
            if written is not ticket.outcome:
                substitutes[ticket] = written
            reasons.append(self._letter(ticket, written))
        _write(self._records, b"".join(lines))
        _write(self._dead_letters, b"".join(reasons))
        self._committed(release.committable)
        return substitutes

    def serve(self) -> None:
        """Do nothing: a stream has no events."""

    def recover(self) -> NoReturn:
        """Never called: `publish` writes or ends the run."""
        raise AssertionError("a file has no transactions to recover from")

    def close(self) -> None:
        """Do nothing: every publish flushes, and the caller closes the streams."""

    def _line_or_letter(self, ticket: Ticket) -> bytes | DeadLetter:
        if isinstance(ticket.outcome, DeadLetter):
            return ticket.outcome
        assert isinstance(ticket.outcome, EnrichedRecord), "the outcome of a line is a record or a dead letter"
        try:
            return as_line(encode_record(ticket.outcome))
        except InvalidArticle as error:
            return letter_for(error)

    def _letter(self, ticket: Ticket, letter: DeadLetter) -> bytes:
        found = {
            "offset": ticket.raw.offset,
            "stage": letter.stage,
            "error_type": letter.error_type,
            "message": clip(letter.message).decode(),
            **(_line_of(ticket.raw.value or b"") if self._keep_lines else {}),
        }
        return orjson.dumps(found, option=orjson.OPT_APPEND_NEWLINE)


def _line_of(value: bytes) -> dict[str, str]:
    """The line as text, or in base64 if it is not UTF-8."""
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
    except OSError as error:
        raise output_error(stream, error) from error


def output_error(stream: BinaryIO, error: OSError) -> FatalError:
    """The error to raise where `stream` cannot be written: `OutputClosed` if its reader has gone.

    Discards what the stream still buffers, or closing it would fail again at exit ("Note on SIGPIPE" in the documentation
    of Python's signal module).
    """
    with suppress(UnsupportedOperation), open(os.devnull, "wb") as null:  # noqa: PTH123  a device, not a path of ours
        os.dup2(null.fileno(), stream.fileno())
    if isinstance(error, BrokenPipeError):
        return OutputClosed("the reader of the output has gone")
    return FatalError(f"cannot write the output: {error.strerror}")
