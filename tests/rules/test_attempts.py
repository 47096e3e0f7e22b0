"""The rule that finds a record which kills the process: whom it blames, whom it never blames, and how fast it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enricher.worker.records import Mark, Partition, RawRecord, Release, Start, Ticket
from enricher.worker.rules.attempts import Attempts

HERE, THERE = Partition("articles", 0), Partition("articles", 1)
MAX_DEATHS, ALONE_ARTICLES = 3, 12
Ending = Literal["death", "leave", "rewind"]


def begun(mark: Mark) -> Attempts:
    """A process that was assigned a partition with this mark at its committed offset."""
    attempts = Attempts(MAX_DEATHS, ALONE_ARTICLES)
    attempts.expect([HERE])
    assert [HERE] == attempts.unknown([HERE])
    attempts.begin(HERE, Start(10, mark))
    return attempts


def ticket(offset: int, partition: Partition = HERE) -> Ticket:
    """A record in flight."""
    return Ticket(RawRecord(partition, offset, None, None), 0.0)


def progress(attempts: Attempts, *offsets: int, partition: Partition = HERE) -> Release:
    """These records are finished and published."""
    tickets = [ticket(offset, partition) for offset in offsets]
    release = attempts.seal(Release(tickets, {partition: offsets[-1] + 1}))
    attempts.note_committed(release)
    return release


def said(release: Release) -> tuple[dict[Partition, int], dict[Partition, Mark]]:
    """Offsets and marks of a release."""
    return dict(release.committable), dict(release.marks)


def test_an_attempt_counts_at_the_committed_offset_with_the_first_records() -> None:
    """Once, and for the partitions of these records only."""
    attempts = begun(Mark(1))
    attempts.expect([THERE])
    attempts.begin(THERE, Start(5))
    assert not attempts.quiet
    assert said(attempts.count_attempts({HERE: 12})) == ({HERE: 10}, {HERE: Mark(2)})
    assert attempts.count_attempts({HERE: 20}).empty
    assert said(attempts.count_attempts({THERE: 5})) == ({THERE: 5}, {THERE: Mark(1)})
    assert attempts.quiet


def test_a_commit_that_moves_the_offset_begins_again_at_zero() -> None:
    """A process that made progress was not killed there."""
    attempts = begun(Mark(2))
    attempts.count_attempts({HERE: 10})
    assert said(progress(attempts, 10)) == ({HERE: 11}, {})
    assert attempts.seal(Release((), {}), [HERE]).empty


def test_a_commit_that_moves_nothing_keeps_the_mark() -> None:
    """The position at the end of a partition may be committed as it stands."""
    attempts = begun(Mark(2))
    assert said(attempts.seal(Release((), {HERE: 10}))) == ({HERE: 10}, {HERE: Mark(2)})
    attempts.count_attempts({HERE: 10})
    assert said(attempts.seal(Release((), {HERE: 10}))) == ({HERE: 10}, {HERE: Mark(3)})


def test_who_leaves_in_order_without_progress_takes_the_attempt_back() -> None:
    """The mark that was found is written again; progress of the same transaction goes before."""
    attempts = begun(Mark(2))
    attempts.count_attempts({HERE: 10})
    assert said(attempts.seal(Release((), {}), [HERE, THERE])) == ({HERE: 10}, {HERE: Mark(2)})
    assert said(attempts.seal(Release([ticket(10)], {HERE: 11}), [HERE])) == ({HERE: 11}, {})


def test_an_attempt_that_was_taken_back_is_counted_again() -> None:
    """All records of a partition waited for their schemas, and one goes on: it may kill."""
    attempts = begun(Mark(1))
    attempts.note_committed(attempts.count_attempts({HERE: 10}))
    assert attempts.quiet
    attempts.note_committed(attempts.seal(Release((), {}), [HERE]))
    assert not attempts.quiet
    assert said(attempts.count_attempts({HERE: 10})) == ({HERE: 10}, {HERE: Mark(2)})


def test_nothing_is_taken_back_where_no_record_arrived() -> None:
    """Also after a rewind or a loss, when the offset that is remembered may be an old one: it must never go back."""
    attempts = begun(Mark(2))
    assert attempts.seal(Release((), {}), [HERE]).empty
    attempts.count_attempts({HERE: 10})
    attempts.expect([HERE])
    assert attempts.seal(Release((), {}), [HERE]).empty
    attempts.leave([HERE])
    assert attempts.seal(Release((), {}), [HERE]).empty


def test_an_attempt_whose_transaction_failed_is_counted_again() -> None:
    """What stands in the log counts, not what was meant to stand there."""
    attempts = begun(Mark(1))
    attempts.count_attempts({HERE: 10})
    attempts.expect([HERE])
    attempts.begin(HERE, Start(10, Mark(1)))
    assert said(attempts.count_attempts({HERE: 10})) == ({HERE: 10}, {HERE: Mark(2)})


def test_marks_of_others_count() -> None:
    """A partition that was lost and came back with more deaths than our own is suspect."""
    attempts = begun(Mark(1))
    attempts.count_attempts({HERE: 10})
    attempts.leave([HERE])
    attempts.expect([HERE])
    assert attempts.begin(HERE, Start(10, Mark(3)))
    assert list(attempts.suspects) == [HERE]


def test_a_suspect_partition_is_taken_record_by_record() -> None:
    """Each is counted alone, at its own offset; the next owner after a commit continues so."""
    attempts = begun(Mark(3))
    assert list(attempts.suspects) == [HERE]
    assert said(attempts.count_attempts({HERE: 12})) == ({HERE: 12}, {HERE: Mark(4, 1)})
    assert said(progress(attempts, 12)) == ({HERE: 13}, {HERE: Mark(3)})
    assert said(attempts.count_attempts({HERE: 13})) == ({HERE: 13}, {HERE: Mark(4, 1)})
    assert said(attempts.seal(Release((), {}), [HERE])) == ({HERE: 13}, {HERE: Mark(3)})


def test_records_of_other_partitions_are_counted_alone_too() -> None:
    """A death while they are alone in flight is theirs, and not the suspect's."""
    attempts = begun(Mark(3))
    attempts.expect([THERE])
    attempts.begin(THERE, Start(5))
    assert said(attempts.count_attempts({THERE: 5})) == ({THERE: 5}, {THERE: Mark(1, 1)})
    assert said(progress(attempts, 5, partition=THERE)) == ({THERE: 6}, {})
    assert said(attempts.count_attempts({THERE: 6})) == ({THERE: 6}, {THERE: Mark(1, 1)}), "a new record begins at zero"


@pytest.mark.parametrize(
    ("found", "first", "counted", "deaths"),
    [
        pytest.param(Mark(5, 2), 10, None, 2, id="two: nothing is counted, because it does not go on"),
        pytest.param(Mark(4, 1), 10, Mark(5, 2), 0, id="one: the record is taken once more"),
        pytest.param(
            Mark(5, 2), 11, Mark(6, 1), 0, id="that record was compacted away: what comes instead begins at zero"
        ),
    ],
)
def test_two_deaths_alone_are_a_verdict(found: Mark, first: int, counted: Mark | None, deaths: int) -> None:
    """Of that record at the committed offset only."""
    attempts = begun(found)
    assert said(attempts.count_attempts({HERE: first})) == (({HERE: first}, {HERE: counted}) if counted else ({}, {}))
    assert deaths == attempts.verdict(HERE, first)
    assert attempts.verdict(HERE, first + 1) == attempts.verdict(THERE, 10) == 0
    progress(attempts, first)
    attempts.count_attempts({HERE: first + 1})
    assert attempts.verdict(HERE, first + 1) == 0


def test_a_suspect_stays_one_over_a_rewind() -> None:
    """And as many articles as before are left to be taken alone."""
    attempts = begun(Mark(3))
    for offset in range(10, 9 + ALONE_ARTICLES):
        attempts.count_attempts({HERE: offset})
        progress(attempts, offset)
    attempts.expect([HERE])
    assert list(attempts.suspects) == [HERE]
    assert not attempts.begin(HERE, Start(9 + ALONE_ARTICLES, Mark(3)))
    assert attempts.clear({}).empty
    attempts.count_attempts({HERE: 9 + ALONE_ARTICLES})
    progress(attempts, 9 + ALONE_ARTICLES)
    assert said(attempts.clear({})) == ({HERE: 10 + ALONE_ARTICLES}, {})
    assert not attempts.suspects


def test_a_suspect_is_acquitted_at_its_end() -> None:
    """All that was in flight when processes died has gone through by then; the mark goes too."""
    attempts = begun(Mark(3))
    attempts.count_attempts({HERE: 10})
    progress(attempts, 10)
    assert attempts.clear({HERE: 12, THERE: 0}).empty
    assert said(attempts.clear({HERE: 11})) == ({HERE: 11}, {})
    assert not attempts.suspects
    assert attempts.quiet


def test_a_suspect_that_is_gone_or_made_again_counts_nothing() -> None:
    """Its next owner reads the same mark. In a log that begins lower no offset is written: it lies elsewhere."""
    attempts = begun(Mark(3))
    assert attempts.count_attempts({HERE: 4}).empty
    attempts.leave([HERE])
    assert not attempts.suspects


def test_switched_off_it_counts_nothing_and_suspects_nobody() -> None:
    """`max_deaths` of 0, whatever stands in the log."""
    attempts = Attempts(0, ALONE_ARTICLES)
    attempts.expect([HERE])
    assert attempts.quiet
    assert attempts.unknown([HERE]) == []
    assert attempts.count_attempts({HERE: 10}).empty
    assert said(progress(attempts, 10)) == ({HERE: 11}, {})


def test_where_no_start_is_known_nothing_is_counted() -> None:
    """As with files: nothing stands beside their line numbers."""
    attempts = Attempts(MAX_DEATHS, ALONE_ARTICLES)
    attempts.expect([HERE])
    assert attempts.count_attempts({HERE: 10}).empty
    assert attempts.quiet
    assert attempts.seal(Release((), {}), [HERE]).empty


# ---- lives


@dataclass(slots=True)
class Story:
    """One partition, some of whose records kill, and the processes that work on it one after the other."""

    records: Sequence[int]
    killers: Collection[int] = ()
    committed: int = 0
    mark: Mark = field(default_factory=Mark)
    done: list[int] = field(default_factory=list)
    blamed: list[int] = field(default_factory=list)
    died_alone: Counter[int] = field(default_factory=Counter)
    """By record: processes that ended while it was the only one in flight. The judge's own count."""
    lives: int = 0

    def live(self, at_once: int, steps: int, ending: Ending) -> None:
        """A process takes `at_once` records at a time, and ends after so many steps if no record ends it before."""
        self.lives += 1
        attempts = Attempts(MAX_DEATHS, ALONE_ARTICLES)
        self._begin(attempts)
        for step in range(steps):
            taken = [offset for offset in self.records if offset >= self.committed]
            taken = taken[: 1 if attempts.suspects else at_once]
            if not taken:
                break
            self._publish(attempts, attempts.count_attempts({HERE: taken[0]}))
            guilty = bool(attempts.suspects) and attempts.verdict(HERE, taken[0]) > 0
            if not guilty and (
                (self.killers and set(taken) & set(self.killers)) or (step, ending) == (steps - 1, "death")
            ):
                self.died_alone.update(taken if attempts.suspects else [])
                return
            if (step, ending) == (steps - 1, "rewind"):
                self._begin(attempts)
                continue
            (self.blamed if guilty else self.done).extend(taken)
            tickets = [ticket(offset) for offset in taken]
            self._publish(attempts, attempts.seal(Release(tickets, {HERE: taken[-1] + 1})))
            self._publish(attempts, attempts.clear({HERE: self.records[-1] + 1}))
        self._publish(attempts, attempts.seal(Release((), {}), [HERE]))

    @property
    def over(self) -> bool:
        """True when everything is committed."""
        return self.committed > self.records[-1]

    def _begin(self, attempts: Attempts) -> None:
        attempts.expect([HERE])
        attempts.begin(HERE, Start(self.committed, self.mark))

    def _publish(self, attempts: Attempts, release: Release) -> None:
        if not release.empty:
            assert release.committable[HERE] >= self.committed, "a committed offset only grows"
            self.committed, self.mark = release.committable[HERE], release.marks.get(HERE, Mark())
            attempts.note_committed(release)


OFFSETS = st.lists(st.integers(0, 60), min_size=1, max_size=30, unique=True).map(sorted)
LIVES = st.lists(
    st.tuples(st.integers(1, 8), st.integers(1, 6), st.sampled_from(["death", "leave", "rewind"])), max_size=40
)


@given(OFFSETS, LIVES)
def test_only_a_record_with_two_deaths_alone_is_ever_blamed(
    records: list[int], lives: list[tuple[int, int, Ending]]
) -> None:
    """However processes come and go: no record is blamed for deaths by chance among others, and each is done once."""
    story = Story(records)
    for at_once, steps, ending in lives:
        if not story.over:
            story.live(at_once, steps, ending)
    assert all(story.died_alone[offset] >= 2 for offset in story.blamed)
    assert sorted(story.done + story.blamed) == [offset for offset in records if offset < story.committed]


@given(OFFSETS, st.data())
def test_records_that_kill_are_found_and_nobody_else_is(records: list[int], data: st.DataObject) -> None:
    """Each costs at most `max_deaths` processes, the two that end alone with it, and the one that counts nothing."""
    killers = data.draw(st.sets(st.sampled_from(records), max_size=4))
    story, at_once = Story(records, killers), data.draw(st.integers(1, ALONE_ARTICLES))
    bound = 1 + len(killers) * (MAX_DEATHS + 3)
    while not story.over and story.lives <= bound:
        story.live(at_once, 1_000, "leave")
    assert story.over, f"not after {bound} processes"
    assert sorted(killers) == story.blamed
    assert sorted({*records} - killers) == story.done
    assert story.mark == Mark()


@given(OFFSETS, st.lists(st.sampled_from(["leave", "rewind"]), min_size=1, max_size=30))
def test_processes_that_end_in_order_never_make_a_suspect(records: list[int], endings: list[Ending]) -> None:
    """Ten deployments in a row at one offset are no death."""
    story = Story(records)
    for ending in endings:
        story.live(3, 1, ending)
        assert story.mark.attempts == 0
