"""A thread that reads lines into a queue, bounded in lines and bytes, so that a slow pipe never blocks who waits for them.

Knows lines and bytes only: what they mean, offsets and partitions are `source`'s.
"""

from __future__ import annotations

import os
import stat
import threading
import zlib
from collections import deque
from dataclasses import dataclass
from gzip import GzipFile
from typing import TYPE_CHECKING

from enricher.errors import FatalError

if TYPE_CHECKING:
    from io import BufferedReader

_GZIP_MAGIC = b"\x1f\x8b"  # RFC 1952; JSON never begins with it


@dataclass(frozen=True, slots=True)
class Line:
    """A line that is not blank: its number from 0, its bytes without the line end, and where it ends in the input."""

    number: int
    value: bytes
    end_bytes: int


@dataclass(frozen=True, slots=True)
class End:
    """The input ended after `lines` lines, blank ones counted."""

    lines: int
    end_bytes: int


class LineReader:
    """Reads `stream` in a thread of its own, at most so many lines and bytes ahead, and closes it in that thread.

    The line that it has read and cannot put into the queue yet comes on top: a packed file may be nothing but long lines.

    Only there: to close a stream from outside while a thread waits in it would wait for that thread. A line longer than
    `max_line_bytes` ends the reading, because such an input is hardly JSON lines. `gzipped`: it must be packed; else it is
    unpacked if it begins as gzip does.
    """

    def __init__(
        self,
        stream: BufferedReader,
        name: str,
        *,
        gzipped: bool,
        max_line_bytes: int,
        queue_lines: int,
        queue_bytes: int,
    ) -> None:
        self.total_bytes = _total_bytes(stream)
        self._stream = stream
        self._name = name
        self._gzipped = gzipped
        self._max_line_bytes = max_line_bytes
        self._queue = _LineQueue(queue_lines, queue_bytes)
        # A daemon, because a read from a pipe cannot be called off.
        self._thread = threading.Thread(target=self._run, name="line-reader", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def get(self, timeout_s: float) -> Line | End | None:
        """Return the next line, or the end once; None where nothing came within `timeout_s`.

        Raises `FatalError` where the input cannot be read on.
        """
        item = self._queue.get(timeout_s)
        if isinstance(item, FatalError):
            raise item
        return item

    def stop(self) -> None:
        """Let the thread end at its next line. Does not wait for it."""
        self._queue.close()

    def _run(self) -> None:
        try:
            with self._stream as stream:
                self._read(stream)
        except (OSError, EOFError, zlib.error) as error:
            self._queue.put(FatalError(f"cannot read {self._name}: {error}"))

    def _read(self, stream: BufferedReader) -> None:
        packed = self._gzipped or stream.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC)
        lines = GzipFile(fileobj=stream) if packed else stream
        number = read_bytes = 0
        while not self._queue.closed:
            line = lines.readline(self._max_line_bytes + 1)
            # In a packed file, the place in the packed bytes is what says how far we are.
            read_bytes = stream.tell() if packed else read_bytes + len(line)
            if not line:
                self._queue.put(End(number, read_bytes))
                return
            if len(line) > self._max_line_bytes:
                where = f"line {number + 1} of {self._name}"
                self._queue.put(
                    FatalError(f"{where} is longer than {self._max_line_bytes} bytes: are these JSON lines?")
                )
                return
            if not line.isspace():
                self._queue.put(Line(number, line.rstrip(b"\r\n"), read_bytes))
            number += 1


class _LineQueue:
    """Lines on their way from one thread to another. A line that is alone in it may be larger than the bound."""

    def __init__(self, max_lines: int, max_bytes: int) -> None:
        self.closed = False
        self._max_lines = max_lines
        self._max_bytes = max_bytes
        self._items: deque[Line | End | FatalError] = deque()
        self._bytes = 0
        self._changed = threading.Condition()

    def put(self, item: Line | End | FatalError) -> None:
        """Wait for room; once it is closed, drop the item."""
        size = _size(item)
        with self._changed:
            self._changed.wait_for(lambda: self.closed or self._has_room(size))
            if not self.closed:
                self._items.append(item)
                self._bytes += size
                self._changed.notify_all()

    def get(self, timeout_s: float) -> Line | End | FatalError | None:
        """The oldest; None where none came within `timeout_s`."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._items, timeout_s):
                return None
            item = self._items.popleft()
            self._bytes -= _size(item)
            self._changed.notify_all()
            return item

    def close(self) -> None:
        """Drop what is there and what comes; nobody waits for room any more."""
        with self._changed:
            self.closed = True
            self._items.clear()
            self._bytes = 0
            self._changed.notify_all()

    def _has_room(self, size: int) -> bool:
        return not self._items or (len(self._items) < self._max_lines and self._bytes + size <= self._max_bytes)


def _size(item: Line | End | FatalError) -> int:
    return len(item.value) if isinstance(item, Line) else 0


def _total_bytes(stream: BufferedReader) -> int | None:
    """Size of a file; None for pipes and terminals."""
    status = os.fstat(stream.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None
