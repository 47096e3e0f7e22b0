"""Which path answers what."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Protocol

from enricher.health.page import PROCESS_PAGE, Page
from enricher.health.probes import Probed
from enricher.health.replies import Asked, Reply, Route, json_of, probe


class Door(Probed, Protocol):
    """What is behind the port: the probes, and what people and scrapers ask."""

    def metrics(self, accept: str) -> tuple[bytes, str]:
        """The exposition, and its content type."""

    def status(self, since: float = 0.0) -> dict[str, Any]:
        """Everything for the page, with the charts' rows after `since` (Unix time)."""


def routes(door: Door, page: Page = PROCESS_PAGE) -> Mapping[str, Route]:
    """The paths of a worker, or with another page those of the parent of several."""
    return {
        "/livez": lambda _asked: probe(door.live()),
        "/readyz": lambda _asked: probe(door.ready()),
        "/startupz": lambda _asked: probe(door.started()),
        "/metrics": lambda asked: _metrics(door, asked),
        "/status.json": lambda asked: json_of(door.status(asked.since)),
        "/": lambda _asked: Reply(HTTPStatus.OK, "text/html; charset=utf-8", page.body, page.headers),
    }


def _metrics(door: Door, asked: Asked) -> Reply:
    body, content_type = door.metrics(asked.accept)
    return Reply(HTTPStatus.OK, content_type, body)
