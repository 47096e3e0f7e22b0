"""The health of several worker processes under one parent: the parent's own loop, and its processes' answers."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

import orjson

from enricher.worker.health.children import ask, ask_all, merge
from enricher.worker.health.owners import Holding, Ownerless, Owners
from enricher.worker.health.page import PROCESS_PAGE
from enricher.worker.health.routes import ProbeResult, Reply, Route, html, line
from enricher.worker.processes import ProcessState, Supervisor
from enricher.worker.telemetry.instruments import OLDEST_AGE, REPORT_AGE
from enricher.worker.telemetry.observed import WorkerFacts
from enricher.worker.telemetry.prometheus import PLAIN, exposition_of

NO_PROCESS = "none"
"""Value of the label `process` for partitions without an owner."""
TURN_LIMIT_S = 30.0
"""The parent's loop turns once a second; its longest step, starting a process, takes far less than this."""


class ProcessesHealth:
    """Answers for all processes on one port. `handed_out_s`: see `Owners`."""

    def __init__(
        self,
        facts: WorkerFacts,
        parent: Supervisor,
        *,
        handed_out_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._facts = facts
        self._parent = parent
        self._clock = clock
        self._began_s = clock()
        self._owners, self._lock = Owners(handed_out_s, clock), threading.Lock()

    # ---- called by the command

    def note_owners(self) -> None:
        """Note which partitions each process owns; called every `EVERY_S` seconds."""
        pids, seen_s = self._parent.pids(), self._clock()
        for number, body in ask_all(self._ports(), f"/status.json?since={time.time()!r}").items():
            if number in pids:
                with self._lock:
                    self._owners.note(number, holding_of(orjson.loads(body), pids[number], seen_s))

    # ---- called by the server

    def liveness(self) -> ProbeResult:
        """Ok while the parent's own loop turns: a hanging process is ended by its watchdog, or by the parent."""
        age_s = self._parent.turn_age_s
        if age_s > TURN_LIMIT_S:
            return ProbeResult(ok=False, reason=f"the parent's loop has not turned for {age_s:.0f} s")
        return ProbeResult(ok=True, reason="the parent's loop turns")

    def readiness(self) -> ProbeResult:
        """Ok while all processes are ready and every partition has an owner."""
        if self._parent.stopping:
            return ProbeResult(ok=False, reason="draining")
        summary, found = self._summary(), self._without_owner()
        if found.partitions:
            reason = f"{summary}; {found.partitions} partitions without an owner, since a process ended or is silent"
            return ProbeResult(ok=False, reason=reason)
        return ProbeResult(ok=self._parent.ready, reason=summary)

    def startup(self) -> ProbeResult:
        """Ok once all processes have been ready."""
        return ProbeResult(ok=self._parent.started, reason="started" if self._parent.started else self._summary())

    def metrics(self, accept: str) -> tuple[bytes, str]:
        """The samples of all processes, with the label `process`; `none` for the age of partitions without an owner."""
        answers = ask_all(self._ports(), "/metrics", PLAIN)
        texts = {
            str(number): answers.get(number, b"").decode() + exposition_of(REPORT_AGE, age_s)
            for number, age_s in self._parent.report_ages_s().items()
        }
        found = self._without_owner()
        if found.partitions:
            texts[NO_PROCESS] = exposition_of(OLDEST_AGE, found.oldest_age_s)
        return merge(texts, accept)

    def status(self, since: float = 0.0) -> dict[str, Any]:
        """The state of each process, and its own status."""
        pids, ages_s = self._parent.pids(), self._parent.report_ages_s()
        answers = ask_all(self._ports(), f"/status.json?since={since!r}")
        return {
            "now": time.time(),
            "uptime_s": self._clock() - self._began_s,
            "live": asdict(self.liveness()),
            "ready": asdict(self.readiness()),
            "worker": asdict(self._facts),
            "without_owner": asdict(self._without_owner()),
            "processes": [
                {
                    "number": number,
                    "state": str(state),
                    "pid": pids.get(number),
                    "report_age_s": ages_s.get(number),
                    "status": orjson.loads(answers[number]) if number in answers else None,
                }
                for number, state in self._parent.states().items()
            ],
        }

    # ---- the pages of single processes

    def routes(self) -> Mapping[str, Route]:
        """The page of each process under `/process/N/`, with the status and metrics that it reads."""
        return {
            path: route
            for number in self._parent.states()
            for path, route in (
                (f"/process/{number}/", lambda _request: html(PROCESS_PAGE)),
                (f"/process/{number}/status.json", self._status_of(number)),
                (f"/process/{number}/metrics", self._metrics_of(number)),
            )
        }

    def _status_of(self, number: int) -> Route:
        return lambda request: self._fetch(number, f"/status.json?since={request.since!r}", "application/json")

    def _metrics_of(self, number: int) -> Route:
        return lambda _request: self._fetch(number, "/metrics", "text/plain; version=0.0.4; charset=utf-8")

    def _fetch(self, number: int, path: str, content_type: str) -> Reply:
        port = self._ports().get(number)
        body = ask(port, path, PLAIN) if port else None
        if body is None:
            return line(HTTPStatus.BAD_GATEWAY, f"process {number} does not answer")
        return Reply(HTTPStatus.OK, content_type, body)

    def _ports(self) -> Mapping[int, int]:
        """The ports of the processes that can answer. Asking a silent one would only cost its timeout."""
        states = self._parent.states()
        return {
            number: port
            for number, port in self._parent.health_ports().items()
            if states[number] is not ProcessState.SILENT
        }

    def _without_owner(self) -> Ownerless:
        """The partitions without an owner. A silent process counts as ended: it neither reads them nor reports their lag."""
        states = self._parent.states()
        pids = {number: pid for number, pid in self._parent.pids().items() if states[number] is not ProcessState.SILENT}
        with self._lock:
            for number, state in states.items():
                if state is ProcessState.DONE:
                    self._owners.note_end(number)
            return self._owners.without_owner(pids)

    def _summary(self) -> str:
        return ", ".join(f"{count} {state}" for state, count in Counter(self._parent.states().values()).items())


def holding_of(status: Mapping[str, Any], pid: int, seen_s: float) -> Holding:
    """The partitions that a process reports in its `/status.json`; none while it starts."""
    partitions = {f"{each['topic']}-{each['number']}": int(each["lag"]) for each in status.get("partitions", ())}
    return Holding(pid, partitions, float(status.get("oldest_age_s", 0.0)), seen_s)
