"""Requests, replies, and which path answers what. Knows nothing of sockets."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol

import orjson

from enricher.worker.health.page import PROCESS_PAGE, Page


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The answer to a probe. `reason` is one line and contains no text of an article."""

    ok: bool
    reason: str


class Health(Protocol):
    """Answers the routes, which ask from the server's threads. Probes do not block."""

    def live(self) -> ProbeResult:
        """Ok unless only a new process can help."""

    def ready(self) -> ProbeResult:
        """Ok while the worker processes articles, or would if there were any."""

    def started(self) -> ProbeResult:
        """Ok once the start is over."""

    def metrics(self, accept: str) -> tuple[bytes, str]:
        """The exposition, and its content type."""

    def status(self, since: float = 0.0) -> dict[str, Any]:
        """Everything on the page, with the charts' rows after `since` (Unix time)."""


@dataclass(frozen=True, slots=True)
class Request:
    """The parts of a request that are used: its `Accept` header, and its query with each name once."""

    accept: str = ""
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def since(self) -> float:
        """`?since=` as a number; 0, which means everything, if it is not a finite number."""
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
"""Answers one path, in the thread of its request. An exception becomes a 500 that does not quote it."""


def routes(health: Health, page: Page = PROCESS_PAGE) -> Mapping[str, Route]:
    """The paths of a worker or, with `PARENT_PAGE`, of the parent of several."""

    def metrics(request: Request) -> Reply:
        body, content_type = health.metrics(request.accept)
        return Reply(HTTPStatus.OK, content_type, body)

    return {
        "/livez": lambda _request: _probe(health.live()),
        "/readyz": lambda _request: _probe(health.ready()),
        "/startupz": lambda _request: _probe(health.started()),
        "/metrics": metrics,
        "/status.json": lambda request: Reply(
            HTTPStatus.OK, "application/json", orjson.dumps(health.status(request.since))
        ),
        "/": lambda _request: html(page),
    }


def line(status: HTTPStatus, text: str) -> Reply:
    """One line of plain text."""
    return Reply(status, "text/plain; charset=utf-8", f"{text}\n".encode())


def html(page: Page) -> Reply:
    """A page."""
    return Reply(HTTPStatus.OK, "text/html; charset=utf-8", page.body, page.headers)


def _probe(result: ProbeResult) -> Reply:
    return line(HTTPStatus.OK if result.ok else HTTPStatus.SERVICE_UNAVAILABLE, result.reason)
