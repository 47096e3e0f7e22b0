"""Limits on dead letters: a broken deployment (tokenizer, mapping, registry) must not dead-letter a whole topic.

A worker counts over all its partitions, in the order in which it publishes: dead letters in a row, and dead letters among
its last `window_articles` articles. A tombstone is no article and counts as nothing. A release that would exceed a limit is
cut before its first dead letter beyond the limit; the rest is committed, and the worker ends.

The limit that it reached is committed with the offset of that dead letter (`ReachedLimit`). A worker that is assigned such a
partition ends before it reads it, unless its own limit is higher: else each start of a crash loop would add a limit's worth
of dead letters. `enricher dead-letters accept` removes the mark. The counts themselves end with the process, and do not
include a transaction whose outcome it did not learn.

Only the rule is here. The loop cuts releases; the sink asks again about outputs that turn out to be too large for their
topic only while they are written.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from enricher.errors import TooManyDeadLetters
from enricher.worker.records import DeadLetter, Partition, ReachedLimit, Release, Skipped, Start, Ticket, Tombstone

_REASONS, _EXAMPLES, _MESSAGE_CHARS = 3, 5, 300


@dataclass(frozen=True, slots=True)
class Limits:
    """The most dead letters in a row, and the largest share of the last `window_articles`; 0 is no limit."""

    max_in_a_row: int = 0
    max_ratio: float = 0.0
    window_articles: int = 1

    @property
    def max_in_window(self) -> int:
        """The most dead letters in a window, rounded because 0.29 * 100 is less than 29 in floating point."""
        return int(round(self.max_ratio * self.window_articles, 6))

    @property
    def are_set(self) -> bool:
        """Whether there is any limit."""
        return bool(self.max_in_a_row or self.max_in_window)

    def refuse(self, reached: ReachedLimit) -> bool:
        """Whether our limit is no higher than the one at which a worker ended."""
        return 0 < self.max_in_a_row <= reached.in_a_row or 0 < self.max_in_window <= reached.in_window


class _Letter(NamedTuple):
    """A dead letter: the number of its article in the process, its position, and its stage and type."""

    number: int
    partition: Partition
    offset: int
    reason: str


@dataclass(slots=True)
class _Counts:
    """Counts what a process has published."""

    limits: Limits
    articles: int = 0
    in_a_row: int = 0
    """Dead letters since the last enriched article."""
    letters: deque[_Letter] = field(default_factory=deque)
    """The dead letters in the window, oldest first."""

    def copy(self) -> _Counts:
        return replace(self, letters=self.letters.copy())

    def add(self, ticket: Ticket, letter: DeadLetter | None) -> None:
        """Count an article that was enriched, or became this dead letter. Tombstones and skipped articles do not count."""
        if letter is None:
            self.add_enriched(_is_enriched(ticket))
            return
        self.articles += 1
        self.in_a_row += 1
        raw = ticket.raw
        self.letters.append(_Letter(self.articles, raw.partition, raw.offset, f"{letter.stage}:{letter.error_type}"))
        self._forget_older()

    def add_enriched(self, articles: int) -> None:
        """Count so many articles that were enriched."""
        if articles:
            self.articles += articles
            self.in_a_row = 0
            self._forget_older()

    def _forget_older(self) -> None:
        while self.letters and self.letters[0].number <= self.articles - self.limits.window_articles:
            self.letters.popleft()

    @property
    def reached(self) -> ReachedLimit | None:
        """The limit that the last dead letter exceeds."""
        limits, reason = self.limits, self.letters[-1].reason if self.letters else ""
        if 0 < limits.max_in_a_row < self.in_a_row:
            return ReachedLimit(in_a_row=limits.max_in_a_row, reason=reason)
        if 0 < limits.max_in_window < len(self.letters):
            return ReachedLimit(in_window=limits.max_in_window, reason=reason)
        return None


@dataclass(frozen=True, slots=True)
class Cut:
    """The place of the dead letter before which a release was cut, the limit that it exceeds, and a message for the log."""

    partition: Partition
    offset: int
    reached: ReachedLimit
    message: str


class DeadLetterLimits:
    """The limits of one worker of a group, and what it counts for them. Without limits it counts nothing."""

    def __init__(self, limits: Limits, group: str = "") -> None:
        self._limits = limits
        self._group = group
        self._counts = _Counts(limits)
        self._unchecked: set[Partition] = set()
        """Partitions whose start is not known yet."""

    # ---- partitions come, go and are rewound

    def expect(self, partitions: Iterable[Partition]) -> None:
        """Note that partitions were assigned or rewound: reading begins at their committed offsets."""
        if self._limits.are_set:
            self._unchecked.update(partitions)

    def leave(self, partitions: Iterable[Partition]) -> None:
        """Note that partitions are no longer ours."""
        self._unchecked.difference_update(partitions)

    def check_starts(self, start_of: Callable[[Partition], Start | None]) -> None:
        """Raise TooManyDeadLetters if a worker ended at a limit where a partition begins, and ours is not higher.

        Call it before anything of a partition is committed: that would remove the mark.
        """
        if not self._unchecked:
            return
        starts = {partition: start for partition in self._unchecked if (start := start_of(partition))}
        self._unchecked.difference_update(starts)
        if marked := {at: start for at, start in starts.items() if self._limits.refuse(start.reached_limit)}:
            places = ", ".join(
                f"{_place(at, start.offset)} ({start.reached_limit.reason}; {self._name(start.reached_limit)})"
                for at, start in sorted(marked.items())
            )
            message = f"a worker of this group ended at its limit of dead letters, and none reads on there: {places}"
            raise TooManyDeadLetters(f"{message}. {self._advice}")

    # ---- releases

    @property
    def used(self) -> Mapping[str, float]:
        """How much of each limit that is set is used up, 0 to 1, by the limit's name."""
        counts, limits = self._counts, self._limits
        used = {
            "max_in_a_row": (counts.in_a_row, limits.max_in_a_row),
            "max_ratio": (len(counts.letters), limits.max_in_window),
        }
        return {name: min(1.0, count / most) for name, (count, most) in used.items() if most}

    def cut(self, release: Release) -> tuple[Release, Cut | None]:
        """The part of a release that may be committed, and where it was cut if that is not all of it.

        What is cut off begins at an offset that is committed too, for the mark.
        """
        beyond = self._first_beyond(release.tickets, {})
        if beyond is None:
            return release, None
        index, counts, reached = beyond
        ticket, part = release.tickets[index], release.first(index)
        raw = ticket.raw
        part = replace(part, committable={**part.committable, raw.partition: raw.offset})
        return part, Cut(raw.partition, raw.offset, reached, self._reason(counts, reached, ticket))

    def allows(self, tickets: Sequence[Ticket], substitutes: Mapping[Ticket, DeadLetter]) -> bool:
        """Whether these tickets may be committed with `substitutes` instead of some outcomes."""
        return not substitutes or self._first_beyond(tickets, substitutes) is None

    def note_committed(self, tickets: Sequence[Ticket], substitutes: Mapping[Ticket, DeadLetter]) -> None:
        """Count what was committed."""
        if not self._limits.are_set:
            return
        if not (substitutes or _any_letter(tickets)):
            self._counts.add_enriched(sum(map(_is_enriched, tickets)))
            return
        for ticket in tickets:
            self._counts.add(ticket, _letter_of(ticket, substitutes))

    # ---- inside

    def _first_beyond(
        self, tickets: Sequence[Ticket], substitutes: Mapping[Ticket, DeadLetter]
    ) -> tuple[int, _Counts, ReachedLimit] | None:
        """The index of the first dead letter beyond a limit, and the counts with it; None if all are within the limits."""
        if not self._limits.are_set or not (substitutes or _any_letter(tickets)):
            return None
        counts = self._counts.copy()
        for index, ticket in enumerate(tickets):
            letter = _letter_of(ticket, substitutes)
            counts.add(ticket, letter)
            if letter and (reached := counts.reached):
                return index, counts, reached
        return None

    def _reason(self, counts: _Counts, reached: ReachedLimit, beyond: Ticket) -> str:
        """The reason to stop: which limit the last dead letter in `counts` exceeds, and what the other letters are."""
        letter, raw = beyond.outcome, beyond.raw
        assert isinstance(letter, DeadLetter), "only a dead letter exceeds a limit"
        reasons = Counter(each.reason for each in counts.letters).most_common(_REASONS)
        examples = list(counts.letters)[-_EXAMPLES - 1 : -1]
        places = ", ".join(_place(each.partition, each.offset) for each in examples)
        return (
            f"dead letters reach the limit of {self._name(reached)}; the next would be "
            f"{_place(raw.partition, raw.offset)}: {letter.loggable[:_MESSAGE_CHARS]}. "
            "It and what is behind it is not committed. "
            f"Reasons here: {', '.join(f'{reason} ({count})' for reason, count in reasons)}"
            f"{f'; such as {places}' if places else ''}. {self._advice}"
        )

    def _name(self, reached: ReachedLimit) -> str:
        if reached.in_a_row:
            return f"{reached.in_a_row} in a row (dead_letters.max_in_a_row)"
        share = f"{reached.in_window} of {self._limits.window_articles} articles"
        return f"{share} (dead_letters.max_ratio)"

    @property
    def _advice(self) -> str:
        return (
            "If the deployment is wrong (tokenizer, mapping, registry), repair it. Then stop the workers, run `enricher "
            f"dead-letters accept {self._group}`, and start them: they go on there, and count from 0. If these articles are "
            "wrong, do the same, or raise the limit until they are passed"
        )


def _place(partition: Partition, offset: int) -> str:
    return f"{partition.topic}[{partition.number}] offset {offset}"


def _is_enriched(ticket: Ticket) -> bool:
    return not isinstance(ticket.outcome, Tombstone | Skipped)


def _any_letter(tickets: Sequence[Ticket]) -> bool:
    return any(isinstance(ticket.outcome, DeadLetter) for ticket in tickets)


def _letter_of(ticket: Ticket, substitutes: Mapping[Ticket, DeadLetter]) -> DeadLetter | None:
    letter = substitutes.get(ticket, ticket.outcome)
    return letter if isinstance(letter, DeadLetter) else None
