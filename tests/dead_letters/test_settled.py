"""What is committed about settled dead letters says exactly which they are."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enricher.errors import FatalError
from enricher.operate.dead_letters.settled import MAX_METADATA_BYTES, Commit, SettledLetters

Letters = dict[int, bool]


@st.composite
def letters(draw: st.DrawFn) -> Letters:
    """Offsets with gaps, each settled or not."""
    gaps = draw(st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=1))
    offset, found = draw(st.integers(0, 5)), {}
    for gap, is_settled in gaps:
        offset += gap
        found[offset] = is_settled
    return found


def noted(found: Letters, commit: Commit | None = None, topic_id: str | None = "t") -> SettledLetters:
    """The letters from the committed offset on, noted in order."""
    settled = SettledLetters(commit, topic_id)
    for offset in found:
        if offset >= settled.start:
            settled.note(offset)
    return settled


def committed(found: Letters) -> Commit:
    """What is committed once these are settled."""
    settled = noted(found)
    for offset, is_settled in found.items():
        settled.settle(offset, is_settled=is_settled)
    return settled.commit("run")


def unsettled(found: Letters, settled: SettledLetters) -> list[int]:
    """The letters that a run would still look at."""
    return [offset for offset in found if offset >= settled.start and not settled.has(offset)]


@given(letters())
def test_a_later_run_finds_exactly_the_letters_that_are_left(found: Letters) -> None:
    """No settled letter comes again, and none that is left is passed over."""
    later = noted(found, committed(found))
    assert [offset for offset, is_settled in found.items() if not is_settled] == unsettled(found, later)


@given(letters(), letters())
def test_runs_add_up(first: Letters, second: Letters) -> None:
    """What one run settled stays so when the next settles others, and letters that came since are not settled."""
    new = {offset + 1000: False for offset in second}
    both = first | new
    later = noted(both, committed(first))
    for offset in new:
        later.settle(offset)
    last = noted(both, later.commit("next"))
    assert [offset for offset, is_settled in first.items() if not is_settled] == unsettled(both, last)


def test_a_letter_can_be_taken_back() -> None:
    """A transaction that failed has settled nothing."""
    settled = noted({3: False, 5: False})
    settled.settle(5)
    settled.settle(5, is_settled=False)
    assert committed({3: False, 5: False}) == settled.commit("run")


def test_a_commit_of_an_earlier_topic_says_nothing() -> None:
    """A topic that was created again has another id. Where brokers have none, the name must do."""
    commit = committed({3: True, 5: False})
    assert 5 == SettledLetters(commit, "t").start
    assert 0 == SettledLetters(commit, "another").start
    assert 5 == SettledLetters(commit, None).start


def test_offsets_that_a_tool_has_set_are_taken_as_they_are() -> None:
    """The tool writes no metadata: everything behind the offset is looked at again."""
    found = {3: True, 5: False, 7: True}
    assert [5, 7] == unsettled(found, noted(found, Commit(4, "")))


@pytest.mark.parametrize("text", ["x", "////", "eJw=", "eJwLzwIAAfkBBA=="])
def test_damaged_metadata_is_an_error(text: str) -> None:
    """Guessing would redrive letters twice."""
    with pytest.raises(FatalError, match="damaged"):
        SettledLetters(Commit(1, f"enricher-redrive/1 stretches={text}"), None)


@pytest.mark.parametrize(
    ("count", "share"), [(15_000, 0.5), (30_000, 0.1), pytest.param(190_000, 0.01, marks=pytest.mark.slow)]
)
def test_many_scattered_letters_fit_into_one_commit(count: int, share: float) -> None:
    """As many as the page says, if each is left or not by chance, with a marker of a transaction behind each."""
    chance = random.Random(1)
    commit = committed({2 * number: chance.random() > share for number in range(count)})
    assert MAX_METADATA_BYTES >= len(commit.metadata)
