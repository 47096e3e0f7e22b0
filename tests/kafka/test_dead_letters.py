"""A log line for each dead letter, within the limit of lines per minute."""

from __future__ import annotations

import logging

import pytest

from enricher.worker.kafka.sink import log_dead_letters
from enricher.worker.records import DeadLetter, Outcome, Partition, RawRecord, Ticket, Tombstone
from enricher.worker.telemetry.logs import RepeatsFilter


def ticket(offset: int, outcome: Outcome) -> Ticket:
    """One that is finished."""
    made = Ticket(RawRecord(Partition("articles", 3), offset, None, b"a text"), arrived_s=0.0)
    made.finish(outcome)
    return made


def test_a_line_says_where_and_why(caplog: pytest.LogCaptureFixture) -> None:
    """Place and reason, nothing of the value; other outcomes have no line."""
    letter = DeadLetter("decode", "InvalidArticle", "body is missing")
    log_dead_letters([ticket(7, Tombstone()), ticket(8, letter)], {})
    assert ["dead letter: articles[3] offset 8: body is missing (InvalidArticle, decode)"] == caplog.messages


def test_a_dead_letter_that_was_written_instead_of_a_record_has_a_line(caplog: pytest.LogCaptureFixture) -> None:
    """The log says what the topic has, not what the ticket says."""
    large = ticket(9, Tombstone())
    log_dead_letters([large], {large: DeadLetter("publish", "OutputTooLarge", "6041 bytes")})
    assert ["dead letter: articles[3] offset 9: 6041 bytes (OutputTooLarge, publish)"] == caplog.messages


def test_a_flood_of_them_is_not_a_flood_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """All lines are of one kind, whatever their places and reasons, so the log's limit applies."""
    log_dead_letters([ticket(number, DeadLetter("decode", "E", f"reason {number}")) for number in range(1_000)], {})
    repeats = RepeatsFilter(20)
    assert 20 == sum(repeats.filter(record) for record in caplog.records)
    assert {logging.WARNING} == {record.levelno for record in caplog.records}
