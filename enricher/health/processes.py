"""The health of several worker processes under one parent: the parent's own loop, and what the children answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from http import HTTPStatus
from typing import Any, Protocol

import orjson

from enricher.health.asking import ask, ask_all
from enricher.health.merging import PLAIN, merged
from enricher.health.owners import Holding, Ownerless, Owners
from enricher.health.page import PROCESS_PAGE
from enricher.health.probes import Verdict
from enricher.health.replies import Asked, Reply, Route, line
from enricher.health.samples import EVERY_S
from enricher.health.view import Facts

NOBODY = "none"
"""The process of what no process has, in the metrics."""
DONE = "done"
"""The state of a process that left the group in good order."""
TURN_LIMIT_S = 30.0
"""The parent's loop turns once a second; starting a process, its longest step, takes far less than this."""


class Parent(Protocol):
    """What is asked of the supervisor, in the server's threads."""

    @property
    def ready(self) -> bool:
        """Every process that has something to do is ready."""

    @property
    def started(self) -> bool:
        """They all were, once."""

    @property
    def stopping(self) -> bool:
        """All were asked to end."""

    @property
    def turn_age_s(self) -> float:
        """Since its loop began a turn."""

    def states(self) -> Mapping[int, str]:
        """How each process stands."""

    def pids(self) -> Mapping[int, int]:
        """Their process ids, of those that run."""

    def health_ports(self) -> Mapping[int, int]:
        """Where they answer for themselves, those that do."""


class ProcessesHealth:
    """Answers for all of them on one port.

    `handed_out_s`: after so long the broker has given the partitions of a process that was killed to others.
    `oldest_metric`: an exposition of the age of the oldest unprocessed record.
    """

    def __init__(
        self,
        facts: Facts,
        parent: Parent,
        *,
        handed_out_s: float,
        oldest_metric: Callable[[float], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._facts = facts
        self._parent = parent
        self._clock = clock
        self._began_s = clock()
        self._oldest_metric = oldest_metric
        self._owners, self._lock = Owners(handed_out_s, clock), threading.Lock()
        self._over = threading.Event()

    # ---- told by the command

    def keep_looking(self) -> None:
        """Note every now and then which partitions each process has, until `close`: for a thread of its own."""
        while not self._over.wait(EVERY_S):
            self.look()

    def look(self) -> None:
        """Note it now."""
        pids, seen_s = self._parent.pids(), self._clock()
        for number, body in ask_all(self._parent.health_ports(), f"/status.json?since={time.time()!r}").items():
            if number in pids:
                with self._lock:
                    self._owners.note(number, holding_of(orjson.loads(body), pids[number], seen_s))

    def close(self) -> None:
        """Look no more."""
        self._over.set()

    # ---- asked by the probes

    def live(self) -> Verdict:
        """Whether the parent's own loop turns: a process that hangs is ended by its watchdog, and started again."""
        age_s = self._parent.turn_age_s
        if age_s > TURN_LIMIT_S:
            return Verdict(ok=False, reason=f"the parent's loop has not turned for {age_s:.0f} s")
        return Verdict(ok=True, reason="the parent's loop turns")

    def ready(self) -> Verdict:
        """Whether all are."""
        if self._parent.stopping:
            return Verdict(ok=False, reason="draining")
        summary, found = self._summary(), self._without_owner()
        if found.partitions:
            reason = f"{summary}; {found.partitions} partitions without an owner, since a process ended"
            return Verdict(ok=False, reason=reason)
        return Verdict(ok=self._parent.ready, reason=summary)

    def started(self) -> Verdict:
        """Whether all have been ready once."""
        return Verdict(ok=self._parent.started, reason="started" if self._parent.started else self._summary())

    def metrics(self, accept: str) -> tuple[bytes, str]:
        """Those of all, each sample with its process; the age of what has no owner is that of process `none`."""
        answers = ask_all(self._parent.health_ports(), "/metrics", PLAIN)
        texts = {str(number): body.decode() for number, body in answers.items()}
        found = self._without_owner()
        if found.partitions:
            texts[NOBODY] = self._oldest_metric(found.oldest_age_s)
        return merged(texts, accept)

    def status(self, since: float = 0.0) -> dict[str, Any]:
        """How each one stands, and what it says of itself."""
        ports, pids = self._parent.health_ports(), self._parent.pids()
        answers = ask_all(ports, f"/status.json?since={since!r}")
        return {
            "now": time.time(),
            "uptime_s": self._clock() - self._began_s,
            "live": asdict(self.live()),
            "ready": asdict(self.ready()),
            "worker": asdict(self._facts),
            "without_owner": asdict(self._without_owner()),
            "processes": [
                {
                    "number": number,
                    "state": str(state),
                    "pid": pids.get(number),
                    "status": orjson.loads(answers[number]) if number in answers else None,
                }
                for number, state in self._parent.states().items()
            ],
        }

    # ---- what others are made of

    def routes(self) -> Mapping[str, Route]:
        """The page of each process and what it asks for, under `/process/N/`."""
        return {
            path: route
            for number in self._parent.states()
            for path, route in (
                (f"/process/{number}/", _page),
                (f"/process/{number}/status.json", self._status_of(number)),
                (f"/process/{number}/metrics", self._metrics_of(number)),
            )
        }

    def _status_of(self, number: int) -> Route:
        return lambda asked: self._passed_on(number, f"/status.json?since={asked.since!r}", "application/json")

    def _metrics_of(self, number: int) -> Route:
        return lambda _asked: self._passed_on(number, "/metrics", "text/plain; version=0.0.4; charset=utf-8")

    def _passed_on(self, number: int, path: str, content_type: str) -> Reply:
        port = self._parent.health_ports().get(number)
        body = ask(port, path, PLAIN) if port else None
        if body is None:
            return line(HTTPStatus.BAD_GATEWAY, f"process {number} does not answer")
        return Reply(HTTPStatus.OK, content_type, body)

    def _without_owner(self) -> Ownerless:
        pids, states = self._parent.pids(), self._parent.states()
        with self._lock:
            for number, state in states.items():
                if str(state) == DONE:
                    self._owners.ended(number)
            return self._owners.without_owner(pids)

    def _summary(self) -> str:
        states = list(map(str, self._parent.states().values()))
        return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))


def holding_of(status: Mapping[str, Any], pid: int, seen_s: float) -> Holding:
    """What a process says of its partitions in its `/status.json`; while it starts, it says nothing of them."""
    partitions = {f"{each['topic']}-{each['number']}": int(each["lag"]) for each in status.get("partitions", ())}
    return Holding(pid, partitions, float(status.get("oldest_age_s", 0.0)), seen_s)


def _page(_asked: Asked) -> Reply:
    return Reply(HTTPStatus.OK, "text/html; charset=utf-8", PROCESS_PAGE.body, PROCESS_PAGE.headers)
