"""`stub_worker.py`, but a certain word ends the process: how and where is said by the environment."""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Callable, Mapping
from zlib import crc32

import psutil
from support import stub_worker

from enricher import cli
from enricher.worker.articles import ArticleReader, Encoder
from enricher.worker.articles.encoder import Outgoing
from enricher.worker.records import Article, Batch, BatchResult, DeadLetter, RawRecord, Skipped, Ticket, Tombstone
from enricher.worker.wiring import workers
from tools.chaos.stub import StubEngine

KILLING_WORD = "abracadabra"
MAX_DEATHS = 1
"""Fewer than in production, so that a test has fewer lives."""
DEATH, PLACE = "KILLING_DEATH", "KILLING_PLACE"
"""Names of variables: a key of `DEATHS`, and `reading`, `inference` (the default) or `writing`."""
_KILLING_ID = crc32(KILLING_WORD.encode()) & 0x7FFFFFFF
_FREE_BYTES, _WANTED_BYTES = 1 << 28, 1 << 33


def _lack_memory() -> None:
    used_bytes = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (used_bytes + _FREE_BYTES, resource.RLIM_INFINITY))
    bytearray(_WANTED_BYTES)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _hang() -> None:
    threading.Event().wait()


DEATHS: Mapping[str, Callable[[], None]] = {
    "kill": _kill,
    "no memory": _lack_memory,
    "hang": _hang,
}


class KillingEngine(StubEngine):
    """Ends the process at a certain word."""

    def run(self, batch: Batch) -> BatchResult:
        """Like the stub, if it survives."""
        if any(_KILLING_ID in window.ids for window in batch.windows):
            _die()
        return super().run(batch)


def _die() -> None:
    DEATHS[os.environ.get(DEATH, "kill")]()


def _deadly(raw: RawRecord) -> bool:
    return KILLING_WORD.encode() in (raw.value or b"")


def _kill_while_reading() -> None:
    as_shipped = ArticleReader.read

    def read(self: ArticleReader, raw: RawRecord) -> Article | Tombstone | Skipped:
        if _deadly(raw):
            _die()
        return as_shipped(self, raw)

    ArticleReader.read = read  # type: ignore[method-assign]


def _kill_while_writing() -> None:
    as_shipped = Encoder.outgoing

    def outgoing(self: Encoder, ticket: Ticket) -> Outgoing:
        if _deadly(ticket.raw) and not isinstance(ticket.outcome, DeadLetter):
            _die()
        return as_shipped(self, ticket)

    Encoder.outgoing = outgoing  # type: ignore[method-assign]


if __name__ == "__main__":
    place = os.environ.get(PLACE, "inference")
    if place == "reading":
        _kill_while_reading()
    elif place == "writing":
        _kill_while_writing()
    workers.MAX_DEATHS_AT_OFFSET = MAX_DEATHS
    stub_worker.install(KillingEngine if place == "inference" else StubEngine)
    cli.main()
