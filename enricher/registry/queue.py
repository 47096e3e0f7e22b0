"""Which schema to ask for next, and when: a pure rule, for one thread at a time.

Three kinds of requests take turns: for what was asked first, for what most articles wait for, and for what failed before and
is due again. So neither a stream of ids that nobody knows nor a schema that the registry fails on holds up others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from enricher.codec.schemas import SchemaRef

FIRST_PAUSE_S = 0.5
"""After a failure; it doubles with each further one."""
INTERVAL_S = 0.02
"""After an answer without a schema: a stream of unknown ids makes at most fifty requests per second. Each takes 4 ms of
processor time here. Schemas that are there are fetched once, so they are asked for without a pause."""
CONFIRM_S = 1.0
"""A follower in a cluster of registries may not know yet what the leader has registered, so an unknown id is asked twice."""
_KINDS = 3


@dataclass(slots=True, eq=False)
class Wanted:
    """A schema that articles wait for."""

    reference: SchemaRef
    asked: int = 1
    """How many times, which is about how many articles wait for it."""
    failures: int = 0
    unknown: bool = False
    """The registry has said once that it does not know it."""
    due_s: float = 0.0


class Queue:
    """The schemas that are wanted, and when each may be asked for."""

    def __init__(self, retry_max_s: float) -> None:
        self._retry_max_s = retry_max_s
        self._wanted: dict[SchemaRef, Wanted] = {}
        self._turn = 0
        self._failures = 0
        """Requests in a row that failed, whatever they asked for."""
        self.free_s = 0.0
        """When the next request may be sent."""

    def __len__(self) -> int:
        return len(self._wanted)

    def __contains__(self, reference: SchemaRef) -> bool:
        return reference in self._wanted

    @property
    def failing(self) -> bool:
        """True if a schema that is wanted could not be asked for, or not with an answer."""
        return any(each.failures for each in self._wanted.values())

    def add(self, reference: SchemaRef) -> bool:
        """Want a schema; False if it is wanted already."""
        if wanted := self._wanted.get(reference):
            wanted.asked += 1
            return False
        self._wanted[reference] = Wanted(reference)
        return True

    def drop(self, references: Iterable[SchemaRef]) -> None:
        """Want these no longer."""
        for reference in references:
            self._wanted.pop(reference, None)

    def next(self, now_s: float) -> Wanted | None:
        """What to ask for now."""
        if now_s < self.free_s:
            return None
        due = [each for each in self._wanted.values() if each.due_s <= now_s]
        if not due:
            return None
        fresh = [each for each in due if not each.failures]
        failed = [each for each in due if each.failures]
        for _ in range(_KINDS):
            self._turn = (self._turn + 1) % _KINDS
            if self._turn == 0 and failed:
                return min(failed, key=lambda each: each.due_s)
            if self._turn == 1 and fresh:
                return fresh[0]
            if self._turn == 2 and fresh:
                return max(fresh, key=lambda each: each.asked)
        raise AssertionError("what is due is fresh or has failed")

    def next_s(self) -> float | None:
        """When to ask `next` again; None if nothing is wanted."""
        due_s = min((each.due_s for each in self._wanted.values()), default=None)
        return None if due_s is None else max(due_s, self.free_s)

    def answered(self, now_s: float, *, found: bool) -> None:
        """Note that a request was answered, whether with a schema or not."""
        self._failures = 0
        self.free_s = now_s if found else now_s + INTERVAL_S

    def postponed(self, wanted: Wanted, now_s: float) -> None:
        """Note that the registry does not know it, for the first time."""
        wanted.unknown = True
        wanted.due_s = now_s + CONFIRM_S

    def failed(self, wanted: Wanted, now_s: float) -> None:
        """Note that a request for it failed: pause with everything, and with this one."""
        self._failures += 1
        wanted.failures += 1
        self.free_s = now_s + self._pause_s(self._failures)
        wanted.due_s = now_s + self._pause_s(wanted.failures)

    def _pause_s(self, failures: int) -> float:
        # Capped at 2^20, far above the longest pause, so that the float cannot overflow.
        return min(self._retry_max_s, FIRST_PAUSE_S * 2.0 ** min(failures - 1, 20))
