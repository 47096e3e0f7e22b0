"""The health of several worker processes under one parent: the parent's own loop, and what the children answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from http import HTTPStatus
from typing import Any, Protocol

import orjson

from enricher.health.asking import ask, ask_all
from enricher.health.merging import PLAIN, merged
from enricher.health.page import PROCESS_PAGE
from enricher.health.probes import Verdict
from enricher.health.replies import Asked, Reply, Route, line
from enricher.health.view import Facts

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
    """Answers for all of them on one port."""

    def __init__(self, facts: Facts, parent: Parent, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._facts = facts
        self._parent = parent
        self._clock = clock
        self._began_s = clock()

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
        return Verdict(ok=self._parent.ready, reason=self._summary())

    def started(self) -> Verdict:
        """Whether all have been ready once."""
        return Verdict(ok=self._parent.started, reason="started" if self._parent.started else self._summary())

    def metrics(self, accept: str) -> tuple[bytes, str]:
        """Those of all, each sample with its process."""
        answers = ask_all(self._parent.health_ports(), "/metrics", PLAIN)
        return merged({number: body.decode() for number, body in answers.items()}, accept)

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

    def _summary(self) -> str:
        states = list(map(str, self._parent.states().values()))
        return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))


def _page(_asked: Asked) -> Reply:
    return Reply(HTTPStatus.OK, "text/html; charset=utf-8", PROCESS_PAGE.body, PROCESS_PAGE.headers)
