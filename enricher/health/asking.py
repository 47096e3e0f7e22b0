"""How a parent asks its processes: quick GETs on the loopback address, all at once; who does not answer is left out."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

HOST = "127.0.0.1"
ANSWER_S = 3.0
"""For one answer of a process on the same machine: many times what it takes, and well within a scrape's usual 10 s."""
MAX_BYTES = 4 * 2**20
"""Of one answer; the largest, a whole page of charts, has a fiftieth of it."""


def ask(port: int, path: str, accept: str = "*/*") -> bytes | None:
    """The body of a 200; None for any other answer, or none."""
    connection = http.client.HTTPConnection(HOST, port, timeout=ANSWER_S)
    try:
        connection.request("GET", path, headers={"Accept": accept})
        response = connection.getresponse()
        return response.read(MAX_BYTES) if response.status == http.client.OK else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def ask_all(ports: Mapping[int, int], path: str, accept: str = "*/*") -> Mapping[int, bytes]:
    """The answers by the number of the process, those that came."""
    if not ports:
        return {}
    with ThreadPoolExecutor(len(ports)) as pool:
        answers = pool.map(lambda port: ask(port, path, accept), ports.values())
    return {number: body for number, body in zip(ports, answers, strict=True) if body is not None}
