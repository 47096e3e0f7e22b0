"""Input without Kafka: a file of JSON lines as one partition, whose offsets are its line numbers from 0.

Blank lines have a number but no record, so offsets have gaps, as in Kafka.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from enricher.errors import FatalError
from enricher.worker.files.finite import FiniteSource
from enricher.worker.files.json_lines import End, Line, LineReader, read_lines
from enricher.worker.records import Partition, RawRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from io import BufferedReader

    from enricher.worker.loop.ports import PartitionListener

STDIN = Path("-")

_STDIN_FD = 0


class LineSource(FiniteSource):
    """Reads JSON lines from `path`, with or without gzip; `-` is standard input.

    At most `queue_lines` lines and `queue_bytes` bytes wait in memory, plus one line of at most `max_line_bytes`. One `poll`
    returns no more than that, so that the worker can count it against its own bound.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_line_bytes: int = 128 * 2**20,
        queue_lines: int = 256,
        queue_bytes: int = 32 * 2**20,
    ) -> None:
        super().__init__(Partition(str(path), 0))
        self.total_bytes: int | None = None
        """The size of the input as stored; None before `open`, and for pipes."""
        self.bytes_read = 0
        """How far `poll` has read, in the same bytes as `total_bytes`."""
        self._path = path
        self._max_line_bytes = max_line_bytes
        self._queue_lines = queue_lines
        self._queue_bytes = queue_bytes
        self._reader: LineReader | None = None

    def open(self, listener: PartitionListener) -> None:
        """Open the input and start reading ahead. Raises FatalError if it cannot be opened."""
        assert self._reader is None, "a source is opened once"
        try:
            # Not sys.stdin: at exit the interpreter locks its buffer, in which the reader may still wait, and aborts.
            stream = open(_STDIN_FD, "rb", closefd=False) if self._path == STDIN else self._path.open("rb")  # noqa: SIM115  the reader closes it
        except OSError as error:
            raise FatalError(f"cannot open {self._path}: {error.strerror}") from error
        super().open(listener)
        self._reader = LineReader(
            stream, self._lines(stream), queue_lines=self._queue_lines, queue_bytes=self._queue_bytes
        )
        self.total_bytes = self._reader.total_bytes

    def _lines(self, stream: BufferedReader) -> Iterator[Line | End]:
        """The lines of the input, then its end. Runs in the reader's thread; may raise nothing but FatalError."""
        return read_lines(
            stream, str(self._path), max_line_bytes=self._max_line_bytes, gzipped=self._path.suffix == ".gz"
        )

    def _next_records(self, limit: int, timeout_s: float) -> Sequence[RawRecord]:
        records: list[RawRecord] = []
        size = 0
        while len(records) < limit and size < self._queue_bytes:
            if not (record := self._next(0.0 if records else timeout_s)):
                break
            records.append(record)
            size += len(record.value or b"")
        return records

    def close(self) -> None:
        """Stop reading ahead. Does not wait for a read that blocks on a pipe."""
        if self._reader is not None:
            self._reader.stop()

    def _next(self, timeout_s: float) -> RawRecord | None:
        """The next record; None if none arrives in time, and at the end of the input."""
        assert self._reader is not None, "open comes first"
        item = self._reader.get(timeout_s)
        if item is None:
            return None
        self.bytes_read = item.end_bytes
        if isinstance(item, End):
            self._ended, self._position = True, item.lines
            return None
        self._position = self._delivered_end = item.number + 1
        return RawRecord(self.partition, item.number, key=None, value=item.value)
