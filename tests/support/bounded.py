"""Hostile payloads, each read in a process whose memory is limited: a crash, a hang or a flood of memory fails the test."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from enricher.errors import InvalidArticle
from enricher.worker.articles.schemas import Schema
from enricher.worker.records import Headers
from support.patience import PATIENCE_S

MEMORY_BYTES = 192 << 20
"""What one payload of 4 MB may take, beside what the process has. Hostile JSON of that length takes as much."""

_PROGRAM = """
import json, pickle, sys, time
from enricher.worker.articles.formats import compile_schema
from enricher.errors import InvalidArticle
from support.bounded import limit_memory, payload_of

decoders = {}
for hostile, limit_bytes in pickle.load(sys.stdin.buffer):
    decode = decoders.get(hostile.schema) or compile_schema(hostile.schema)
    decoders[hostile.schema], payload = decode, payload_of(hostile)
    limit_memory(limit_bytes)
    began = time.process_time()
    try:
        document = decode(payload)
        outcome = f"read: {len(document)} fields"
    except InvalidArticle as error:
        outcome = str(error)
    except MemoryError:
        outcome = "MemoryError"
    document = payload = None
    limit_memory(None)
    print(json.dumps([hostile.name, outcome, time.process_time() - began]), flush=True)
"""


_TESTS = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Hostile:
    """A payload, as pieces and how often each is repeated, and its schema."""

    name: str
    schema: Schema
    pieces: Sequence[tuple[bytes, int]]


def payload_of(hostile: Hostile) -> bytes:
    """The payload in full."""
    return b"".join(piece * times for piece, times in hostile.pieces)


def limit_memory(more_bytes: int | None) -> None:
    """Allow this process so much more address space than it has; None: any."""
    import resource  # noqa: PLC0415  not on Windows

    size_bytes = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (hard if more_bytes is None else size_bytes + more_bytes, hard))


def refusal(attempt: Callable[[], object]) -> str:
    """The text of the InvalidArticle that an attempt ends in."""
    with pytest.raises(InvalidArticle) as caught:
        attempt()
    return str(caught.value)


def binary(headers: Sequence[tuple[str, str | bytes | None]]) -> Headers:
    """What a serializer added, as Kafka gives it."""
    return tuple((name, value.encode() if isinstance(value, str) else value) for name, value in headers)


def outcomes(cases: Sequence[Hostile], *, memory_bytes: int = MEMORY_BYTES) -> dict[str, str]:
    """What reading each ends in: the text of its InvalidArticle, or another line. Fails if the process crashes or hangs."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        input=pickle.dumps([(case, memory_bytes) for case in cases]),
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
        # Not all of sys.path: in other folders of tests there is a module of our package's name.
        env={"PYTHONPATH": f"{_TESTS.parent}:{_TESTS.parent / 'scripts'}:{_TESTS}", "PATH": ""},
    )
    lines = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert done.returncode == 0, (
        f"after {[name for name, *_ in lines]}: {done.returncode} {done.stderr.decode()[-2000:]}"
    )
    return {name: outcome for name, outcome, _ in lines}
