"""The offset that a redrive commits says which dead letters are settled, and never that one is which is not."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from enricher.errors import FatalError
from enricher.operate.dead_letters.letters import Letter, Progress, committed_starts
from enricher.operate.verify.contract import Source

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
    """An earlier topic's says nothing; one that an operator has set, or the version before, counts."""
    found = [
        committed(5, "enricher/1 topic-id=now"),
        committed(5, "enricher/1 topic-id=earlier", 1),
        committed(6, "", 2),
        committed(-1001, "", 3),
        committed(7, "enricher-redrive/1 topic-id=now run=1a2b3c4d", 4),
    ]
    assert {0: 5, 2: 6, 4: 7} == committed_starts(found, "now")


def test_what_the_version_before_noted_behind_its_offset_is_refused() -> None:
    """Letters without a key that it sent would be sent again."""
    text = "enricher-redrive/1 topic-id=now run=1a2b3c4d stretches=eJwz0jE0AAAEAAG="
    with pytest.raises(FatalError, match="--delete-offsets"):
        committed_starts([committed(7, text)], "now")
