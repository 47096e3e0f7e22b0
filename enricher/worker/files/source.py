"""Input without Kafka: a file of JSON lines as one partition, whose offsets are its line numbers from 0.

Blank lines have a number but no record, so offsets have gaps, as in Kafka. The codec decodes the lines.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from enricher.errors import FatalError
from enricher.worker.files.lines import End, Line, LineReader, read_lines
from enricher.worker.loop.ports import PartitionListener
from enricher.worker.records import Partition, RawRecord
from enricher.worker.stats.snapshot import Connection

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

STDIN = Path("-")

_STDIN_FD = 0


class LineSource:
    """Reads JSON lines from `path`, packed with gzip or not; `-` is standard input.

    The sink reports what it has written to `note_committed`; until then `caught_up` is False. At most `queue_lines` lines
    and `queue_bytes` bytes wait in memory, plus one line of at most `max_line_bytes`. One `poll` returns no more than
    that either, so that the worker's own bound can count it.
    """

    waits_for_commit = False

    def __init__(
        self,
        path: Path,
        *,
        max_line_bytes: int = 128 * 2**20,
        queue_lines: int = 256,
        queue_bytes: int = 32 * 2**20,
    ) -> None:
        self.partition = Partition(str(path), 0)
        self.total_bytes: int | None = None
        """Size of the input as stored; None before `open` and for pipes."""
        self.bytes_read = 0
        """Progress of `poll`, in the bytes that `total_bytes` counts."""
        self._path = path
        self._max_line_bytes = max_line_bytes
        self._queue_lines = queue_lines
        self._queue_bytes = queue_bytes
        self._reader: LineReader | None = None
        self._listener: PartitionListener | None = None
        self._position = 0
        self._delivered_end = 0
        self._committed = 0
        self._paused = self._held = False
        self._ended = False
        self._never = threading.Event()

    def open(self, listener: PartitionListener) -> None:
        """Open the input and start reading ahead. Raises FatalError if it cannot be opened."""
        assert self._reader is None, "a source is opened once"
        try:
            # Not sys.stdin: the interpreter locks its buffer at exit, while the reader may still wait in it, and aborts.
            stream = open(_STDIN_FD, "rb", closefd=False) if self._path == STDIN else self._path.open("rb")  # noqa: SIM115  the reader closes it
        except OSError as error:
            raise FatalError(f"cannot open {self._path}: {error.strerror}") from error
        self._listener = listener
        lines = read_lines(
            stream, str(self._path), max_line_bytes=self._max_line_bytes, gzipped=self._path.suffix == ".gz"
        )
        self._reader = LineReader(stream, lines, queue_lines=self._queue_lines, queue_bytes=self._queue_bytes)
        self.total_bytes = self._reader.total_bytes

    def poll(self, limit: int, timeout_s: float) -> Sequence[RawRecord]:
        """Return at most `limit` records; block up to `timeout_s` for the first one, also while paused or at the end.

        The first call assigns the partition to the listener. Raises FatalError if the input cannot be read further.
        """
        if self._listener is not None:
            listener, self._listener = self._listener, None
            listener.assigned([self.partition])
        if self._paused or self._held or self._ended:
            self._never.wait(timeout_s)
            return ()
        records: list[RawRecord] = []
        size = 0
        while len(records) < limit and size < self._queue_bytes:
            if not (record := self._next(0.0 if records else timeout_s)):
                break
            records.append(record)
            size += len(record.value or b"")
        return records

    def pause(self) -> None:
        """Return no records until `resume`."""
        self._paused = True

    def resume(self) -> None:
        """Return records again."""
        self._paused = False

    def hold(self, partitions: Collection[Partition]) -> None:
        """Return no records while the only partition is among these."""
        self._held = self.partition in partitions

    def positions(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """The next line to deliver; once the end was seen, it is behind the blank lines there."""
        return {self.partition: self._position} if self.partition in partitions else {}

    def note_committed(self, committable: Mapping[Partition, int]) -> None:
        """Note that the sink has written everything before these offsets."""
        self._committed = committable.get(self.partition, self._committed)

    def start_of(self, _partition: Partition) -> None:
        """Return None: a file keeps no marks, so attempts are not counted."""

    def rewind(self) -> NoReturn:
        """Never called: `LineSink` writes or ends the run."""
        raise AssertionError("a file has no transactions to recover from, so it is never rewound")

    def caught_up(self) -> bool:
        """True once the end of the input was seen and every line before it is written."""
        return self._ended and self._committed >= self._delivered_end

    def connection(self) -> Connection:
        """The connection of a source without a broker."""
        return Connection()

    def close(self) -> None:
        """Stop reading ahead. Does not wait for a read that blocks on a pipe."""
        if self._reader is not None:
            self._reader.stop()

    def _next(self, timeout_s: float) -> RawRecord | None:
        assert self._reader is not None, "open comes first"
        item = self._reader.get(timeout_s)
        if item is None:
            return None
        self.bytes_read = item.end_bytes
        if isinstance(item, End):
            self._ended, self._position = True, item.lines
            return None
        return self._record(item)

    def _record(self, line: Line) -> RawRecord:
        self._position = self._delivered_end = line.number + 1
        return RawRecord(self.partition, line.number, key=None, value=line.value)
