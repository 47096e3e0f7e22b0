"""The limits on dead letters: what is committed within them, what a restart adds, and that a healthy feed goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from math import exp, log, log1p

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.plain_records import plain_record

from enricher.worker.records import (
    Article,
    Coverage,
    DeadLetter,
    LetterCounts,
    Outcome,
    Partition,
    RawRecord,
    Release,
    Start,
    Ticket,
    Tombstone,
)
from enricher.worker.rules.dead_letter_limits import DeadLetterLimits, Limits, most_taken_over
from enricher.worker.settings.worker import DeadLetterSettings

PLACES = [Partition("articles", number) for number in range(3)]
OUTCOMES: dict[str, Outcome] = {
    "+": plain_record(Article("", "", ""), (), Coverage(1, 1, truncated=False)),
    "-": DeadLetter("decode", "InvalidArticle", "id is missing at /uuid"),
    ".": Tombstone(),
}
DEFAULTS = DeadLetterSettings()
LETTERS_IN_ROW = st.integers(1, 6)
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
        self.letter_counts: dict[Partition, LetterCounts] = {}

    def start_of(self, partition: Partition) -> Start:
        """Where a process begins."""
        return Start(self.next[partition], letter_counts=self.letter_counts.get(partition, LetterCounts()))

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
        self.rule = DeadLetterLimits(limits)
        self.rule.expect(places)
        self.rule.learn(offsets.start_of)

    def publish(self, story: str, partition: Partition = PLACES[0]) -> str | None:
        """Commit what may be; returns why it was not all."""
        release, why = self.rule.cut(self._offsets.release(story, partition))
        self._offsets.next.update(release.committable)
        self._offsets.letter_counts.update(dict.fromkeys(release.committable, LetterCounts()))
        self._offsets.letter_counts.update(self.rule.seal(release).letter_counts)
        self.rule.note_committed(release, {})
        return why


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


@given(limits=LIMITS, stories=STORIES, restarts=st.sets(st.integers(0, 11)))
def test_a_restart_adds_at_most_a_twentieth_to_a_row(
    limits: Limits, stories: list[tuple[str, Partition]], restarts: set[int]
) -> None:
    """Whatever ends the processes: the counts are beside the offsets."""
    offsets, published, starts = Offsets(), "", 1
    process = Process(offsets, limits)
    for index, (story, partition) in enumerate(stories):
        if index in restarts:
            process, starts = Process(offsets, limits), starts + 1
        before = offsets.next[partition]
        process.publish(story, partition)
        published += story[: offsets.next[partition] - before]
    row = limits.max_in_a_row
    if row:
        assert longest_row(published) <= row + (starts - 1) * (row - most_taken_over(row))


@pytest.mark.parametrize("max_in_a_row", [1, 10, 300])
def test_a_crash_loop_does_not_walk_through_the_topic(max_in_a_row: int) -> None:
    """Of a thousand bad articles a start, the first start commits the limit, and each later one a twentieth of it."""
    offsets, limits = Offsets(), Limits(max_in_a_row, 0.5, 1_000)
    committed = []
    for _ in range(20):
        before = sum(offsets.next.values())
        process = Process(offsets, limits)
        assert any(process.publish("-" * 400, place) for place in PLACES)
        committed.append(sum(offsets.next.values()) - before)
    assert [max_in_a_row] + [max(1, max_in_a_row // 20)] * 19 == committed


def test_the_ratio_outlives_processes_too() -> None:
    """Four of five articles are bad: after the first start, 20 more hardly get anywhere."""
    offsets, limits = Offsets(), Limits(0, 0.5, 1_000)
    assert Process(offsets, limits).publish("----+" * 400)
    assert offsets.next[PLACES[0]] == 625, "500 of them are dead letters"
    for _ in range(20):
        assert Process(offsets, limits).publish("----+" * 400)
    assert offsets.next[PLACES[0]] - 625 < 20 * 100


def test_a_process_that_has_enriched_an_article_takes_over_no_row() -> None:
    """It can read articles, so the partitions of a broken worker do not end it as well."""
    offsets, limits = Offsets(), Limits(100, 0.5, 1_000)
    assert Process(offsets, limits, PLACES[:1]).publish("-" * 400)
    healthy = Process(offsets, limits, PLACES[1:])
    healthy.publish("+" * 2_000, PLACES[1])
    healthy.rule.expect(PLACES[:1])
    healthy.rule.learn(offsets.start_of)
    assert healthy.rule.used == {"max_in_a_row": 0.0, "max_ratio": 0.0}
    assert healthy.publish("-" * 50 + "+") is None


def test_a_repaired_deployment_goes_on() -> None:
    """Although a bad article is the first that it finds, at the place where the broken one ended."""
    offsets, limits = Offsets(), Limits(DEFAULTS.max_in_a_row, DEFAULTS.max_ratio, DEFAULTS.window_articles)
    assert Process(offsets, limits).publish("-" * 400)
    repaired = Process(offsets, limits)
    assert "285 of them counted from earlier processes" in (Process(offsets, limits).publish("-" * 400) or "")
    assert repaired.publish("-" * 10 + "+" * 190) is None
    assert repaired.publish("-" * 10 + "+" * 190) is None


def test_a_partition_that_comes_back_is_not_counted_twice() -> None:
    """Nor does it leave more to the process than it had, however often it comes back."""
    offsets, limits = Offsets(), Limits(100, 0.5, 1_000)
    process = Process(offsets, limits)
    process.publish("-" * 40)
    for _ in range(3):
        process.rule.leave(PLACES[:1])
        process.rule.expect(PLACES[:1])
        process.rule.learn(offsets.start_of)
        assert process.rule.used["max_in_a_row"] == 0.4


@pytest.mark.parametrize("effective", [False, True])
@pytest.mark.parametrize("before", ["", "+"])
def test_a_transaction_of_unknown_outcome_counts_if_it_took_effect(before: str, *, effective: bool) -> None:
    """Its letter_counts is found beside the offset, and no recovery leaves more to the process than it had."""
    offsets, limits = Offsets(), Limits(100, 0.5, 1_000)
    process = Process(offsets, limits)
    process.publish(before + "-" * 40)
    for _ in range(3):
        release = offsets.release("-" * 20)
        sealed = process.rule.seal(release)
        if effective:
            offsets.next.update(release.committable)
            offsets.letter_counts.update(sealed.letter_counts)
        process.rule.rewind(PLACES)
        process.rule.learn(offsets.start_of)
    assert process.rule.used["max_in_a_row"] == (1.0 if effective else 0.4)
    assert process.rule.used["max_ratio"] == (0.2 if effective else 0.08)
    assert process.publish("-" * 60) is None or effective
    assert process.publish("-")


@pytest.mark.parametrize("letter_counts", [LetterCounts(10**10, 10**10), LetterCounts(10**9, 0)])
def test_counts_that_somebody_else_wrote_are_bounded(letter_counts: LetterCounts) -> None:
    """Anybody may commit offsets for the group: no count leaves less than a twentieth, or takes time."""
    offsets = Offsets()
    offsets.letter_counts[PLACES[0]] = letter_counts
    process = Process(offsets, Limits(300, 0.5, 1_000))
    assert all(used <= 0.95 for used in process.rule.used.values())
    assert process.publish("-" * 15) is None


@pytest.mark.parametrize(
    ("limits", "story", "committed"),
    [
        (Limits(1, 0, 1), "--", 1),
        (Limits(1, 0, 1), "-+-+-.-", 6),
        (Limits(0, 1.0, 10), "-" * 100, 100),
        (Limits(0, 0.1, 10), "-+++++++++-+++-", 14),
        (Limits(0, 0.29, 100), "-" * 30, 29),
        (Limits(0, 0, 1), "-" * 100, 100),
    ],
)
def test_limits_at_their_edges(limits: Limits, story: str, committed: int) -> None:
    """One in a row, all of a window, one of a window; a share that floating point makes smaller; none."""
    offsets = Offsets()
    process = Process(offsets, limits)
    assert (process.publish(story) is None) == (committed == len(story))
    assert committed == offsets.next[PLACES[0]]


def test_dead_letters_instead_of_large_outputs_count_before_they_are_committed() -> None:
    """Only writing shows them; with them the release may be beyond a limit that it was within."""
    offsets = Offsets()
    process, release = Process(offsets, Limits(3, 0, 1)), offsets.release("--+-")
    letter = DeadLetter("publish", "OutputTooLarge", "too large")
    assert process.rule.cut(release) == (release, None)
    assert process.rule.allows(release.tickets, {})
    assert not process.rule.allows(release.tickets, {release.tickets[2]: letter})
    assert process.rule.seal(release).letter_counts == {PLACES[0]: LetterCounts(1, 1)}
    assert process.rule.seal(release, {release.tickets[2]: letter}).letter_counts == {PLACES[0]: LetterCounts(4, 1)}


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


# ---- false stops


LOG_FACTORIALS = [0.0, *accumulate(map(log, range(1, 1 + DEFAULTS.window_articles)))]


def at_least(count: int, articles: int, share: float) -> float:
    """The probability that at least so many of independent articles are bad."""
    logs, bad_one, good_one = LOG_FACTORIALS, log(share), log1p(-share)
    return sum(
        exp(logs[articles] - logs[bad] - logs[articles - bad] + bad * bad_one + (articles - bad) * good_one)
        for bad in range(count, articles + 1)
    )


def false_stops(share: float, articles: float) -> float:
    """Upper bound of the expected false stops in so many articles: each one may end a row, and a window, that is too bad."""
    row = share ** (DEFAULTS.max_in_a_row + 1)
    max_in_window = Limits(0, DEFAULTS.max_ratio, DEFAULTS.window_articles).max_in_window
    return articles * (row + at_least(max_in_window + 1, DEFAULTS.window_articles, share))


def after_a_restart(share: float) -> Iterator[float]:
    """The same for a process that takes over as much as it can: for each number of articles after its start."""
    spare_row = DEFAULTS.max_in_a_row - most_taken_over(DEFAULTS.max_in_a_row)
    yield share ** (spare_row + 1)
    window, most = DEFAULTS.window_articles, Limits(0, DEFAULTS.max_ratio, DEFAULTS.window_articles).max_in_window
    for articles in range(1, window + 1):
        earlier = -(-most_taken_over(most) * (window - articles) // window)
        if most - earlier < articles:
            yield at_least(most - earlier + 1, articles, share)


def test_a_feed_with_bad_articles_goes_on_for_ever() -> None:
    """With the defaults and 5 % bad articles there is no false stop in a billion years of a thousand articles a second."""
    assert false_stops(0.05, articles=1e9 * 366 * 86_400 * 1_000) < 1e-300
    assert false_stops(0.30, articles=1e12) < 1e-25
    assert false_stops(0.60, articles=1e6) > 1, "guards the test: of a feed that is mostly bad, there are"
    assert sum(after_a_restart(0.05)) < 1e-15, "nor once in 10^15 restarts, each taking over all that it can"


def test_a_topic_of_which_nothing_can_be_read_stops_after_some_hundred() -> None:
    """With the defaults."""
    offsets = Offsets()
    limits = Limits(DEFAULTS.max_in_a_row, DEFAULTS.max_ratio, DEFAULTS.window_articles)
    assert Process(offsets, limits).publish("-" * 5_000)
    assert sum(offsets.next.values()) == 300
