"""Sessions that take the place of an engine's own, which they call for real: one that fails, and one that takes notes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import numpy.typing as npt
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

from enricher.worker.inference.device.sessions import Feeds, Session
from enricher.worker.inference.run.engine import OnnxEngine
from enricher.worker.inference.run.model import PreparedModel
from enricher.workshop.gate.runs import VariantRunner

Replaced = TypeVar("Replaced")


class DeadSession:
    """A session on a device that is gone: every run raises."""

    def run(self, *_: object) -> NoReturn:
        """Raise what CUDA raises."""
        raise Fail("CUDA error 700: an illegal memory access was encountered")


class Watched:
    """A session, the threads that ran it, and what its last run was asked for."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.runs, self.threads = 0, set[int]()
        self.outputs: Sequence[str] = ()
        self.feeds: Feeds = {}

    def run(self, outputs: Sequence[str], feeds: Feeds) -> list[npt.NDArray[Any]]:
        """The real session's answer."""
        self.runs += 1
        self.threads.add(threading.get_ident())
        self.outputs, self.feeds = outputs, feeds
        return self._session.run(outputs, feeds)


def replace_session(of: OnnxEngine | VariantRunner, wrapped: Callable[[Session], Replaced]) -> Replaced:
    """Let an engine, or a runner of the gate, use what is made of its own session. Only this file knows where that is."""
    session = wrapped(of._session)
    of._session = session  # type: ignore[assignment]  # it has the same shape
    return session


class ShortOfMemory:
    """A session of an engine that has memory for so many ids at once, and below that runs for real."""

    def __init__(self, session: Session, max_ids: int, error: Exception) -> None:
        self._session, self._max_ids, self._error = session, max_ids, error
        self.runs: list[int] = []

    def run(self, outputs: Sequence[str], feeds: Feeds) -> list[npt.NDArray[Any]]:
        """The real session's answer, if memory suffices."""
        self.runs.append(feeds["input_ids"].size)
        if self.runs[-1] > self._max_ids:
            raise self._error
        return self._session.run(outputs, feeds)


def short_of_memory(model: PreparedModel, max_ids: int, error: Exception) -> tuple[OnnxEngine, ShortOfMemory]:
    """An engine on such a session."""
    engine = OnnxEngine(model, threads_per_run=1, pad_id=0, concurrency=2)
    return engine, replace_session(engine, lambda real: ShortOfMemory(real, max_ids, error))
