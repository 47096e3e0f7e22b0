"""Requests, replies, and the answer of each path, in a worker and in a parent of several. Knows no server sockets."""

from __future__ import annotations

import http.client
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import orjson

from enricher.worker.health.page import PAGE

PROBES = LIVE, READY, STARTED = ("/livez", "/readyz", "/startupz")


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The answer to a probe. `reason` is one line and contains no text of an article."""

    ok: bool
    reason: str


class Health(ABC):
    """Gives the answers of the routes of a process, in threads of the server. Probes do not block.

    `step`: the first step of its start.
    """

    def __init__(self, step: str) -> None:
        self._step = step

    @property
    @abstractmethod
    def is_built(self) -> bool:
        """Whether everything is built and connected."""

    def note_step(self, step: str) -> None:
        """Note which step of the start has begun: probes give it as their reason."""
        self._step = step

    def startup(self) -> ProbeResult:
        """Whether the start is over: everything is built and connected."""
        return ProbeResult(ok=True, reason="started") if self.is_built else ProbeResult(ok=False, reason=self._step)

    @abstractmethod
    def liveness(self) -> ProbeResult:
        """Whether the process works, or could again without a restart."""

    @abstractmethod
    def readiness(self) -> ProbeResult:
        """Whether the worker processes articles, or would if there were any."""

    @abstractmethod
    def metrics(self, accept: str) -> tuple[bytes, str]:
        """The metrics in a format that `accept` allows, and its content type."""

    @abstractmethod
    def status(self, since: float = 0.0) -> dict[str, Any]:
        """Everything that the page shows, with the charts' rows after `since` (Unix time)."""


@dataclass(frozen=True, slots=True)
class Request:
    """The parts of a request that are used: its `Accept` header, and its query with each name once."""

    accept: str = ""
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def since(self) -> float:
        """The number in `?since=`; 0, which means everything, if it is missing or not finite."""
        try:
            since = float(self.query.get("since", "0"))
        except ValueError:
            return 0.0
        return since if math.isfinite(since) else 0.0


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete answer."""

    status: HTTPStatus
    content_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


Route = Callable[[Request], Reply]
"""Answers one path, in the thread of its request. An exception becomes a 500, whose text does not quote it."""


def page_routes(health: Health) -> Mapping[str, Route]:
    """Page, status and metrics of a worker, by path."""

    def metrics(request: Request) -> Reply:
        body, content_type = health.metrics(request.accept)
        return Reply(HTTPStatus.OK, content_type, body)

    return {
        "/metrics": metrics,
        "/status.json": lambda request: Reply(
            HTTPStatus.OK, "application/json", orjson.dumps(health.status(request.since))
        ),
        "/": lambda _request: Reply(HTTPStatus.OK, "text/html; charset=utf-8", PAGE.body, PAGE.headers),
    }


def probe_routes(health: Health) -> Mapping[str, Route]:
    """The probes of a worker, by path."""
    return {
        LIVE: lambda _request: _probe(health.liveness()),
        READY: lambda _request: _probe(health.readiness()),
        STARTED: lambda _request: _probe(health.startup()),
    }


def line(status: HTTPStatus, text: str) -> Reply:
    """A reply of one line of plain text."""
    return Reply(status, "text/plain; charset=utf-8", f"{text}\n".encode())


def _probe(result: ProbeResult) -> Reply:
    return line(HTTPStatus.OK if result.ok else HTTPStatus.SERVICE_UNAVAILABLE, result.reason)


ANSWER_S = 2.0
"""Timeout of one answer: less than the chart's probes wait, so that the kubelet gets the reason."""
_MAX_BYTES = 1_000


def common_probes(host: str, ports: Callable[[], Mapping[int, int]]) -> Mapping[str, Route]:
    """Each probe answers 200 if all processes do, at `ports()`: number -> port. The body has the reason of each process."""
    return {path: _common_probe(host, ports, path) for path in PROBES}


def _common_probe(host: str, ports: Callable[[], Mapping[int, int]], path: str) -> Route:
    def answer(_request: object) -> Reply:
        numbers = ports()
        with ThreadPoolExecutor(max(1, len(numbers))) as pool:
            answers = list(pool.map(lambda port: _ask(host, port, path), numbers.values()))
        good = bool(answers) and all(ok for ok, _ in answers)
        reasons = [f"process {number}: {reason}" for number, (_, reason) in zip(numbers, answers, strict=True)]
        status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
        return line(status, "; ".join(reasons) or "no process runs")

    return answer


def _ask(host: str, port: int, path: str) -> tuple[bool, str]:
    """Whether a process answers 200, and its reason."""
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status == HTTPStatus.OK, response.read(_MAX_BYTES).decode("utf-8", "replace").strip()
    except (OSError, http.client.HTTPException):
        return False, "no answer"
    finally:
        connection.close()
