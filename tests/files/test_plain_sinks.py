"""`LineSink`: lines in input order, reasons apart, and a clean end when nobody reads any more."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import orjson
import pytest
from support.patience import PATIENCE_S
from support.records import plain_record, unwritable_record

from enricher.errors import FatalError, OutputClosed
from enricher.worker.articles import encode_record
from enricher.worker.files import LineSink
from enricher.worker.records import (
    Article,
    Coverage,
    DeadLetter,
    EnrichedRecord,
    Outcome,
    Partition,
    RawRecord,
    Release,
    Ticket,
    Tombstone,
)

PARTITION = Partition("a.jsonl", 0)
ROOT = Path(__file__).parents[2]


def enriched(body: str) -> EnrichedRecord:
    """Make a record in which nothing was found."""
    return plain_record(Article("1", "", body), (), Coverage(tokens=1, windows=1, truncated=False))


def release(*outcomes: Outcome) -> Release:
    """Release outcomes as lines from 0 on."""
    tickets = []
    for offset, outcome in enumerate(outcomes):
        tickets.append(Ticket(RawRecord(PARTITION, offset, None, b"{}"), arrived_s=0.0))
        tickets[-1].finish(outcome)
    return Release(tickets, {PARTITION: len(outcomes)})


def sink_to(records: BinaryIO, dead_letters: BinaryIO | None = None) -> LineSink:
    """Make a sink that tells nobody."""
    return LineSink(records, dead_letters or io.BytesIO(), committed=lambda _: None)


def test_records_and_dead_letters_go_to_their_streams_in_order() -> None:
    """A line each; a reason says where, how far, what and why."""
    records, dead_letters = io.BytesIO(), io.BytesIO()
    letter = DeadLetter("decode", "InvalidArticle", "body is missing")
    sink_to(records, dead_letters).publish(release(enriched("a"), letter, enriched("b")))
    assert records.getvalue() == b"".join(encode_record(enriched(body)) + b"\n" for body in "ab")
    expected = b'{"offset":1,"stage":"decode","error_type":"InvalidArticle","message":"body is missing"}\n'
    assert dead_letters.getvalue() == expected


def test_record_that_cannot_be_written_is_a_dead_letter() -> None:
    """Its reason is written and returned for the counters; the lines around it stay."""
    records, dead_letters = io.BytesIO(), io.BytesIO()
    released = release(enriched("a"), unwritable_record(), enriched("b"))
    said = "the vector of task 'similar' is not finite"
    letters = {released.tickets[1]: DeadLetter("publish", "InvalidArticle", said)}
    assert letters == sink_to(records, dead_letters).publish(released)
    assert len(records.getvalue().splitlines()) == 2
    assert orjson.loads(dead_letters.getvalue()) == {
        "offset": 1,
        "stage": "publish",
        "error_type": "InvalidArticle",
        "message": said,
    }


def test_source_hears_how_far_is_written_after_it_is() -> None:
    """Never before: what is not written is not committed."""
    events: list[object] = []

    class Stream(io.BytesIO):
        def flush(self) -> None:
            events.append("flushed")

    def committed(committable: Mapping[Partition, int]) -> None:
        events.append(dict(committable))

    sink = LineSink(Stream(), Stream(), committed=committed)
    sink.publish(release(enriched("a"), DeadLetter("decode", "E", "m")))
    assert events == ["flushed", "flushed", {PARTITION: 2}]
    sink.publish(Release((), {PARTITION: 7}))
    assert events[3:] == [{PARTITION: 7}], "blank lines at the end move the position on"


def test_message_that_is_not_unicode_can_be_written() -> None:
    """An error of a library may hold half a surrogate pair."""
    dead_letters = io.BytesIO()
    sink_to(io.BytesIO(), dead_letters).publish(release(DeadLetter("inference", "E", "\ud83d")))
    assert orjson.loads(dead_letters.getvalue())["message"] == "?"


def test_a_delete_event_is_a_line_among_dead_letters_and_counts_as_none() -> None:
    """A line has no tombstone to become, and must not vanish; nothing was written instead of a record."""
    records, dead_letters = io.BytesIO(), io.BytesIO()
    assert {} == sink_to(records, dead_letters).publish(release(Tombstone()))
    assert b"" == records.getvalue()
    assert "Deleted" == orjson.loads(dead_letters.getvalue())["error_type"]


def test_reader_that_has_gone_is_a_clean_end() -> None:
    """Exit code 0, nothing committed, and the stream can be closed without a second error."""
    reading, writing = os.pipe()
    os.close(reading)
    heard: list[Mapping[Partition, int]] = []
    with os.fdopen(writing, "wb") as stream:
        sink = LineSink(stream, io.BytesIO(), committed=heard.append)
        with pytest.raises(OutputClosed) as caught:
            sink.publish(release(enriched("a")))
    assert caught.value.exit_code == 0
    assert heard == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_full_disk_ends_the_run_with_its_reason() -> None:
    """An error, unlike a reader that has gone."""
    with Path("/dev/full").open("wb") as stream, pytest.raises(FatalError, match="No space left") as caught:
        sink_to(stream).publish(release(enriched("a")))
    assert caught.value.exit_code == 1


WRITES_FOR_EVER = """
import sys
from enricher.errors import OutputClosed
from enricher.worker.files import LineSink
from enricher.worker.records import *
partition = Partition("a", 0)
coverage = Coverage(1, 1, False)
report = TaskReport(TaskCard("ner", "ner", ModelCard("m", "d", "p"), named=False), coverage)
record = EnrichedRecord(Article("1", "", "x" * 1000), (), coverage, [report])
sink = LineSink(sys.stdout.buffer, sys.stderr.buffer, committed=lambda _: None)
while True:
    ticket = Ticket(RawRecord(partition, 0, None, b""), 0.0)
    ticket.finish(record)
    try:
        sink.publish(Release([ticket], {partition: 1}))
    except OutputClosed as error:
        sys.exit(error.exit_code)
"""


def test_process_ends_quietly_when_its_output_is_closed() -> None:
    """What `enricher enrich FILE | head` does: no traceback, no complaint of the interpreter at exit."""
    command = [sys.executable, "-c", WRITES_FOR_EVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        assert line.startswith(b'{"schema_version":1'), process.stderr.read()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE_S) == 0
