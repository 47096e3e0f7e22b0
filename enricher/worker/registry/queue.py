"""Which schemas to ask for next, when, and when to stop asking: a pure rule, for one thread at a time.

Several ids are asked for at once: those that were wanted first, those that were wanted last, and those that most articles
wait for. Ids that failed before take turns with them. So neither a stream of unknown ids nor ids that the registry fails on
hold up others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import nlargest, nsmallest

from enricher.worker.articles.schemas import SchemaRef
from enricher.worker.rules.pauses import doubling_pause_s

FIRST_PAUSE_S = 0.5
"""The pause after a failure; it doubles with each further one."""
INTERVAL_S = 0.005
"""The pause after each answer without a schema: a stream of unknown ids causes at most 200 requests per second, each of
which takes 1.4 ms of our processor time. Schemas that exist are fetched once, so they are asked for without a pause."""
CONFIRM_S = 1.0
"""An answer or a file may have been cut short, so a schema that cannot be used is asked for again after this time."""
AWAY_INTERVAL_S = 1.0
"""While the registry answers nothing, an id that was never asked for is tried at this interval: it may be answered."""
FEWEST_FAILURES = 5
"""An id is given up after at least so many failures."""
MANY_UNKNOWN = 100
"""After so many unknown ids in a row, one that a single article names is refused at the first answer."""
ROW_S = 10.0
"""A pause of this length between unknown ids ends their row."""
REMEMBERED_S = 60.0
"""A refused id is remembered for this time after its last request, which is twice as long as a refusal counts."""
MAX_REMEMBERED = 20_000
AT_ONCE = 8
"""The number of ids that are asked for together."""
_OLDEST, _NEWEST = 3, 2
"""The numbers of those that came first and last; the others are those that most articles wait for."""


@dataclass(frozen=True, slots=True)
class Patience:
    """The bounds of waiting for a schema; `worker/settings/registry.py` explains each. `give_up_s` 0: for ever."""

    retry_max_s: float
    unknown_wait_s: float
    give_up_s: float


@dataclass(slots=True, eq=False)
class Wanted:
    """A schema that articles wait for."""

    reference: SchemaRef
    asked: int = 1
    """The number of requests for it, which is about the number of articles that wait for it."""
    refused_since_s: float | None = None
    """When the registry first answered that it has no such schema, or one that cannot be used."""
    failures: int = 0
    """Requests without an answer since the last one with an answer."""
    blamed: int = 0
    """The number of them that failed while the registry answered about other ids."""
    blamed_since_s: float | None = None
    trouble: tuple[str, int | None] | None = None
    """The last failure while others were answered: the kind of reference, and HTTP's status."""
    due_s: float = 0.0


@dataclass(slots=True)
class _Trouble:
    """Ids that fail in the same way while others are answered."""

    since_s: float
    last_s: float


@dataclass(frozen=True, slots=True)
class _Refused:
    """An id that was refused, and what was known about it."""

    refused_since_s: float | None
    blamed_since_s: float | None
    last_s: float


class Queue:
    """The schemas that are wanted, and when each may be asked for. At most one for each article in flight."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._wanted: dict[SchemaRef, Wanted] = {}
        self._failing: set[SchemaRef] = set()
        self._refused: OrderedDict[SchemaRef, _Refused] = OrderedDict()
        """The least recent first."""
        self._troubles: dict[tuple[str, int | None], _Trouble] = {}
        self._failed_last = False
        self._outages = 0
        """The number of times in a row that the registry answered nothing."""
        self._away_until_s = 0.0
        self._unknown_in_a_row = 0
        self._last_unknown_s = 0.0
        self.free_s = 0.0
        """The time from which the next request may be sent."""

    def __len__(self) -> int:
        return len(self._wanted)

    def __contains__(self, reference: SchemaRef) -> bool:
        return reference in self._wanted

    @property
    def failing(self) -> bool:
        """True if a request for a wanted schema could not be sent, or was not answered."""
        return bool(self._failing)

    def add(self, reference: SchemaRef, now_s: float) -> bool:
        """Want a schema; False if it is wanted already."""
        if wanted := self._wanted.get(reference):
            wanted.asked += 1
            return False
        wanted = self._wanted[reference] = Wanted(reference)
        past = self._refused.get(reference)
        if past and now_s - past.last_s <= REMEMBERED_S:
            wanted.refused_since_s, wanted.blamed_since_s = past.refused_since_s, past.blamed_since_s
            wanted.blamed = 0 if past.blamed_since_s is None else FEWEST_FAILURES - 1
        return True

    def drop(self, references: Iterable[SchemaRef]) -> None:
        """Want these no longer."""
        for reference in references:
            self._wanted.pop(reference, None)
            self._failing.discard(reference)

    def next(self, now_s: float) -> list[Wanted]:
        """The schemas to ask for now, together: at most `AT_ONCE`."""
        if now_s < self.free_s:
            return []
        due = [each for each in self._wanted.values() if self._due_s(each) <= now_s]
        failed = [each for each in due if each.failures]
        fresh = [each for each in due if not each.failures]
        self._failed_last = bool(failed) and not (fresh and self._failed_last)
        if self._failed_last:
            return nsmallest(1 if self._outages else AT_ONCE, failed, key=lambda each: each.due_s)
        if self._outages:
            return fresh[:1]
        most_wanted = nlargest(AT_ONCE, fresh, key=lambda each: each.asked)
        return [*dict.fromkeys((*fresh[:_OLDEST], *fresh[-_NEWEST:], *most_wanted))][:AT_ONCE]

    def next_s(self) -> float | None:
        """The time to call `next` again; None if nothing is wanted."""
        due_s = min(map(self._due_s, self._wanted.values()), default=None)
        return None if due_s is None else max(due_s, self.free_s)

    # ---- what became of requests

    def note_answer(self, now_s: float, *, found: bool) -> None:
        """Note that the registry answered, whether with a schema or not."""
        self._outages, self._away_until_s = 0, 0.0
        self.free_s = max(self.free_s, now_s) + (0.0 if found else INTERVAL_S)

    def note_found(self, wanted: Wanted) -> None:
        """Note that the registry has the schema, and want it no longer."""
        self._unknown_in_a_row = 0
        self._refused.pop(wanted.reference, None)
        self._recover(wanted)
        self.drop([wanted.reference])

    def is_refused(self, wanted: Wanted, now_s: float, *, unknown: bool) -> bool:
        """Note that there is no such schema (`unknown`) or that it cannot be used; True if that is final.

        False: ask again, as a follower in a cluster of registries may lag behind its leader.
        """
        wait_s = self._patience.unknown_wait_s if unknown else CONFIRM_S
        self._recover(wanted)
        if wanted.refused_since_s is None:
            wanted.refused_since_s = now_s
            if unknown and self._one_of_many(wanted, now_s):
                return True
        observed_s = now_s - wanted.refused_since_s
        wanted.due_s = min(wanted.refused_since_s + wait_s, now_s + max(CONFIRM_S, observed_s))
        return observed_s >= wait_s

    def refuse(self, wanted: Wanted, now_s: float) -> float:
        """Want the schema no longer, since its articles are refused. Return for how long the reason was observed."""
        reference, since = wanted.reference, (wanted.refused_since_s, wanted.blamed_since_s)
        self._refused.pop(reference, None)
        self._refused[reference] = _Refused(*since, now_s)
        if len(self._refused) > MAX_REMEMBERED:
            self._refused.popitem(last=False)
        self.drop([reference])
        return now_s - min((each for each in since if each is not None), default=now_s)

    def note_failure(self, wanted: Wanted, now_s: float) -> None:
        """Note a request without an answer: do not ask for this id during a pause."""
        wanted.failures += 1
        wanted.due_s = now_s + self._pause_s(wanted.failures)
        if self._wanted.get(wanted.reference) is wanted:  # else no article waits for it any more
            self._failing.add(wanted.reference)
        self.free_s = max(self.free_s, now_s) + INTERVAL_S

    def blame(self, wanted: Wanted, status: int | None, now_s: float) -> bool:
        """Note that an id failed while the registry answers about others; return True if it has failed for too long.

        Ids that fail in the same way share their time, so that a stream of new ones does not wait for each.
        """
        limit_s = self._patience.give_up_s
        wanted.blamed += 1
        since_s = wanted.blamed_since_s = now_s if wanted.blamed_since_s is None else wanted.blamed_since_s
        wanted.trouble = wanted.reference.kind, status
        trouble = self._troubles.setdefault(wanted.trouble, _Trouble(since_s, now_s))
        if now_s - trouble.last_s > max(limit_s, 2 * self._patience.retry_max_s):
            trouble.since_s = since_s
        trouble.last_s = now_s
        return 0 < limit_s <= now_s - min(since_s, trouble.since_s) and wanted.blamed >= FEWEST_FAILURES

    def away(self, now_s: float) -> None:
        """Note that the registry answers nothing: ask for nothing during a pause, and blame no id."""
        self._outages += 1
        pause_s = self._pause_s(self._outages)
        self._away_until_s, self.free_s = now_s + pause_s, now_s + min(pause_s, AWAY_INTERVAL_S)
        self._troubles.clear()
        for wanted in self._wanted.values():
            wanted.blamed, wanted.blamed_since_s, wanted.trouble = 0, None, None

    # ---- inside

    def _due_s(self, wanted: Wanted) -> float:
        never_asked = not wanted.failures and wanted.refused_since_s is None
        return wanted.due_s if never_asked else max(wanted.due_s, self._away_until_s)

    def _recover(self, wanted: Wanted) -> None:
        """Forget its failures. Waiting has helped, so the time of ids that fail in the same way begins again."""
        if wanted.trouble:
            self._troubles.pop(wanted.trouble, None)
        self._failing.discard(wanted.reference)
        wanted.failures, wanted.blamed, wanted.blamed_since_s, wanted.trouble = 0, 0, None, None

    def _one_of_many(self, wanted: Wanted, now_s: float) -> bool:
        self._unknown_in_a_row = 1 if now_s - self._last_unknown_s > ROW_S else self._unknown_in_a_row + 1
        self._last_unknown_s = now_s
        return self._unknown_in_a_row > MANY_UNKNOWN and wanted.asked == 1

    def _pause_s(self, failures: int) -> float:
        return doubling_pause_s(failures, first_s=FIRST_PAUSE_S, longest_s=self._patience.retry_max_s)
