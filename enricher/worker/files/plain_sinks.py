"""Sinks without transactions: their base class, and JSON lines with the records on one stream, the dead letters on another.

The caller opens the streams and closes them; `whole_file` opens one that gets its name only when it is complete.
"""

from __future__ import annotations

import logging
import os
import shutil
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import UnsupportedOperation
from pathlib import Path
from typing import BinaryIO, Generic, NoReturn, TypeVar

import orjson

from enricher.errors import FatalError, InvalidArticle, OutputClosed
from enricher.worker.articles import as_line, clip, encode_record, letter_for
from enricher.worker.records import DeadLetter, EnrichedRecord, Partition, Release, Skipped, Ticket, Tombstone

Written = TypeVar("Written")
"""The type of an encoded record."""

_WITHOUT_RECORD = {
    Tombstone: DeadLetter("decode", "Deleted", "the document deletes an article (articles.deleted): it has no record"),
    Skipped: DeadLetter("transform", "Skipped", "articles.transform returned None: the article has no record"),
}
"""Answers to delete events and skips: outside of Kafka each input has one, and a record without a value has no form."""


class PlainSink(ABC, Generic[Written]):
    """Writes outcomes in the order of the input, and reports the committable offsets to `committed`.

    A record that cannot be written becomes a dead letter. A delete event or a skip is written like one, and counts as none.
    """

    def __init__(self, committed: Callable[[Mapping[Partition, int]], None]) -> None:
        self._committed = committed

    def open(self) -> None:
        """Do nothing."""

    def publish(self, release: Release) -> Mapping[Ticket, DeadLetter]:
        """Write the outcomes of `release`. Returns the dead letters that were written instead of records."""
        outputs = [(ticket, self._output_of(ticket)) for ticket in release.tickets]
        self._write(outputs)
        self._committed(release.committable)
        return {
            ticket: output
            for ticket, output in outputs
            if isinstance(output, DeadLetter) and isinstance(ticket.outcome, EnrichedRecord)
        }

    def serve(self) -> None:
        """Do nothing: there are no events."""

    def recover(self) -> NoReturn:
        """Never called: `publish` writes or ends the run."""
        raise AssertionError("without transactions there is nothing to recover from")

    def close(self) -> None:
        """Do nothing: `publish` leaves nothing unwritten."""

    @abstractmethod
    def _encode(self, record: EnrichedRecord) -> Written:
        """Encode a record. Raises InvalidArticle if that is impossible."""

    @abstractmethod
    def _write(self, outputs: Sequence[tuple[Ticket, Written | DeadLetter]]) -> None:
        """Write outputs in order. May block. Raises FatalError if that fails."""

    def _output_of(self, ticket: Ticket) -> Written | DeadLetter:
        if isinstance(ticket.outcome, DeadLetter):
            return ticket.outcome
        if isinstance(ticket.outcome, Tombstone | Skipped):
            return _WITHOUT_RECORD[type(ticket.outcome)]
        assert isinstance(ticket.outcome, EnrichedRecord), "only finished tickets are written"
        try:
            return self._encode(ticket.outcome)
        except InvalidArticle as error:
            return letter_for(error)


log = logging.getLogger(__name__)


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
            "message": clip(letter.message if self._keep_lines else letter.loggable).decode(),
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


def partial_name(path: Path) -> Path:
    """The name of `path` while it is incomplete, beside the target if `path` is a link, which a rename would replace."""
    whole = path.resolve()
    return whole.with_name(f"{whole.name}.partial")


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A new file that is renamed to `path` when the body ends, and keeps its partial name if the body raises.

    Devices and pipes are written directly. Raises FatalError if the file cannot be written.
    """
    if path.exists() and not path.is_file():
        with _open(path, path) as stream:
            yield stream
        return
    partial = partial_name(path)
    try:
        with _open(partial, path) as stream:
            yield stream
    except BaseException:
        _log_partial(partial, path)
        raise
    try:
        if path.exists():
            shutil.copymode(path, partial)
        partial.replace(path.resolve())
    except OSError as error:
        raise FatalError(f"cannot write {path}: {error.strerror}; the complete output is in {partial}") from error


def _open(path: Path, wanted: Path) -> BinaryIO:
    try:
        return path.open("wb")
    except OSError as error:
        raise FatalError(f"cannot write {wanted}: {error.strerror}") from error


def _log_partial(partial: Path, path: Path) -> None:
    if not partial.is_file():
        return
    if partial.stat().st_size == 0:
        partial.unlink()
        return
    log.warning("%s was not completed: its beginning is in %s", path, partial)
