"""A schema registry that may be away, and what a worker has of its schemas. The first word of a title names a schema."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from random import Random

from loop.fake_clock import TICK_S, FakeClock
from loop.fake_model import read

from enricher.errors import InvalidArticle, SchemaPending
from enricher.worker.records import Article, RawRecord, Skipped
from enricher.worker.runtime.deadlines import Wakeup
from enricher.worker.stats import SchemaState

SKIPPED = b"skipped\nby the team's own code"
"""An article that has no output."""
UNKNOWN = "schema:unknown"
"""A schema that the registry does not know."""
_NAMED = re.compile(rb"schema:\w+")
_RETRY_S = 128 * TICK_S


def with_schema(name: str, value: bytes) -> bytes:
    """The same article, by this schema."""
    return f"schema:{name} ".encode() + value


@dataclass(slots=True)
class FakeRegistry:
    """Outside the workers. While `away` it answers nobody."""

    away: bool = False


class FakeSchemas:
    """What one process has: reads records, and is the port of the worker.

    A schema that is here may be dropped again at any time, as from a full cache, if `forgets` says so.
    """

    def __init__(
        self, registry: FakeRegistry, clock: FakeClock, wakeup: Wakeup, random: Random, *, forgets: float = 0.0
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._wakeup = wakeup
        self._random = random
        self._forgets = forgets
        self._here: set[str] = set()
        self._wanted: dict[str, object] = {}
        self._answered: list[str] = []
        self.closed = False
        self.waited = 0
        """How often a record had to wait."""

    def read(self, raw: RawRecord) -> Article | Skipped:
        """The article, if its schema is here."""
        if raw.value == SKIPPED:
            return Skipped()
        named = _NAMED.match(raw.value or b"")
        if named is None:
            return read(raw)
        name = named[0].decode()
        if name not in self._here:
            self._ask(name)
            self.waited += 1
            raise SchemaPending(name)
        if self._random.random() < self._forgets:
            self._here.remove(name)
        if name == UNKNOWN:
            raise InvalidArticle("unknown")
        return read(raw)

    def take_answered(self) -> Collection[str]:
        """What came since the last call."""
        answered, self._answered = self._answered, []
        return answered

    def abandon(self, references: Collection[str]) -> None:
        """Want these no longer."""
        for name in references:
            self._wanted.pop(name, None)

    def state(self) -> SchemaState:
        """How many are wanted."""
        return SchemaState(wanted=len(self._wanted))

    def answer(self, *names: str) -> None:
        """These have come."""
        self._here.update(names)
        self._answered += names

    def close(self) -> None:
        """Let go."""
        self.closed = True

    def _ask(self, name: str) -> None:
        if name not in self._wanted:
            self._wanted[name] = request = object()
            self._clock.after(self._random.randint(1, 64) * TICK_S, lambda: self._try(name, request))

    def _try(self, name: str, request: object) -> None:
        if self.closed or self._wanted.get(name) is not request:
            return
        if self._registry.away:
            self._clock.after(_RETRY_S, lambda: self._try(name, request))
            return
        del self._wanted[name]
        self.answer(name)
        self._wakeup.set()
