"""What is answered to a request: status, content type, body, a few headers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import orjson

from enricher.health.probes import Verdict


@dataclass(frozen=True, slots=True)
class Asked:
    """What of a request matters here: its `Accept` header and its query, each name once."""

    accept: str = ""
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def since(self) -> float:
        """`?since=` as a number; 0, which asks for everything, for anything that is none."""
        try:
            since = float(self.query.get("since", "0"))
        except ValueError:
            return 0.0
        return since if math.isfinite(since) else 0.0


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, whole."""

    status: HTTPStatus
    content_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


Route = Callable[[Asked], Reply]
"""Answers one path. Runs in a thread of its request; what it raises becomes a 500 without a word of it."""


def line(status: HTTPStatus, text: str) -> Reply:
    """One line for people."""
    return Reply(status, "text/plain; charset=utf-8", f"{text}\n".encode())


def probe(verdict: Verdict) -> Reply:
    """200 or 503, and why."""
    return line(HTTPStatus.OK if verdict.ok else HTTPStatus.SERVICE_UNAVAILABLE, verdict.reason)


def json_of(value: Any) -> Reply:  # noqa: ANN401  anything that JSON has
    """JSON."""
    return Reply(HTTPStatus.OK, "application/json", orjson.dumps(value))
