"""The parent of several worker processes: starts them, starts a dead one again, ends them all, knows how each one stands.

It never loads a model, and shares nothing with its children but three pipes each. One thread decides; threads of the
children (child.py) and signal handlers only post events.
"""

from __future__ import annotations

import logging
import queue
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from enricher.errors import Stalled
from enricher.processes.child import Child, Ended, Serves, Told
from enricher.processes.restarts import RestartLimits, Restarts, is_final
from enricher.processes.states import ProcessState

MAX_WAIT_S = 1.0
"""On Windows a wait is not interrupted by Ctrl-C: its handler runs after it."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SupervisorLimits:
    """`grace_s`: how long all may take to end in good order before they are killed."""

    restarts: RestartLimits
    grace_s: float


@dataclass(frozen=True, slots=True)
class _Stop:
    """Somebody asks for the end."""


@dataclass(slots=True)
class _Place:
    """One of the processes that there are to be, whichever child is it at the moment."""

    restarts: Restarts
    child: Child | None = None
    state: ProcessState = ProcessState.STARTING
    ready_s: float | None = None
    """Since when the child is ready."""
    due_s: float | None = None
    """When the next child is to start."""
    health_port: int | None = None
    """Where the child answers for its health."""


class Supervisor:
    """Keeps `count` children running. `command` gives the command line of each, by its number.

    `until_done`: a child that ends with 0 has done all there was to do; else it is started again like any other.
    """

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        count: int,
        limits: SupervisorLimits,
        *,
        until_done: bool,
        clock: Callable[[], float] = time.monotonic,
        write: Callable[[str], object] | None = None,
    ) -> None:
        self._command = command
        self._limits = limits
        self._until_done = until_done
        self._clock = clock
        self._write = write or sys.stderr.write
        self._places = [_Place(Restarts(limits.restarts)) for _ in range(count)]
        self._events: queue.SimpleQueue[Told | Serves | Ended | _Stop] = queue.SimpleQueue()
        self._kill_s: float | None = None
        self._turned_s = clock()
        self._stopping = False
        self._code = 0
        self.started = False
        """True once every process has been ready at the same time."""

    # ---- for others, from any thread

    def states(self) -> Mapping[int, ProcessState]:
        """How each process stands now."""
        return {index: place.state for index, place in enumerate(self._places)}

    @property
    def ready(self) -> bool:
        """True while every process that still has something to do is ready, and at least one has."""
        return {ProcessState.READY} == set(self.states().values()) - {ProcessState.DONE}

    def pids(self) -> Mapping[int, int]:
        """The process ids of the running children."""
        return {index: place.child.pid for index, place in enumerate(self._places) if place.child}

    def health_ports(self) -> Mapping[int, int]:
        """Where the children that said so answer for their health, on the loopback address."""
        return {index: place.health_port for index, place in enumerate(self._places) if place.health_port}

    @property
    def stopping(self) -> bool:
        """True from the moment at which all are asked to end."""
        return self._stopping

    @property
    def turn_age_s(self) -> float:
        """Since the loop began a turn; it begins one a second at least."""
        return max(0.0, self._clock() - self._turned_s)

    def stop(self) -> None:
        """Ask all to drain and end; may be called from a signal handler."""
        self._events.put(_Stop())

    # ---- the loop

    def run(self) -> int:
        """Until all have ended; gives the exit code. Whatever ends this, no child is left behind."""
        try:
            for index in range(len(self._places)):
                self._start(index)
            while self._unfinished():
                self._turned_s = self._clock()
                self._take(self._next_event())
                self._start_those_due()
                self._kill_the_late()
        finally:
            for place in self._places:
                if place.child:
                    place.child.kill()
        return self._code

    def _unfinished(self) -> bool:
        return any(place.child or (place.due_s is not None and not self._stopping) for place in self._places)

    def _next_event(self) -> Told | Serves | Ended | _Stop | None:
        """What happens next; None where nothing does before there is something to do."""
        times = [place.due_s for place in self._places if place.due_s is not None]
        wait_s = min([MAX_WAIT_S, *(due_s - self._clock() for due_s in [*times, *filter(None, [self._kill_s])])])
        try:
            return self._events.get(timeout=max(0.0, wait_s))
        except queue.Empty:
            return None

    def _take(self, event: Told | Serves | Ended | _Stop | None) -> None:
        match event:
            case Told(child, state):
                self._told(child.index, state)
            case Serves(child, port):
                self._places[child.index].health_port = port
            case Ended(child, code):
                self._ended(child.index, code)
            case _Stop():
                log.info("asking %d processes to end", len(self.pids()))
                self._end_all(0)
            case None:
                pass

    # ---- what happens to one

    def _start(self, index: int) -> None:
        place = self._places[index]
        place.child = Child(index, self._command(index), post=self._events.put, write=self._write)
        place.state, place.ready_s, place.due_s = ProcessState.STARTING, None, None

    def _told(self, index: int, state: ProcessState) -> None:
        place = self._places[index]
        place.state = state
        if state is ProcessState.READY:
            place.ready_s = self._clock()
        if state is ProcessState.READY and self.ready:
            self.started = True
            log.info("all %d processes are ready", len(self._places))

    def _ended(self, index: int, code: int) -> None:
        place = self._places[index]
        place.child, place.state, place.health_port = None, ProcessState.DEAD, None
        exit_code = code if code >= 0 else 128 - code  # as a shell tells of a signal
        if self._stopping:
            self._code = self._code or exit_code
        elif code == 0 and self._until_done:
            place.state = ProcessState.DONE
        else:
            self._start_again_or_end(index, exit_code)

    def _start_again_or_end(self, index: int, exit_code: int) -> None:
        place, now_s = self._places[index], self._clock()
        ready_for_s = 0.0 if place.ready_s is None else now_s - place.ready_s
        if is_final(exit_code, was_ready=place.ready_s is not None):
            log.error("process %d ended with code %d, which no restart mends: ending all", index, exit_code)
            self._end_all(exit_code)
        elif (pause_s := place.restarts.pause_s(ready_for_s)) is None:
            log.error("process %d ended with code %d once too often: ending all", index, exit_code)
            self._end_all(exit_code)
        else:
            log.warning("process %d ended with code %d: starting it again in %.1f s", index, exit_code, pause_s)
            place.due_s = now_s + pause_s

    # ---- what happens in time

    def _start_those_due(self) -> None:
        for index, place in enumerate(self._places):
            if place.due_s is not None and not self._stopping and self._clock() >= place.due_s:
                self._start(index)

    def _end_all(self, exit_code: int) -> None:
        """Ask all to end. The first reason is the one that counts."""
        if self._stopping:
            return
        self._stopping, self._code = True, exit_code
        self._kill_s = self._clock() + self._limits.grace_s
        for place in self._places:
            place.due_s = None
            if place.child:
                place.child.ask_to_end()

    def _kill_the_late(self) -> None:
        if self._kill_s is None or self._clock() < self._kill_s:
            return
        log.error("still running after %.0f s: killing %s", self._limits.grace_s, dict(self.pids()))
        self._kill_s, self._code = None, self._code or Stalled.exit_code
        for place in self._places:
            if place.child:
                place.child.kill()
