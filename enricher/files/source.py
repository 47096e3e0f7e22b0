"""Input without Kafka: a file of JSON lines as one partition, whose offsets are its line numbers from 0.

Blank lines have a number and no record, so offsets have gaps, as they do in Kafka. What a line means is the codec's.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol

from enricher.errors import FatalError
from enricher.files.lines import End, Line, LineReader
from enricher.records import Partition, RawRecord
from enricher.stats.snapshot import Connection

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

STDIN = Path("-")

_STDIN_FD = 0


class Listener(Protocol):
    """Who is told which partitions there are. A file is never taken away, so one method is enough."""

    def assigned(self, partitions: Sequence[Partition]) -> None:
        """Hear what is read from now on. Does not block."""
        ...


class LineSource:
    """Reads JSON lines from `path`; `-` is standard input; what is packed with gzip is unpacked.

    `note_committed` is where the sink says what it has written; without it, `caught_up` stays False. At most
    `queue_lines` lines and `queue_bytes` bytes wait in memory, and a line more of at most `max_line_bytes` bytes; one
    call of `poll` gives no more than that either, so that whoever counts what is in flight can count it.
    """

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
        """Size of the input, packed if it is packed; None before `open` and for pipes."""
        self.bytes_read = 0
        """How far `poll` has got in the input, in the bytes that `total_bytes` counts."""
        self._path = path
        self._max_line_bytes = max_line_bytes
        self._queue_lines = queue_lines
        self._queue_bytes = queue_bytes
        self._reader: LineReader | None = None
        self._listener: Listener | None = None
        self._position = 0
        self._delivered_end = 0
        self._committed = 0
        self._paused = False
        self._ended = False
        self._never = threading.Event()

    def open(self, listener: Listener) -> None:
        """Open the input and start to read ahead. Raises `FatalError` where it cannot be opened."""
        assert self._reader is None, "a source is opened once"
        try:
            # Standard input gets a buffer of its own: the interpreter locks sys.stdin's at exit, while the reader may
            # still wait in it, and would abort.
            stream = open(_STDIN_FD, "rb", closefd=False) if self._path == STDIN else self._path.open("rb")  # noqa: SIM115  the reader closes it
        except OSError as error:
            raise FatalError(f"cannot open {self._path}: {error.strerror}") from error
        self._listener = listener
        self._reader = LineReader(
            stream,
            str(self._path),
            gzipped=self._path.suffix == ".gz",
            max_line_bytes=self._max_line_bytes,
            queue_lines=self._queue_lines,
            queue_bytes=self._queue_bytes,
        )
        self.total_bytes = self._reader.total_bytes
        self._reader.start()

    def poll(self, limit: int, timeout_s: float) -> Sequence[RawRecord]:
        """At most `limit` records; waits up to `timeout_s` for the first one, paused or at the end for nothing.

        The first call tells the listener about the partition. Raises `FatalError` where the input cannot be read on.
        """
        if self._listener is not None:
            listener, self._listener = self._listener, None
            listener.assigned([self.partition])
        if self._paused or self._ended:
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
        """No more records until `resume`."""
        self._paused = True

    def resume(self) -> None:
        """Give records again."""
        self._paused = False

    def positions(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """Next line to be delivered; blank lines at the end of the input are behind it once the end was seen."""
        return {self.partition: self._position} if self.partition in partitions else {}

    def note_committed(self, committable: Mapping[Partition, int]) -> None:
        """Hear from the sink that everything before these offsets is written."""
        self._committed = committable.get(self.partition, self._committed)

    def start_of(self, _partition: Partition) -> None:
        """Nothing is kept beside a line's number, so nobody counts how often a run ended there."""

    def rewind(self) -> NoReturn:
        """There is nothing to go back from: `LineSink` writes or ends the run."""
        raise AssertionError("a file knows no transaction trouble, so nobody rewinds it")

    def caught_up(self) -> bool:
        """Tell whether the end of the input was seen and every line before it is written."""
        return self._ended and self._committed >= self._delivered_end

    def connection(self) -> Connection:
        """A file has no broker that could go away."""
        return Connection()

    def close(self) -> None:
        """Stop reading ahead. Does not wait for a reader that waits for a pipe."""
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
