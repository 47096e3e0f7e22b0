"""Limits on dead letters: a broken deployment (tokenizer, mapping, registry) must not dead-letter a whole topic.

A worker counts over all its partitions, in the order in which it publishes: dead letters in a row, and dead letters among
its last `window_articles` articles. A tombstone is no article and counts as nothing. A release that would exceed a limit is
cut before its first dead letter beyond the limit; the rest is committed, and the worker ends.

The counts of each partition are committed with its offset (`LetterCounts`), so they outlive the process. A process takes
over those of its partitions as what happened before its own first article: the row until it has enriched an article, the
dead letters as far as the window still reaches back. Of each limit, a twentieth is always left to it: a repaired deployment
has to get over the few bad articles that any feed has. So each start of a broken one may add as many dead letters.

Only the rule is here. The loop cuts releases; the sink commits the counts, and asks again about outputs that turn out to be
too large for their topic only while they are written.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from enricher.worker.records import DeadLetter, LetterCounts, Partition, Release, Start, Ticket, Tombstone

_NO_SUBSTITUTES: Mapping[Ticket, DeadLetter] = MappingProxyType({})
_REASONS, _EXAMPLES, _MESSAGE_CHARS = 3, 5, 300


@dataclass(frozen=True, slots=True)
class Limits:
    """How many dead letters there may be in a row, and which share of the last `window_articles`; 0 is no limit."""

    max_in_a_row: int = 0
    max_ratio: float = 0.0
    window_articles: int = 1

    @property
    def max_in_window(self) -> int:
        """The dead letters that there may be in a window. 0.29 * 100 is less than 29 in floating point."""
        return int(round(self.max_ratio * self.window_articles, 6))


def most_taken_over(limit: int) -> int:
    """How much of a limit the counts of earlier processes can take up."""
    return limit - max(1, limit // 20) if limit else 0


class _Letter(NamedTuple):
    """A dead letter of this process: the number of its article in the process, its position, and its stage and type."""

    number: int
    partition: Partition
    offset: int
    reason: str


@dataclass(slots=True)
class _Counts:
    """Counts what a process has published, and in `earlier` what others had published before it, by partition."""

    limits: Limits
    articles: int = 0
    enriched: bool = False
    rows: Counter[Partition] = field(default_factory=Counter)
    """Dead letters since the last enriched article."""
    letters: deque[_Letter] = field(default_factory=deque)
    """Those in the window, oldest first."""
    earlier: dict[Partition, LetterCounts] = field(default_factory=dict)

    def copy(self) -> _Counts:
        return replace(self, rows=self.rows.copy(), letters=self.letters.copy())

    def add(self, ticket: Ticket, letter: DeadLetter | None) -> None:
        """Count an article that was enriched, or became this dead letter."""
        self.articles += 1
        if letter is None:
            self.enriched = True
            self.rows.clear()
        else:
            raw = ticket.raw
            self.rows[raw.partition] += 1
            reason = f"{letter.stage}:{letter.error_type}"
            self.letters.append(_Letter(self.articles, raw.partition, raw.offset, reason))
        self._forget_older()

    def add_enriched(self, articles: int) -> None:
        """Count so many articles that were enriched."""
        if articles:
            self.articles += articles
            self.enriched = True
            self.rows.clear()
            self._forget_older()

    def _forget_older(self) -> None:
        while self.letters and self.letters[0].number <= self.articles - self.limits.window_articles:
            self.letters.popleft()

    def take_over(self, partition: Partition, letter_counts: LetterCounts) -> None:
        """Take over what others counted, without what this process counted if it had the partition before."""
        in_window = sum(letter.partition == partition for letter in self.letters)
        self.earlier[partition] = LetterCounts(
            in_a_row=max(0, letter_counts.in_a_row - self.rows[partition]),
            in_window=max(0, letter_counts.in_window - in_window),
        )

    def correct(self, partition: Partition, start: Start) -> None:
        """Count what a transaction committed although this process did not learn that it took effect."""
        counted, letter_counts = self.letter_counts([partition]).get(partition, LetterCounts()), start.letter_counts
        self.rows[partition] = max(0, self.rows[partition] + letter_counts.in_a_row - counted.in_a_row)
        missing = min(letter_counts.in_window - counted.in_window, self.limits.window_articles)
        unknown = _Letter(self.articles, partition, start.offset - 1, "transactions of unknown outcome")
        self.letters.extend([unknown] * missing)

    @property
    def earlier_in_a_row(self) -> int:
        if self.enriched:
            return 0
        in_a_row = sum(letter_counts.in_a_row for letter_counts in self.earlier.values())
        return min(in_a_row, most_taken_over(self.limits.max_in_a_row))

    @property
    def earlier_in_window(self) -> int:
        in_window = sum(letter_counts.in_window for letter_counts in self.earlier.values())
        return self._still_in_window(min(in_window, most_taken_over(self.limits.max_in_window)))

    def _still_in_window(self, earlier: int) -> int:
        """How many of so many earlier dead letters the window still holds, if they were spread evenly; rounded up."""
        window = self.limits.window_articles
        return -(-earlier * max(0, window - self.articles) // window)

    @property
    def in_a_row(self) -> int:
        return self.rows.total() + self.earlier_in_a_row

    @property
    def in_window(self) -> int:
        return len(self.letters) + self.earlier_in_window

    def letter_counts(self, partitions: Iterable[Partition]) -> dict[Partition, LetterCounts]:
        """The counts of these partitions, without those that say nothing."""
        in_window = Counter(letter.partition for letter in self.letters)
        found: dict[Partition, LetterCounts] = {}
        for partition in partitions:
            before = self.earlier.get(partition, LetterCounts())
            letter_counts = LetterCounts(
                in_a_row=self.rows[partition] + (0 if self.enriched else before.in_a_row),
                in_window=in_window[partition] + self._still_in_window(before.in_window),
            )
            if letter_counts != LetterCounts():
                found[partition] = letter_counts
        return found


class DeadLetterLimits:
    """The limits of one worker, and what it counts for them. Without limits it counts nothing."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._counts = _Counts(limits)
        self._unknown: set[Partition] = set()
        """Partitions whose counts are to be learned: they are new, or were rewound."""
        self._committed: dict[Partition, int] = {}
        """The offsets that are known to be committed, of partitions whose counts were taken over."""

    # ---- partitions come, go and are rewound

    def expect(self, partitions: Iterable[Partition]) -> None:
        """These are assigned now."""
        partitions = list(partitions)
        self.leave(partitions)
        self._unknown.update(partitions)

    def leave(self, partitions: Iterable[Partition]) -> None:
        """These are no longer assigned. What this process has published of them still counts."""
        for partition in partitions:
            self._unknown.discard(partition)
            self._committed.pop(partition, None)
            self._counts.earlier.pop(partition, None)

    def rewind(self, partitions: Iterable[Partition]) -> None:
        """These are read again from their committed offsets: a transaction of unknown outcome may have taken effect."""
        self._unknown.update(partitions)

    def learn(self, start_of: Callable[[Partition], Start | None]) -> None:
        """Take over the counts of partitions whose start is known by now."""
        for partition in list(self._unknown):
            if start := start_of(partition):
                self._unknown.discard(partition)
                committed = self._committed.get(partition)
                if committed is None:
                    self._counts.take_over(partition, start.letter_counts)
                elif committed != start.offset:
                    self._counts.correct(partition, start)
                self._committed[partition] = start.offset

    # ---- releases

    @property
    def used(self) -> Mapping[str, float]:
        """How much of each limit that is set is used up, 0 to 1, by the limit's name."""
        counts, limits = self._counts, self._limits
        used = {
            "max_in_a_row": (counts.in_a_row, limits.max_in_a_row),
            "max_ratio": (counts.in_window, limits.max_in_window),
        }
        return {name: min(1.0, count / most) for name, (count, most) in used.items() if most}

    def cut(self, release: Release) -> tuple[Release, str | None]:
        """The part of a release that may be committed, and, if that is not all of it, why."""
        beyond = self._first_beyond(release.tickets)
        if beyond is None:
            return release, None
        index, counts = beyond
        return release.first(index), self._reason(counts, release.tickets[index])

    def allows(self, tickets: Sequence[Ticket], substitutes: Mapping[Ticket, DeadLetter]) -> bool:
        """Whether these may be committed with some dead letters instead of their outcomes."""
        return not substitutes or self._first_beyond(tickets, substitutes) is None

    def seal(self, release: Release, substitutes: Mapping[Ticket, DeadLetter] = _NO_SUBSTITUTES) -> Release:
        """Add the counts of its partitions to a release, as they are once it is committed."""
        if not self._is_on:
            return release
        counts = self._counts
        if release.tickets:
            counts = counts.copy()
            _add(counts, release.tickets, substitutes)
        return replace(release, letter_counts=counts.letter_counts(release.committable))

    def note_committed(self, release: Release, substitutes: Mapping[Ticket, DeadLetter]) -> None:
        """Count what was committed."""
        if self._is_on:
            _add(self._counts, release.tickets, substitutes)
            self._committed.update(release.committable)

    # ---- inside

    @property
    def _is_on(self) -> bool:
        return bool(self._limits.max_in_a_row or self._limits.max_in_window)

    def _first_beyond(
        self, tickets: Sequence[Ticket], substitutes: Mapping[Ticket, DeadLetter] = _NO_SUBSTITUTES
    ) -> tuple[int, _Counts] | None:
        """The index of the first one beyond a limit, and the counts with it; None if all are within the limits."""
        if not self._is_on or not (substitutes or _any_letter(tickets)):
            return None
        counts = self._counts.copy()
        for index, ticket in enumerate(tickets):
            letter = _letter_of(ticket, substitutes)
            if letter or not isinstance(ticket.outcome, Tombstone):
                counts.add(ticket, letter)
            if letter and (self._is_too_long(counts) or self._is_too_many(counts)):
                return index, counts
        return None

    def _is_too_long(self, counts: _Counts) -> bool:
        return bool(self._limits.max_in_a_row) and counts.in_a_row > self._limits.max_in_a_row

    def _is_too_many(self, counts: _Counts) -> bool:
        return bool(self._limits.max_in_window) and counts.in_window > self._limits.max_in_window

    def _reason(self, counts: _Counts, beyond: Ticket) -> str:
        """Which limit the last dead letter in `counts` exceeds, and what the others are."""
        letter, limits, raw = beyond.outcome, self._limits, beyond.raw
        assert isinstance(letter, DeadLetter), "only a dead letter exceeds a limit"
        if self._is_too_long(counts):
            which, earlier = f"{limits.max_in_a_row} in a row (dead_letters.max_in_a_row)", counts.earlier_in_a_row
        else:
            share = f"{limits.max_in_window} of {limits.window_articles} articles"
            which, earlier = f"{share} (dead_letters.max_ratio, dead_letters.window_articles)", counts.earlier_in_window
        before = f", {earlier} of them counted from earlier processes" if earlier else ""
        reasons = Counter(each.reason for each in counts.letters).most_common(_REASONS)
        examples = list(counts.letters)[-_EXAMPLES - 1 : -1]
        places = ", ".join(f"{each.partition.topic}[{each.partition.number}] offset {each.offset}" for each in examples)
        return (
            f"dead letters reach the limit of {which}{before}; the next would be "
            f"{raw.partition.topic}[{raw.partition.number}] offset {raw.offset}: {letter.message[:_MESSAGE_CHARS]}. "
            "It and what is behind it is not committed. "
            f"Reasons here: {', '.join(f'{reason} ({count})' for reason, count in reasons)}"
            f"{f'; such as {places}' if places else ''}. "
            "If the deployment is wrong (tokenizer, mapping, registry), repair it: the next start goes on here. "
            "If these articles are wrong, raise the limit until they are passed"
        )


def _add(counts: _Counts, tickets: Sequence[Ticket], substitutes: Mapping[Ticket, DeadLetter]) -> None:
    if not (substitutes or _any_letter(tickets)):
        counts.add_enriched(sum([not isinstance(ticket.outcome, Tombstone) for ticket in tickets]))
        return
    for ticket in tickets:
        letter = _letter_of(ticket, substitutes)
        if letter or not isinstance(ticket.outcome, Tombstone):
            counts.add(ticket, letter)


def _any_letter(tickets: Sequence[Ticket]) -> bool:
    return any(isinstance(ticket.outcome, DeadLetter) for ticket in tickets)


def _letter_of(ticket: Ticket, substitutes: Mapping[Ticket, DeadLetter]) -> DeadLetter | None:
    letter = substitutes.get(ticket, ticket.outcome)
    return letter if isinstance(letter, DeadLetter) else None
