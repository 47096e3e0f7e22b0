"""The limits on dead letters: what is committed within them, what a restart refuses, and that a healthy feed goes on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.records import plain_record

from enricher.errors import TooManyDeadLetters
from enricher.worker.records import (
    Article,
    Coverage,
    DeadLetter,
    Outcome,
    Partition,
    RawRecord,
    ReachedLimit,
    Release,
    Start,
    Ticket,
    Tombstone,
)
from enricher.worker.rules.dead_letter_limits import DeadLetterLimits, Limits

PLACES = [Partition("articles", number) for number in range(3)]
OUTCOMES: dict[str, Outcome] = {
    "+": plain_record(Article("", "", ""), (), Coverage(1, 1, truncated=False)),
    "-": DeadLetter("decode", "InvalidArticle", "id is missing at /uuid"),
    ".": Tombstone(),
}
STORIES = st.lists(st.tuples(st.text("+-.", max_size=30), st.sampled_from(PLACES)), max_size=12)
LIMITS = st.builds(
    Limits,
    max_in_a_row=st.sampled_from([0, 1, 2, 5, 40]),
    max_ratio=st.sampled_from([0.0, 0.1, 0.29, 0.5, 1.0]),
    window_articles=st.sampled_from([10, 20, 100]),
)


class Offsets:
    """The input: its next offsets, and what is committed beside them."""

    def __init__(self) -> None:
        self.next = dict.fromkeys(PLACES, 0)
        self.reached: dict[Partition, ReachedLimit] = {}

    def start_of(self, partition: Partition) -> Start:
        """Where a process begins."""
        return Start(self.next[partition], reached_limit=self.reached.get(partition, ReachedLimit()))

    def release(self, story: str, partition: Partition = PLACES[0]) -> Release:
        """Tickets with these outcomes."""
        tickets = []
        for number, sign in enumerate(story):
            ticket = Ticket(RawRecord(partition, self.next[partition] + number, None, b""), 0.0)
            ticket.finish(OUTCOMES[sign])
            tickets.append(ticket)
        return Release(tickets, {partition: self.next[partition] + len(tickets)} if tickets else {})


class Process:
    """A worker's limits, which publish what they allow."""

    def __init__(self, offsets: Offsets, limits: Limits, places: Sequence[Partition] = PLACES) -> None:
        self._offsets = offsets
        self.rule = DeadLetterLimits(limits, "wire")
        self.rule.expect(places)
        self.rule.check_starts(offsets.start_of)

    def publish(self, story: str, partition: Partition = PLACES[0]) -> str | None:
        """Commit what may be; returns why it was not all."""
        release, cut = self.rule.cut(self._offsets.release(story, partition))
        self._offsets.next.update(release.committable)
        self.rule.note_committed(release.tickets, {})
        if cut is None:
            return None
        assert (partition, self._offsets.next[partition]) == (cut.partition, cut.offset)
        self._offsets.reached[partition] = cut.reached
        return cut.message


def longest_row(story: str) -> int:
    """The most dead letters in a row; tombstones are no articles."""
    return max((len(list(run)) for sign, run in groupby(story.replace(".", "")) if sign == "-"), default=0)


def most_in_window(story: str, window: int) -> int:
    """The most dead letters among so many articles in a row."""
    articles = story.replace(".", "")
    return max((articles[at : at + window].count("-") for at in range(len(articles))), default=0)


def exceeds(story: str, limits: Limits) -> bool:
    """Whether what was published is beyond a limit, counted by other means."""
    row = limits.max_in_a_row and longest_row(story) > limits.max_in_a_row
    many = limits.max_in_window and most_in_window(story, limits.window_articles) > limits.max_in_window
    return bool(row or many)


@given(limits=LIMITS, stories=STORIES)
def test_all_that_is_within_the_limits_is_committed_and_nothing_beyond(
    limits: Limits, stories: list[tuple[str, Partition]]
) -> None:
    """Over several partitions, in the order of publication; what is cut begins with the dead letter that is one too many."""
    offsets, published = Offsets(), ""
    process = Process(offsets, limits)
    for story, partition in stories:
        before = offsets.next[partition]
        why = process.publish(story, partition)
        committed = story[: offsets.next[partition] - before]
        published += committed
        assert not exceeds(published, limits)
        assert (why is None) == (committed == story)
        if why:
            assert story[len(committed)] == "-"
            assert exceeds(published + "-", limits)
            assert f"{partition.topic}[{partition.number}] offset {offsets.next[partition]}: id is missing" in why


@pytest.mark.parametrize("limits", [Limits(30, 0.5, 1_000), Limits(0, 0.5, 100), Limits(1, 1.0, 10)])
def test_a_start_refuses_what_a_process_left_at_its_limit(limits: Limits) -> None:
    """A crash loop adds nothing, however long it lasts, and names the place, the limit, the reason and the command."""
    offsets = Offsets()
    assert Process(offsets, limits).publish("-" * 400, PLACES[1])
    left = offsets.next.copy()
    for _ in range(20):
        with pytest.raises(TooManyDeadLetters, match="accept wire") as refusal:
            Process(offsets, limits)
    assert left == offsets.next
    for words in (f"articles[1] offset {left[PLACES[1]]}", "decode:InvalidArticle", "(dead_letters.max_"):
        assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        (Limits(30, 0.5, 1_000), Limits(31, 0.5, 1_000), False),
        (Limits(30, 0.5, 1_000), Limits(0, 0.5, 1_000), False),
        (Limits(30, 0.5, 1_000), Limits(29, 0.9, 1_000), True),
        (Limits(0, 0.5, 100), Limits(0, 0.51, 100), False),
        (Limits(0, 0.5, 100), Limits(0, 0.5, 200), False),
        (Limits(0, 0.5, 100), Limits(0, 0.5, 100), True),
        (Limits(0, 0.5, 100), Limits(0, 0, 100), False),
        (Limits(0, 0.5, 100), Limits(300, 0.6, 100), False),
    ],
)
def test_a_higher_limit_reads_on(before: Limits, after: Limits, *, refused: bool) -> None:
    """Of the kind that was reached; the other one does not matter. Its counts begin at 0."""
    offsets = Offsets()
    assert Process(offsets, before).publish("-" * 400)
    if refused:
        with pytest.raises(TooManyDeadLetters):
            Process(offsets, after)
    else:
        assert set(Process(offsets, after).rule.used.values()) <= {0.0}


def test_only_own_partitions_with_a_known_start_are_looked_at() -> None:
    """Another worker's partition ends nobody; one that comes later, or is rewound, is looked at again."""
    offsets, limits = Offsets(), Limits(30, 0, 1)
    assert Process(offsets, limits, PLACES[:1]).publish("-" * 31)
    process = Process(offsets, limits, PLACES[1:])
    process.rule.expect(PLACES[:1])
    process.rule.check_starts(lambda _: None)
    process.rule.leave(PLACES[:1])
    process.rule.check_starts(offsets.start_of)
    process.rule.expect(PLACES[:1])
    with pytest.raises(TooManyDeadLetters):
        process.rule.check_starts(offsets.start_of)


def test_a_share_is_not_made_smaller_by_floating_point() -> None:
    """0.29 * 100 is a little less than 29."""
    assert 29 == Limits(0, 0.29, 100).max_in_window


def test_dead_letters_of_large_outputs_count_before_their_commit() -> None:
    """Only writing shows them; with them the release may be beyond a limit that it was within."""
    offsets = Offsets()
    process, release = Process(offsets, Limits(3, 0, 1)), offsets.release("--+-")
    letter = DeadLetter("publish", "OutputTooLarge", "too large")
    assert process.rule.cut(release) == (release, None)
    assert process.rule.allows(release.tickets, {})
    assert not process.rule.allows(release.tickets, {release.tickets[2]: letter})
    process.rule.note_committed(release.tickets[:3], {release.tickets[2]: letter})
    assert process.rule.used == {"max_in_a_row": 1.0}


def test_the_reason_names_the_limit_the_commonest_reasons_and_examples() -> None:
    """Everything that whoever is on call has to know."""
    offsets = Offsets()
    why = Process(offsets, Limits(6, 0.5, 1_000)).publish("-" * 7) or ""
    for words in (
        "6 in a row (dead_letters.max_in_a_row)",
        "articles[0] offset 6: id is missing at /uuid",
        "decode:InvalidArticle (7)",
        "articles[0] offset 1, articles[0] offset 2",
    ):
        assert words in why
    assert "500 of 1000 articles (dead_letters.max_ratio" in (
        Process(Offsets(), Limits(0, 0.5, 1_000)).publish("-" * 501) or ""
    )
