"""The probes of a parent of several processes. It knows nothing by itself: it asks each process the same, at once."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus

from enricher.worker.health.routes import PROBES, Reply, Route, line

ANSWER_S = 2.0
"""Timeout of one answer: less than the chart's probes wait, so that the kubelet gets the reason."""
_MAX_BYTES = 1_000


def common_probes(host: str, ports: Callable[[], Mapping[int, int]]) -> Mapping[str, Route]:
    """Each probe answers 200 if all processes do, at `ports()`: number -> port. The body has each one's reason."""
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
