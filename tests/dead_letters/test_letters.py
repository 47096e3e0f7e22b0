"""What a dead letter carries is read as the contract says, and the committed offset says which of them are settled."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from hypothesis import given
from hypothesis import strategies as st
from support.properties import any_text

from enricher.operate.dead_letters.letters import (
    REDRIVE_COUNT,
    REDRIVEN_LETTER,
    Letter,
    Progress,
    committed_starts,
    headers_to_send,
    letter_of,
    redrives_in,
    restore_names,
)
from enricher.operate.verify.contract import Source
from enricher.worker.articles.encoder import dead_letter_headers
from enricher.worker.records import DeadLetter, Headers, Partition, RawRecord

NAMES = st.sampled_from(
    [
        "trace",
        "enricher.",
        "input.",
        "input.enricher.x",
        "input.input.enricher.dlq.stage",
        "inputs.enricher",
        REDRIVE_COUNT,
        REDRIVEN_LETTER,
    ]
)
HEADERS = st.lists(st.tuples(NAMES | any_text(max_size=8), st.none() | st.binary(max_size=4))).map(tuple)


@given(HEADERS)
def test_every_name_survives_being_dead_lettered(headers: Headers) -> None:
    """What the worker puts before a name is taken away again, however often the name had it."""
    raw = RawRecord(Partition("in", 0), 0, None, None, headers)
    letter = DeadLetter("decode", "InvalidArticle", "not JSON")
    written = dead_letter_headers(raw, letter, version="1", time_s=0.0, omitted_bytes=None)
    assert headers == restore_names(tuple(written[: len(headers)]))


@given(HEADERS)
def test_the_count_rises_by_one_and_nothing_else_changes(headers: Headers) -> None:
    """There is one count in the end, behind the others, and one name of the letter."""
    sent = headers_to_send(headers, b"id:2:7")
    assert [each for each in headers if each[0] not in {REDRIVE_COUNT, REDRIVEN_LETTER}] == sent[:-2]
    assert [(REDRIVE_COUNT, b"%d" % (redrives_in(headers) + 1)), (REDRIVEN_LETTER, b"id:2:7")] == sent[-2:]


def letter_with(**changes: bytes) -> Letter | None:
    """What is read of a worker's dead letter in which these of its headers are replaced."""
    raw = RawRecord(Partition("in", 1), 5, b"k", b"v", (("h", b"1"),))
    own = dead_letter_headers(raw, DeadLetter("decode", "Bad", "x"), version="1", time_s=0.0, omitted_bytes=None)
    replaced = {f"enricher.dlq.{name.replace('_', '.')}": value for name, value in changes.items()}
    headers = [(name, replaced.get(name, value)) for name, value in own]
    message: Any = SimpleNamespace(headers=lambda: headers, partition=lambda: 2, offset=lambda: 7)
    return letter_of(message)


def test_a_letter_is_read_as_a_worker_writes_it() -> None:
    """Its place, its reason, and the place of its input."""
    letter = letter_with()
    assert letter is not None
    assert (2, 7, "decode", "Bad", "other", 0.0) == (
        letter.number, letter.offset, letter.stage, letter.error_type, letter.reason, letter.time_s,
    )  # fmt: skip
    assert ("in", 1, 5) == (letter.source.topic, letter.source.partition, letter.source.offset)
    assert letter.is_complete


@pytest.mark.parametrize(
    "changes",
    [
        {"time": b"0001-01-01T00:00:00+14:00"},
        {"time": b"9999-12-31T23:59:59-14:00"},
        {"time": b"2026-11-25T13:00:00"},
        {"time": b"\xff"},
        {"source_offset": b"9" * 19},
        {"source_offset": b"-1"},
        {"source_partition": b"1.0"},
        {"stage": b"elsewhere"},
    ],
)
def test_headers_that_no_worker_writes_make_no_letter(changes: dict[str, bytes]) -> None:
    """Anybody who may write to the topic could otherwise end the command."""
    assert letter_with(**changes) is None


def test_a_count_that_is_no_number_is_none() -> None:
    """Publishers may write anything; a number of any length would take long to read."""
    for value in (None, b"", b"x", b"-1", b"1" * 10, "\u0663".encode()):
        assert 0 == redrives_in(((REDRIVE_COUNT, value),))
    assert 7 == redrives_in(((REDRIVE_COUNT, b"9"), (REDRIVE_COUNT, b"7")))


END = 100


def letter(offset: int, number: int = 0) -> Letter:
    """A letter at this place."""
    source = Source("articles", number, offset)
    return Letter(number, offset, "decode", "InvalidArticle", "other", 0.0, source, is_complete=True, redrives=0)


@given(
    left=st.sets(st.integers(10, END - 1)),
    handled=st.integers(10, END),
    waiting=st.sets(st.integers(10, END - 1)),
)
def test_the_offset_is_below_every_letter_that_is_not_settled(left: set[int], handled: int, waiting: set[int]) -> None:
    """Left, waiting to be sent after others, or not reached yet; and it is no lower than it has to be."""
    progress = Progress({0: 10, 1: 7})
    for offset in left:
        progress.leave(letter(offset))
    progress.pass_by(0, handled)
    assert progress.offsets(map(letter, waiting)) == {0: min({handled, *left, *waiting}), 1: 7}
    assert progress.offsets() == {0: min({handled, *left}), 1: 7}


def committed(offset: int, metadata: str, number: int = 0) -> TopicPartition:
    """An offset that the group has committed."""
    return TopicPartition("letters", number, offset, metadata=metadata)


def test_a_run_begins_at_the_committed_offset_of_this_very_topic() -> None:
    """An earlier topic's says nothing; one that an operator has set counts."""
    found = [
        committed(5, "enricher/1 topic-id=now"),
        committed(5, "enricher/1 topic-id=earlier", 1),
        committed(6, "", 2),
        committed(-1001, "", 3),
    ]
    assert {0: 5, 2: 6} == committed_starts(found, "now")
