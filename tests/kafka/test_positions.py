"""The offsets that a partition may continue at."""

from __future__ import annotations

import pytest

from enricher.errors import TransactionTrouble
from enricher.worker.kafka.reading.positions import Positions
from enricher.worker.records import Mark, Partition, Start

PARTITION = Partition("articles", 0)


def begun(at: int, *, log_end: int) -> Positions:
    """One partition that begins here; its log ends there."""
    positions = Positions(lambda _partition: log_end)
    positions.begin(PARTITION, Start(at, Mark()), None)
    return positions


def test_a_first_end_before_the_start_of_a_whole_log_is_trouble() -> None:
    """The client asked for an offset that it read from a damaged batch, and went back to the beginning."""
    positions = begun(267, log_end=300)
    with pytest.raises(TransactionTrouble, match="continues at offset 0 after 267"):
        positions.ended(PARTITION, 0)
    assert positions.to_commit([PARTITION]) == {}


def test_a_log_that_lost_its_end_is_read_from_where_the_client_begins(caplog: pytest.LogCaptureFixture) -> None:
    """Its records have new contents at old offsets; waiting for the old ones would stop the partition for ever."""
    positions = begun(267, log_end=100)
    assert positions.ended(PARTITION, 100)
    assert {PARTITION: 100} == positions.to_commit([PARTITION])
    assert "articles[0] has lost its end: it ends at 100, before the committed offset 267" in caplog.text
