"""How a parent reads its processes: short GET requests on the loopback address, and their metrics merged into one text."""

from __future__ import annotations

import http.client
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from enricher.worker.telemetry.prometheus import encode_families

HOST = "127.0.0.1"
LABEL = "process"
"""The label that says which process a sample comes from."""
ANSWER_S = 3.0
"""Timeout of one answer: far more than a process on the same machine takes, and well below a scrape's usual 10 s."""
MAX_BYTES = 4 * 2**20
"""The longest answer that is read: 50 times the largest one, a page of full charts."""


def ask(port: int, path: str, accept: str = "*/*") -> bytes | None:
    """GET the path. Returns the body of a 200; None for any other answer, or without one."""
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
    """Ask all processes (number -> port) at once. Processes that do not answer are left out."""
    if not ports:
        return {}
    with ThreadPoolExecutor(len(ports)) as pool:
        answers = pool.map(lambda port: ask(port, path, accept), ports.values())
    return {number: body for number, body in zip(ports, answers, strict=True) if body is not None}


def merge(expositions: Mapping[str, str], accept: str) -> tuple[bytes, str]:
    """Merge metrics as plain text, by process, into one text in the format that `accept` asks for."""
    return encode_families(_families(expositions), accept)


def _families(expositions: Mapping[str, str]) -> Iterable[Metric]:
    families: dict[str, Metric] = {}
    for number, text in expositions.items():
        for family in text_string_to_metric_families(text):
            merged_family = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            merged_family.samples += [
                sample._replace(labels={LABEL: number, **sample.labels}) for sample in family.samples
            ]
    return families.values()
