"""Sources whose input ends: their base class, and a file of JSON lines, with or without gzip, as one partition.

`read_lines` reads in the caller's thread, `LineReader` ahead of its caller. Offsets are line numbers; blank lines have a
number but no record, so offsets have gaps, as in Kafka. Never holds a whole file in memory. Parquet is recognised here
(`is_parquet`), but not read.
"""

from __future__ import annotations

import codecs
import importlib.util
import threading
import zlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from gzip import GzipFile
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, NoReturn, cast

import orjson

from enricher.distribution import install_command
from enricher.errors import FatalError, SettingsError
from enricher.worker.loop.ports import PartitionListener
from enricher.worker.records import Partition, RawRecord
from enricher.worker.stats import Connection

PARQUET_MAGIC = b"PAR1"
PARQUET_SUFFIX = ".parquet"
_GZIP_MAGIC = b"\x1f\x8b"  # RFC 1952; JSON never begins with it

STDIN = Path("-")
_STDIN_FD = 0

_FIRST_LINE_BYTES = 65_536


class FiniteSource(ABC):
    """Delivers one partition once, from its beginning to its end. Offsets are numbers from 0. Subclasses read the records.

    The sink reports to `note_committed` what it has written; `caught_up` is False until then.
    """

    waits_for_commit = False

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self._listener: PartitionListener | None = None
        self._position = 0
        """The next offset to deliver."""
        self._delivered_end = 0
        """The offset after the last record that was delivered."""
        self._ended = False
        self._committed = 0
        self._paused = self._held = False
        self._never_set = threading.Event()

    def open(self, listener: PartitionListener) -> None:
        """Deliver to this listener's worker. Raises FatalError if the input cannot be opened."""
        self._listener = listener

    def poll(self, limit: int, timeout_s: float) -> Sequence[RawRecord]:
        """Return at most `limit` records. Blocks up to `timeout_s` for the first one, also while paused or at the end.

        The first call assigns the partition to the listener. Raises FatalError if the input cannot be read further.
        """
        if self._listener is not None:
            listener, self._listener = self._listener, None
            listener.assigned([self.partition])
        if self._paused or self._held or self._ended:
            self._never_set.wait(timeout_s)
            return ()
        return self._next_records(limit, timeout_s)

    @abstractmethod
    def _next_records(self, limit: int, timeout_s: float) -> Sequence[RawRecord]:
        """The next records, at most `limit`; moves `_position` and `_delivered_end`, and sets `_ended` at the end."""

    def pause(self) -> None:
        """Return no records until `resume`."""
        self._paused = True

    def resume(self) -> None:
        """Return records again."""
        self._paused = False

    def hold(self, partitions: Collection[Partition]) -> None:
        """Return no records while the only partition is among `partitions`."""
        self._held = self.partition in partitions

    def positions(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """The next offset to deliver. At the end of the input it is also after offsets without a record."""
        return {self.partition: self._position} if self.partition in partitions else {}

    def note_committed(self, committable: Mapping[Partition, int]) -> None:
        """Note that the sink has written everything before these offsets."""
        self._committed = committable.get(self.partition, self._committed)

    def start_of(self, _partition: Partition) -> None:  # noqa: B027  the same for every such input
        """Return None: the input keeps no marks, so attempts are not counted."""

    def rewind(self) -> NoReturn:
        """Never called: the sink writes or ends the run."""
        raise AssertionError("without transactions there is nothing to recover from, so the source is never rewound")

    def caught_up(self) -> bool:
        """Whether the end of the input was reached and every record before it is written."""
        return self._ended and self._committed >= self._delivered_end

    def connection(self) -> Connection:
        """The connection of a source without a broker."""
        return Connection()

    def close(self) -> None:  # noqa: B027  an input in memory has nothing to close
        """Stop reading. Does not block."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line that is not blank: its input, its number from 0, its bytes without the line end."""

    source: str
    number: int
    value: bytes


@dataclass(frozen=True, slots=True)
class End:
    """The end of the input, after `lines` lines, blank ones included."""

    lines: int


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
        self.first_line = b""
        """The beginning of the first line that is not blank, once it was read: `other_format` may know it."""
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
        if isinstance(item, End):
            self._ended, self._position = True, item.lines
            return None
        self._position = self._delivered_end = item.number + 1
        self.first_line = self.first_line or item.value[:_FIRST_LINE_BYTES]
        return RawRecord(self.partition, item.number, key=None, value=item.value)


def read_lines(stream: BinaryIO, source: str, *, max_line_bytes: int, gzipped: bool = False) -> Iterator[Line | End]:
    """Yield every line of `stream` that is not blank, then the end. `source` names the input in messages.

    Gzip is unpacked if the input begins like gzip; with `gzipped` it must. Raises FatalError if the input cannot be read, or
    for a line longer than `max_line_bytes`: such an input is probably not JSON lines, and the line would fill the memory.
    """
    try:
        if _begins_with(stream, PARQUET_MAGIC):
            raise FatalError(f"{source} is Parquet, which cannot be read from a pipe: name the file")
        yield from _lines(stream, source, max_line_bytes, packed=gzipped or _begins_with(stream, _GZIP_MAGIC))
    except (OSError, EOFError, zlib.error) as error:
        raise FatalError(f"cannot read {source}: {error}") from error


def other_format(first_line: bytes) -> str:
    """Names the format of an input by its first line, and how to make JSON lines of it; empty if the line does not tell."""
    line = first_line.removeprefix(codecs.BOM_UTF8).strip()
    if line.startswith(b"["):
        return "it is one JSON array: `jq -c '.[]'` makes a line of each article"
    if line.startswith(b"{"):
        try:
            document = orjson.loads(line)
        except orjson.JSONDecodeError:
            one_line = len(first_line) == _FIRST_LINE_BYTES or line.endswith(b"}")
            return "" if one_line else "its JSON goes over several lines: `jq -c .` makes a line of each article"
        is_event = "specversion" in document and "data" in document
        return "these are CloudEvents: `jq -c .data` makes a line of each article" if is_event else ""
    if any(separator in line for separator in (b",", b";", b"\t")):
        return (
            "it looks like CSV: `python3 -c 'import csv, json, sys; [print(json.dumps(row)) for row in "
            "csv.DictReader(sys.stdin)]'` makes a line of each row"
        )
    return ""


def is_parquet(path: Path) -> bool:
    """Whether `path` is a Parquet file, by its first bytes. False for pipes and files that cannot be read."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as stream:
            return stream.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
    except OSError:
        return False


def require_parquet(path: Path) -> None:
    """Raise SettingsError if pyarrow is missing. `path` is the file that needs it."""
    if importlib.util.find_spec("pyarrow") is None:
        raise SettingsError(f"{path} is Parquet, which needs pyarrow: {install_command('parquet')}")


def _lines(stream: BinaryIO, source: str, max_line_bytes: int, *, packed: bool) -> Iterator[Line | End]:
    lines = cast("BinaryIO", GzipFile(fileobj=stream)) if packed else stream
    number = 0
    while line := lines.readline(max_line_bytes + 1):
        if len(line) > max_line_bytes:
            message = f"line {number + 1} of {source} is longer than {max_line_bytes} bytes: are these JSON lines?"
            raise FatalError(message)
        if not line.isspace():
            yield Line(source, number, line.rstrip(b"\r\n"))
        number += 1
    yield End(number)


def _begins_with(stream: BinaryIO, magic: bytes) -> bool:
    if peek := getattr(stream, "peek", None):
        return bytes(peek(len(magic))).startswith(magic)
    head = stream.read(len(magic))
    stream.seek(0)
    return head.startswith(magic)


class LineReader:
    """Reads `lines` of `stream` ahead in a thread, which also closes it: any other thread would wait for a blocked read.

    At most `queue_lines` lines and `queue_bytes` bytes wait to be taken, or one longer line; one more may wait after them.
    """

    def __init__(
        self, stream: BufferedReader, lines: Iterator[Line | End], *, queue_lines: int, queue_bytes: int
    ) -> None:
        self._stream = stream
        self._lines = lines
        self._max_lines = queue_lines
        self._max_bytes = queue_bytes
        self._items: deque[Line | End | FatalError] = deque()
        self._bytes = 0
        self._stopped = False
        self._changed = threading.Condition()
        # A daemon thread, because a read from a pipe cannot be cancelled.
        self._thread = threading.Thread(target=self._run, name="line-reader", daemon=True)
        self._thread.start()

    def get(self, timeout_s: float) -> Line | End | None:
        """The next line, or once the end; None if neither comes in time. Raises FatalError like `read_lines`."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._items, timeout_s):
                return None
            item = self._items.popleft()
            self._bytes -= _size(item)
            self._changed.notify_all()
        if isinstance(item, FatalError):
            raise item
        return item

    def stop(self) -> None:
        """Drop all lines, and let the thread end after the line that it reads. Does not block."""
        with self._changed:
            self._stopped = True
            self._items.clear()
            self._bytes = 0
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            with self._stream:
                for item in self._lines:
                    if not self._put(item):
                        return
        except FatalError as error:
            self._put(error)

    def _put(self, item: Line | End | FatalError) -> bool:
        """Wait for capacity, then append. False once the reader is stopped."""
        size = _size(item)
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._stopped
                    or not self._items
                    or (len(self._items) < self._max_lines and self._bytes + size <= self._max_bytes)
                )
            )
            if not self._stopped:
                self._items.append(item)
                self._bytes += size
                self._changed.notify_all()
            return not self._stopped


def _size(item: Line | End | FatalError) -> int:
    return len(item.value) if isinstance(item, Line) else 0
