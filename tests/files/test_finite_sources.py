"""`LineSource`: lines as records, gaps at blank ones, and a worker that never waits for a silent pipe."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import pytest
from support.patience import PATIENCE_S

from enricher.errors import FatalError
from enricher.worker.files import LineSource
from enricher.worker.files import finite_sources as source_module
from enricher.worker.files.finite_sources import Line, LineReader
from enricher.worker.records import Partition, RawRecord

ROOT = Path(__file__).parents[2]


class Partitions:
    """Hears of partitions, as the worker does."""

    def __init__(self) -> None:
        self.seen: list[Partition] = []

    def assigned(self, partitions: Sequence[Partition]) -> None:
        """Note them."""
        self.seen += partitions

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """Refuse: a file is never taken away."""
        raise AssertionError(partitions)

    lost = revoked


def opened(path: Path, content: bytes, **bounds: int) -> LineSource:
    """Write `content` to `path` and open it as a source."""
    path.write_bytes(content)
    source = LineSource(path, **bounds)
    source.open(Partitions())
    return source


def read_all(source: LineSource, limit: int = 100) -> list[RawRecord]:
    """Poll until the end of the input was seen."""
    records: list[RawRecord] = []
    while not source.caught_up():
        found = source.poll(limit, PATIENCE_S)
        assert len(found) <= limit
        records += found
        if found:
            source.note_committed({source.partition: found[-1].offset + 1})
    return records


def lines_of(records: Sequence[RawRecord]) -> list[tuple[int, bytes | None]]:
    """Reduce records to what a test compares."""
    return [(record.offset, record.value) for record in records]


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[BinaryIO]:
    """Let standard input be a pipe, and give its writing end."""
    reading, writing = os.pipe()
    monkeypatch.setattr(source_module, "_STDIN_FD", reading)
    with os.fdopen(writing, "wb", buffering=0) as stream:
        yield stream
    os.close(reading)


def test_line_is_a_record_whose_offset_is_its_number(tmp_path: Path) -> None:
    """One partition named after the file; values without line ends, Windows ones too, and no key."""
    path = tmp_path / "a.jsonl"
    records = read_all(opened(path, b'{"id":"0"}\n{"id":"1"}\r\n{"id":"2"}'))
    assert lines_of(records) == [(0, b'{"id":"0"}'), (1, b'{"id":"1"}'), (2, b'{"id":"2"}')]
    assert {(record.partition, record.key) for record in records} == {(Partition(str(path), 0), None)}


def test_blank_lines_are_gaps(tmp_path: Path) -> None:
    """They have a number and no record, and the position is past them at the end."""
    source = opened(tmp_path / "a.jsonl", b"\n a\n\t \n\nb\n\n\n")
    assert lines_of(read_all(source)) == [(1, b" a"), (4, b"b")]
    assert source.positions([source.partition]) == {source.partition: 7}


def test_position_follows_what_was_delivered(tmp_path: Path) -> None:
    """At most the limit, not what was read ahead. The listener hears of its partition once; others are unknown here."""
    (tmp_path / "a.jsonl").write_bytes(b"a\nb\nc\n")
    source, listener = LineSource(tmp_path / "a.jsonl"), Partitions()
    source.open(listener)
    assert ({source.partition: 0}, []) == (source.positions([source.partition]), listener.seen)
    assert [(0, b"a")] == lines_of(source.poll(1, PATIENCE_S))
    assert source.positions([source.partition, Partition("other", 0)]) == {source.partition: 1}
    assert source.positions([Partition("other", 0)]) == {}
    assert [(1, b"b"), (2, b"c")] == lines_of(read_all(source, limit=1))
    assert [source.partition] == listener.seen


def test_a_paused_or_held_source_gives_nothing(tmp_path: Path) -> None:
    """And skips nothing."""
    source = opened(tmp_path / "a.jsonl", b"a\nb\n")
    source.pause()
    assert source.poll(1, 0.0) == ()
    source.resume()
    assert lines_of(source.poll(1, PATIENCE_S)) == [(0, b"a")]
    source.hold([source.partition])
    assert source.poll(1, 0.0) == ()
    source.hold([])
    assert lines_of(source.poll(1, PATIENCE_S)) == [(1, b"b")]


def test_caught_up_needs_the_end_and_every_line_written(tmp_path: Path) -> None:
    """The end alone is not enough, nor is everything so far."""
    source = opened(tmp_path / "a.jsonl", b"a\nb\n\n")
    assert len(source.poll(1, PATIENCE_S)) == 1
    source.note_committed({source.partition: 1})
    assert not source.caught_up(), "there is more"
    assert [1, 0] == [len(source.poll(1, PATIENCE_S)) for _ in range(2)], "the last line, and the end"
    assert not source.caught_up(), "b is not written"
    source.note_committed({source.partition: 2})
    assert source.caught_up(), "a blank line at the end needs no writing"
    empty = opened(tmp_path / "b.jsonl", b"")
    assert not empty.caught_up()
    assert empty.poll(1, PATIENCE_S) == []
    assert empty.caught_up()


@pytest.mark.parametrize("name", ["a.jsonl.gz", "A.GZ", "a.jsonl"])
def test_packed_file_is_unpacked(tmp_path: Path, name: str) -> None:
    """Whatever its name: as text it would be a dead letter for each of its lines."""
    source = opened(tmp_path / name, gzip.compress(b"a\nb\n"))
    assert lines_of(read_all(source)) == [(0, b"a"), (1, b"b")]


@pytest.mark.parametrize(
    "content", [b"not packed\n", gzip.compress(b"a\n" * 99, mtime=0)[:-9], b"\x1f\x8b\x08\0\0\0\0\0\0\0broken"]
)
def test_broken_packed_file_ends_the_run(tmp_path: Path, content: bytes) -> None:
    """And says which file it was."""
    source = opened(tmp_path / "a.gz", content)
    with pytest.raises(FatalError, match=r"cannot read .*a\.gz"):
        read_all(source)


def test_endless_line_ends_the_run_before_it_fills_the_memory(tmp_path: Path) -> None:
    """At the bound it is a line; above it the input is hardly JSON lines."""
    assert len(read_all(opened(tmp_path / "a.jsonl", b"1234567\n", max_line_bytes=8))) == 1
    source = opened(tmp_path / "b.jsonl", b"a\n" + b"x" * 1000, max_line_bytes=8)
    with pytest.raises(FatalError, match=r"line 2 of .*b\.jsonl is longer than 8 bytes"):
        read_all(source)


@pytest.mark.parametrize("name", ["missing.jsonl", "."])
def test_input_that_cannot_be_opened_ends_the_run(tmp_path: Path, name: str) -> None:
    """A missing file and a folder, before anything is read."""
    with pytest.raises(FatalError, match="cannot open"):
        LineSource(tmp_path / name).open(Partitions())


def test_reader_stays_within_its_bound_and_ends_when_closed(tmp_path: Path) -> None:
    """It waits while nobody takes lines, and closing lets it go."""
    taken, full, before = 0, threading.Event(), set(threading.enumerate())

    def lines() -> Iterator[Line]:
        nonlocal taken
        for number in range(10_000):
            taken += 1
            if taken == 1 + 4 + 1:  # the one that was got, the queue, and the one behind it
                full.set()
            yield Line("a", number, b"x")

    (tmp_path / "a.jsonl").touch()
    stream = (tmp_path / "a.jsonl").open("rb")
    reader = LineReader(stream, lines(), queue_lines=4, queue_bytes=1_000)
    [thread] = set(threading.enumerate()) - before
    assert reader.get(PATIENCE_S)
    assert full.wait(PATIENCE_S)
    reader.stop()
    thread.join(PATIENCE_S)
    assert (6, False, True) == (taken, thread.is_alive(), stream.closed)


@pytest.mark.slow
def test_lines_that_wait_are_bounded_in_bytes(tmp_path: Path) -> None:
    """A packed file of long lines: one poll and the queue behind it hold no more than their bounds, and a line each."""
    size, count, bound = 1_000_000, 30, 4_000_000
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress((b"x" * (size - 1) + b"\n") * count))
    tracemalloc.start()
    try:
        source = LineSource(path, queue_bytes=bound)
        source.open(Partitions())
        read = 0
        while not source.caught_up():
            records = source.poll(count, PATIENCE_S)
            assert sum(len(record.value or b"") for record in records) <= bound + size
            read += len(records)
            source.note_committed({source.partition: read})
            del records
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == read
    # The poll, the queue, the line that waits for capacity, and gzip's own copies of that one.
    assert peak < 2 * bound + 6 * size


def test_a_line_above_the_bound_in_bytes_passes_alone(tmp_path: Path) -> None:
    """It is not waited for in vain."""
    source = opened(tmp_path / "a.jsonl", b"a\n" + b"x" * 100 + b"\nb\n", queue_bytes=10)
    assert [1, 100, 1] == [len(record.value or b"") for record in read_all(source)]


def test_silent_pipe_does_not_hold_up_the_worker(pipe: BinaryIO) -> None:
    """A poll comes back without a record, then with one as soon as it is there, then with the end."""
    source = LineSource(Path("-"))
    source.open(Partitions())
    assert source.poll(1, 0.0) == []
    assert source.poll(1, 0.001) == []
    pipe.write(b'{"id":')
    assert source.poll(1, 0.001) == [], "half a line is no record"
    pipe.write(b"1}\n")
    assert lines_of(source.poll(1, PATIENCE_S)) == [(0, b'{"id":1}')]
    assert not source.caught_up()
    pipe.close()
    assert source.poll(1, PATIENCE_S) == []
    source.note_committed({source.partition: 1})
    assert source.caught_up()


WAITS_FOR_STDIN = """
from pathlib import Path
from enricher.worker.files import LineSource

class Partitions:
    def assigned(self, partitions): pass

source = LineSource(Path("-"))
source.open(Partitions())
print(source.poll(1, 30.0)[0].value.decode(), flush=True)
source.poll(1, 0.01)
source.close()
"""


def test_process_ends_while_its_reader_waits_for_stdin() -> None:
    """The interpreter must not abort over the lock of a stream that a thread still reads."""
    command = [sys.executable, "-c", WAITS_FOR_STDIN]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"a\n")
        process.stdin.flush()
        assert process.stdout.read() == b"a\n"
        assert process.wait(PATIENCE_S) == 0
        assert process.stderr.read() == b""


def test_a_packed_pipe_is_unpacked(pipe: BinaryIO) -> None:
    """`zcat` is not needed: a pipe has no position that could be asked for, and no size."""
    source = LineSource(Path("-"))
    source.open(Partitions())
    pipe.write(gzip.compress(b"a\nb\n"))
    pipe.close()
    assert [(0, b"a"), (1, b"b")] == lines_of(read_all(source))


def test_parquet_in_a_pipe_is_named(pipe: BinaryIO) -> None:
    """Its lines would be hundreds of dead letters; a pipe cannot be read from its end, as Parquet is."""
    source = LineSource(Path("-"))
    source.open(Partitions())
    pipe.write(b"PAR1\x15\x00\n\x15")
    with pytest.raises(FatalError, match="- is Parquet, which cannot be read from a pipe: name the file"):
        source.poll(1, PATIENCE_S)
