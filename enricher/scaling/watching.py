"""What the scaler knows of each group and topic it is asked about: the last look, the speeds, the number that follows.

KEDA asks for the metric and the activity at each of its turns, and Kubernetes' autoscaler for the metric again: what was
seen a moment ago is answered again. What cannot be seen now is an error, never a 0.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from enricher.errors import BrokerError, FatalError
from enricher.kafka.client import KafkaConfig
from enricher.scaling.asked import Asked
from enricher.scaling.backlog import Backlog
from enricher.scaling.policy import Load, Rules, is_active, wanted_workers
from enricher.scaling.rates import Rates
from enricher.scaling.reading import BacklogReader

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)

_FRESH_S = 2.0
MOST_OTHERS = 8
"""Groups and topics beside the configured pair: each takes a dozen threads of its own for its connections, and whoever
reaches the port may name one."""
IDLE_S = 120.0
"""KEDA asks every 15 to 30 s: a pair that nobody has asked for in so long is forgotten where another one wants its place."""
_OTHERS_AT_ONCE = 16
"""Questions about others that are answered at the same time, so that threads are left for the configured pair."""


class TooMany(Exception):
    """More groups and topics than one scaler watches, or more questions about them than it answers at once."""


class Reader(Protocol):
    """What a watch asks."""

    def look(self, timeout_s: float | None = None) -> Backlog:
        """What is unprocessed now; may block for `timeout_s`. Raises BrokerError."""
        ...

    def close(self) -> None:
        """Let go of the connections."""
        ...


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen, and what one set of rules makes of it."""

    load: Load
    wanted: int

    @property
    def active(self) -> bool:
        """Whether there must be a worker at all."""
        return is_active(self.load)

    def __str__(self) -> str:
        load = self.load
        speed = "unknown" if load.per_worker_per_s is None else f"{load.per_worker_per_s:.1f}/s"
        age = "unknown" if math.isinf(load.age_s) else f"{load.age_s:.0f} s"
        return (
            f"{self.wanted} workers wanted, {load.workers} there: {load.waiting} waiting in {load.waiting_partitions} of "
            f"{load.partitions} partitions, the oldest for {age}; {load.arriving_per_s:.1f}/s come, a worker does {speed}"
        )


class Watch:
    """One group on one topic. Any thread may ask; one at a time looks."""

    def __init__(self, make_reader: Callable[[], Reader], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._make_reader = make_reader
        self._clock = clock
        self._lock = threading.Lock()
        self._reader: Reader | None = None
        self._rates = Rates()
        self._load: Load | None = None
        self._looked_s = -math.inf
        self.asked_s = clock()
        """When it was last asked for."""

    def see(self, rules: Rules, timeout_s: float) -> Seen:
        """What is unprocessed, and what `rules` make of it. Raises BrokerError where it is not known in time."""
        until_s = self._clock() + timeout_s
        with self._alone(timeout_s):
            if self._load is None or self._clock() - self._looked_s >= _FRESH_S:
                self._load = self._look(max(0.0, until_s - self._clock()))
            return Seen(self._load, wanted_workers(self._load, rules))

    def close(self) -> None:
        """Let go of the connections."""
        with self._lock:
            self._drop()

    def _look(self, timeout_s: float) -> Load:
        self._load = None
        try:
            self._reader = self._reader or self._make_reader()
            backlog = self._reader.look(timeout_s)
        except BaseException:
            self._drop()  # whatever state its clients are in: the next look begins with new ones
            raise
        self._looked_s = self._clock()
        self._rates.note(backlog, self._looked_s)
        return Load(
            waiting=backlog.behind,
            age_s=math.inf if (age_s := backlog.known_age_s) is None else age_s,
            waiting_partitions=backlog.waiting_partitions,
            partitions=len(backlog.partitions),
            workers=backlog.workers,
            arriving_per_s=self._rates.arriving_per_s,
            per_worker_per_s=self._rates.per_worker_per_s,
        )

    def _drop(self) -> None:
        reader, self._reader = self._reader, None
        if reader:
            reader.close()

    @contextmanager
    def _alone(self, timeout_s: float) -> Iterator[None]:
        if not self._lock.acquire(timeout=timeout_s):
            raise BrokerError("the look that another call began has not come to its end")
        try:
            yield
        finally:
            self._lock.release()


class Watches:
    """All that this scaler was asked about. `config` is the settings' own; others differ in group and topic alone.

    The configured pair has a place for good. There are `most_others` for others: one that is idle gives way to a new one.
    """

    def __init__(
        self,
        config: KafkaConfig,
        *,
        most_others: int = MOST_OTHERS,
        make_reader: Callable[[KafkaConfig], Reader] = BacklogReader,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._configured = config.group_id, config.input_topic
        self._most_others = most_others
        self._make_reader = make_reader
        self._clock = clock
        self._lock = threading.Lock()
        self._others = threading.BoundedSemaphore(_OTHERS_AT_ONCE)
        self._watches: dict[tuple[str, str], Watch] = {}
        self._said: dict[tuple[str, str], int | str] = {}

    def see(self, asked: Asked, timeout_s: float | None = None) -> Seen:
        """What is unprocessed, and what is wanted, within the request timeout. Raises FatalError and TooMany."""
        bound_s = self._config.request_timeout_s
        try:
            with self._turn(asked):
                seen = self._watch(asked).see(asked.rules, min(bound_s, timeout_s or bound_s))
        except FatalError as error:
            self._say(asked, str(error), logging.WARNING, str(error))
            raise
        self._say(asked, seen.wanted, logging.INFO, str(seen))
        return seen

    def close(self) -> None:
        """Let go of all connections."""
        for watch in self._watches.values():
            watch.close()

    @contextmanager
    def _turn(self, asked: Asked) -> Iterator[None]:
        """The configured pair's turn always comes; of others so many at once. Raises TooMany."""
        if (asked.group, asked.topic) == self._configured:
            yield
            return
        if not self._others.acquire(blocking=False):
            raise TooMany(f"one scaler answers {_OTHERS_AT_ONCE} questions about other groups and topics at once")
        try:
            yield
        finally:
            self._others.release()

    def _watch(self, asked: Asked) -> Watch:
        key, idle = (asked.group, asked.topic), None
        with self._lock:
            watch = self._watches.get(key)
            if watch is None:
                idle = self._make_room(key)
                config = replace(self._config, group_id=asked.group, input_topic=asked.topic)
                watch = self._watches[key] = Watch(lambda: self._make_reader(config), clock=self._clock)
            watch.asked_s = self._clock()
        if idle:
            idle.close()  # not under the lock: to close a client takes its time
        return watch

    def _make_room(self, key: tuple[str, str]) -> Watch | None:
        """For a pair that is not watched; the one that it takes the place of is the caller's to close. Raises TooMany."""
        others = {each: watch for each, watch in self._watches.items() if each != self._configured}
        if key == self._configured or len(others) < self._most_others:
            return None
        oldest = min(others, key=lambda each: others[each].asked_s, default=None)
        if oldest is None or self._clock() - others[oldest].asked_s < IDLE_S:
            raise TooMany(f"one scaler watches {self._most_others} other groups and topics at most (--max-others)")
        self._said.pop(oldest, None)
        return self._watches.pop(oldest)

    def _say(self, asked: Asked, what: int | str, level: int, text: str) -> None:
        """Log what is new: the same number, or the same trouble, at each of KEDA's turns is not."""
        key = asked.group, asked.topic
        if self._said.get(key) != what:
            self._said[key] = what
            log.log(level, "group %s on %s: %s", asked.group, asked.topic, text)
