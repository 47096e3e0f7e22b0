"""Output without Kafka: enriched records as JSON lines on one stream, dead letters as JSON lines on another.

The caller opens the streams and closes them.
"""

from __future__ import annotations

import os
from base64 import b64encode
from contextlib import suppress
from io import UnsupportedOperation
from typing import TYPE_CHECKING, BinaryIO

import orjson

from enricher.errors import FatalError, OutputClosed
from enricher.worker.articles import as_line, clip, encode_record
from enricher.worker.files.finite import PlainSink
from enricher.worker.records import DeadLetter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from enricher.worker.records import EnrichedRecord, Partition, Ticket


class LineSink(PlainSink[bytes]):
    """Writes enriched records to `records` and dead letters to `dead_letters`, one line each, and flushes both.

    A crash can leave some of the lines of a release, the last one incomplete. `keep_lines`: a dead letter contains its input
    line; not for a stream that is also a log, because logs hold no text of articles.
    """

    def __init__(
        self,
        records: BinaryIO,
        dead_letters: BinaryIO,
        *,
        committed: Callable[[Mapping[Partition, int]], None],
        keep_lines: bool = False,
    ) -> None:
        super().__init__(committed)
        self._records = records
        self._dead_letters = dead_letters
        self._keep_lines = keep_lines

    def _encode(self, record: EnrichedRecord) -> bytes:
        return as_line(encode_record(record))

    def _write(self, outputs: Sequence[tuple[Ticket, bytes | DeadLetter]]) -> None:
        """Raises OutputClosed if a reader has gone, another FatalError if a line cannot be written."""
        letters = [(ticket, output) for ticket, output in outputs if isinstance(output, DeadLetter)]
        _write(self._records, b"".join(output for _, output in outputs if isinstance(output, bytes)))
        _write(self._dead_letters, b"".join(self._letter(ticket, letter) for ticket, letter in letters))

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
