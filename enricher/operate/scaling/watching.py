"""The scaler's knowledge of each group and topic: the last backlog, the speeds, and the number of workers that follows.

In each cycle KEDA asks for the metric and the activity, and Kubernetes' autoscaler for the metric again, so a recent answer
is reused. A backlog that cannot be read now is an error, never 0.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from enricher.errors import BrokerError, FatalError
from enricher.operate.scaling.policy import Load, Rules, is_active, wanted_workers
from enricher.operate.scaling.rates import Rates
from enricher.operate.scaling.reading import BacklogReader
from enricher.operate.scaling.trigger import Trigger
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.runtime.deadlines import Deadline
from enricher.worker.runtime.repeats import Repeats

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)

_FRESH_S = 2.0
MAX_OTHERS = 8
"""Groups and topics besides the configured pair. Each takes about a dozen threads for its connections, and any client of the
port may name one."""
IDLE_S = 120.0
"""KEDA asks every 15 to 30 s. A pair that was not asked for during this time is dropped when a new one needs its place."""
_MAX_OTHER_CALLS = 16
"""Concurrent calls for other pairs; the remaining threads are for the configured pair."""


class TooMany(Exception):
    """Too many groups and topics for one scaler, or too many concurrent calls for them."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The load, and the number of workers that one set of rules derives from it."""

    load: Load
    wanted: int

    @property
    def active(self) -> bool:
        """Whether at least one worker is needed."""
        return is_active(self.load)

    def __str__(self) -> str:
        load = self.load
        speed = "unknown" if load.per_worker_per_s is None else f"{load.per_worker_per_s:.1f}/s"
        age = "unknown" if math.isinf(load.age_s) else f"{load.age_s:.0f} s"
        return (
            f"{self.wanted} workers wanted, {load.workers} running: {load.waiting} waiting in {load.waiting_partitions} of "
            f"{load.partitions} partitions, the oldest for {age}; {load.arriving_per_s:.1f}/s arrive, a worker does {speed}"
        )


class Watch:
    """One group on one topic. Thread-safe: one thread at a time reads the backlog."""

    def __init__(
        self, make_reader: Callable[[], BacklogReader], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._make_reader = make_reader
        self._clock = clock
        self._lock = threading.Lock()
        self._reader: BacklogReader | None = None
        self._rates = Rates()
        self._load: Load | None = None
        self._looked_s = -math.inf
        self.used_s = clock()
        """When a call last named this pair."""

    def fresh(self, rules: Rules) -> Seen | None:
        """The result of `see` if that needs no look; None if it does. Never blocks."""
        load = self._load
        if load is None or self._clock() - self._looked_s >= _FRESH_S:
            return None
        self.used_s = self._clock()
        return Seen(load, wanted_workers(load, rules))

    def see(self, rules: Rules, timeout_s: float) -> Seen:
        """The load, and what `rules` derive from it. Raises BrokerError if it cannot be read in time."""
        deadline = Deadline(timeout_s, self._clock)
        with holding(self._lock, BrokerError("another call is still reading the backlog"), timeout_s):
            if self._load is None or self._clock() - self._looked_s >= _FRESH_S:
                self._load = self._look(deadline.left_s())
            return Seen(self._load, wanted_workers(self._load, rules))

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            self._drop()

    def _look(self, timeout_s: float) -> Load:
        self._load = None
        try:
            self._reader = self._reader or self._make_reader()
            backlog = self._reader.look(timeout_s)
        except BaseException:
            self._drop()  # the state of its clients is unknown: the next look begins with new ones
            raise
        self._looked_s = self._clock()
        return self._rates.note(backlog, self._looked_s)

    def _drop(self) -> None:
        reader, self._reader = self._reader, None
        if reader:
            reader.close()


@contextmanager
def holding(lock: threading.Lock | threading.Semaphore, refusal: Exception, timeout_s: float = 0.0) -> Iterator[None]:
    """Hold the lock in the body; raises `refusal` if it is not free in time."""
    if not lock.acquire(timeout=timeout_s):
        raise refusal
    try:
        yield
    finally:
        lock.release()


class Watches:
    """All groups and topics of this scaler. `config` is that of the settings; other pairs differ only in group and topic.

    The configured pair is always kept. There is capacity for `max_others` more: a new pair replaces an idle one.
    """

    def __init__(
        self,
        config: KafkaConfig,
        *,
        max_others: int = MAX_OTHERS,
        make_reader: Callable[[KafkaConfig], BacklogReader] = BacklogReader,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._configured = config.group_id, ",".join(config.inputs)
        self._max_others = max_others
        self._make_reader = make_reader
        self._clock = clock
        self._lock = threading.Lock()
        self._others = threading.BoundedSemaphore(_MAX_OTHER_CALLS)
        self._watches: dict[tuple[str, str], Watch] = {}
        self._logged = Repeats()

    def see(self, trigger: Trigger, timeout_s: float | None = None) -> Seen:
        """The load and the wanted number of workers, within the request timeout. Raises FatalError and TooMany."""
        bound_s = self._config.request_timeout_s
        try:
            with self._admit(trigger):
                seen = self._watch(trigger).see(trigger.rules, min(bound_s, timeout_s or bound_s))
        except FatalError as error:
            self._log(trigger, str(error), logging.WARNING, str(error))
            raise
        self._log(trigger, seen.wanted, logging.INFO, str(seen))
        return seen

    def fresh(self, trigger: Trigger) -> Seen | None:
        """The look of the last two seconds; None without one. Never blocks."""
        watch = self._watches.get((trigger.group, trigger.topic))
        return watch.fresh(trigger.rules) if watch else None

    def close(self) -> None:
        """Close all connections."""
        for watch in self._watches.values():
            watch.close()

    def _admit(self, trigger: Trigger) -> AbstractContextManager[None]:
        """Always admits the configured pair, and a limited number of calls for others. Raises TooMany."""
        if (trigger.group, trigger.topic) == self._configured:
            return nullcontext()
        refusal = f"one scaler answers at most {_MAX_OTHER_CALLS} calls for other groups and topics at once"
        return holding(self._others, TooMany(refusal))

    def _watch(self, trigger: Trigger) -> Watch:
        key, idle = (trigger.group, trigger.topic), None
        with self._lock:
            watch = self._watches.get(key)
            if watch is None:
                idle = self._evicted_for(key)
                first, *others = trigger.topic.split(",")
                config = replace(self._config, group_id=trigger.group, input_topic=first, other_inputs=tuple(others))
                watch = self._watches[key] = Watch(lambda: self._make_reader(config), clock=self._clock)
            watch.used_s = self._clock()
        if idle:
            idle.close()  # not under the lock: closing a client takes time
        return watch

    def _evicted_for(self, key: tuple[str, str]) -> Watch | None:
        """The idle watch that a new pair replaces, which the caller must close. Raises TooMany."""
        others = {each: watch for each, watch in self._watches.items() if each != self._configured}
        if key == self._configured or len(others) < self._max_others:
            return None
        oldest = min(others, key=lambda each: others[each].used_s, default=None)
        if oldest is None or self._clock() - others[oldest].used_s < IDLE_S:
            raise TooMany(f"one scaler watches at most {self._max_others} other groups and topics (--max-others)")
        self._logged.forget(oldest)
        return self._watches.pop(oldest)

    def _log(self, trigger: Trigger, news: int | str, level: int, text: str) -> None:
        """Log only changes: KEDA asks all the time, and mostly gets the same number or the same error."""
        key = trigger.group, trigger.topic
        if self._logged.is_new(key, news):
            log.log(level, "group %s on %s: %s", trigger.group, trigger.topic, text)
