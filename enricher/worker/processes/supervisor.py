"""The parent of several worker processes: starts and restarts them, ends them, and knows their states.

Exit codes 2, 4 and 12 (and 3 during startup) are permanent: the parent ends all children and exits with that code. It never
loads a model, and shares only three pipes with each child. One thread decides; signal handlers and the threads of child.py
only put functions into its queue, one for each event.

A child that does not report is not ready. After some time the parent kills it and restarts it, as if it had died. Killing is
safe: what the child had not committed is read again, and if it wakes up just before, the broker fences it.
"""

from __future__ import annotations

import logging
import queue
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from enricher.errors import Stalled
from enricher.worker.processes.child import Child
from enricher.worker.processes.restarts import RestartLimits, Restarts, is_final
from enricher.worker.processes.states import ProcessState

MAX_WAIT_S = 1.0
"""The longest wait for an event. On Windows the handler of Ctrl-C runs only after the wait."""
STOOD_STILL_S = 5.0
"""A turn of the loop takes about a second. If it takes longer than this, the parent itself could not run, so that it heard
no child."""
UNKILLABLE_S = 30.0
"""How long to wait for killed children: one that hangs in a driver or on a network disk may never end."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SilenceLimits:
    """How long a child may be silent before it counts as not ready, and before it is killed.

    Before it is first ready, `starting_s` applies instead of `kill_s`: libraries that load hold the interpreter's lock.
    """

    unready_s: float
    kill_s: float
    starting_s: float


@dataclass(slots=True)
class _Slot:
    """A process slot. A restart replaces its child."""

    restarts: Restarts
    child: Child | None = None
    state: ProcessState = ProcessState.STARTING
    ready_s: float | None = None
    """When the child became ready."""
    due_s: float | None = None
    """When the next child is due to start."""
    health_port: int | None = None
    """The port of the loopback address at which the child serves its health."""
    silent: bool = False
    """True from the warning about the child's silence until it reports again."""
    killed: bool = False
    """True once the child was killed because it was silent."""


class Supervisor:
    """Keeps `count` children running. `command` gives the command line of each, by its number.

    `grace_s`: how long children may drain before they are killed. `until_done`: a child that ends with code 0 has nothing
    left to do and is not restarted.
    """

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        count: int,
        restarts: RestartLimits,
        silence: SilenceLimits,
        *,
        grace_s: float,
        until_done: bool,
        clock: Callable[[], float] = time.monotonic,
        write: Callable[[str], object] | None = None,
    ) -> None:
        self._command = command
        self._silence = silence
        self._grace_s = grace_s
        self._until_done = until_done
        self._clock = clock
        self._write = write or sys.stderr.write
        self._slots = [_Slot(Restarts(restarts)) for _ in range(count)]
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._kill_s: float | None = None
        self._abandon_s: float | None = None
        self._turned_s = self._looked_s = clock()
        self._stopping = False
        self._code = 0
        self.started = False
        """True once all processes were ready at the same time."""

    # ---- safe in any thread

    def states(self) -> Mapping[int, ProcessState]:
        """The current state of each process."""
        now_s = self._clock()
        return {
            index: ProcessState.SILENT if self._is_silent(slot.child, now_s) else slot.state
            for index, slot in enumerate(self._slots)
        }

    def _is_silent(self, child: Child | None, now_s: float) -> bool:
        """Whether a child has stopped reporting. Before its first report it imports its modules, which does not count."""
        return child is not None and child.reported and now_s - child.heard_s > self._silence.unready_s

    def report_ages_s(self) -> Mapping[int, float]:
        """Seconds since each running child last reported, or was started."""
        now_s = self._clock()
        children = [slot.child for slot in self._slots]
        return {child.index: max(0.0, now_s - child.heard_s) for child in children if child}

    @property
    def ready(self) -> bool:
        """True while every process that is not done is ready, and at least one is not done."""
        return {ProcessState.READY} == set(self.states().values()) - {ProcessState.DONE}

    def pids(self) -> Mapping[int, int]:
        """The process ids of running children."""
        return {child.index: child.pid for child in [slot.child for slot in self._slots] if child}

    def health_ports(self) -> Mapping[int, int]:
        """The health ports that children have reported, on the loopback address."""
        return {index: slot.health_port for index, slot in enumerate(self._slots) if slot.health_port}

    @property
    def stopping(self) -> bool:
        """True once all children are asked to end."""
        return self._stopping

    @property
    def turn_age_s(self) -> float:
        """Seconds since the current turn of the loop began; a turn takes about a second at most."""
        return max(0.0, self._clock() - self._turned_s)

    def stop(self) -> None:
        """Ask all children to drain and end. Safe in a signal handler."""
        self._events.put(self._stop)

    # ---- the loop

    def run(self, guard: Callable[[], AbstractContextManager[None]] = nullcontext) -> int:
        """Block until all children have ended; return the exit code. Leaves no child behind, even on an exception.

        `guard` is entered for each turn of the loop.
        """
        try:
            for index in range(len(self._slots)):
                self._start(index)
            while self._has_work():
                with guard():
                    self._turned_s = self._clock()
                    self._next_event()
                    self._start_due()
                    self._watch_silence()
                    self._kill_late()
        finally:
            for slot in self._slots:
                if slot.child:
                    slot.child.kill()
        return self._code

    def _has_work(self) -> bool:
        if self._abandon_s is not None and self._clock() > self._abandon_s:
            log.error(
                "ending without these processes, which do not end although they were killed: %s", dict(self.pids())
            )
            return False
        return any(slot.child or (slot.due_s is not None and not self._stopping) for slot in self._slots)

    def _next_event(self) -> None:
        """Handle the next event; returns without one if a deadline comes first."""
        times = [slot.due_s for slot in self._slots if slot.due_s is not None]
        wait_s = min([MAX_WAIT_S, *(due_s - self._clock() for due_s in [*times, *filter(None, [self._kill_s])])])
        try:
            handle = self._events.get(timeout=max(0.0, wait_s))
        except queue.Empty:
            return
        handle()

    def _stop(self) -> None:
        log.info("asking %d processes to end", len(self.pids()))
        self._end_all(0)

    # ---- one process

    def _start(self, index: int) -> None:
        slot = self._slots[index]
        put = self._events.put
        slot.child = Child(
            index,
            self._command(index),
            on_state=lambda state: put(lambda: self._report_state(index, state)),
            on_health_port=lambda port: put(lambda: setattr(slot, "health_port", port)),
            on_end=lambda code: put(lambda: self._note_end(index, code)),
            write=self._write,
            clock=self._clock,
        )
        slot.state, slot.ready_s, slot.due_s = ProcessState.STARTING, None, None
        slot.silent = slot.killed = False

    def _report_state(self, index: int, state: ProcessState) -> None:
        slot = self._slots[index]
        slot.state = state
        if state is ProcessState.READY:
            slot.ready_s = self._clock()
        if state is ProcessState.READY and self.ready:
            self.started = True
            log.info("all %d processes are ready", len(self._slots))

    def _note_end(self, index: int, code: int) -> None:
        slot = self._slots[index]
        assert slot.child is not None, "a child ends once"
        # Until its last report: it may have been frozen before it was killed.
        ready_for_s = 0.0 if slot.ready_s is None else slot.child.heard_s - slot.ready_s
        slot.child, slot.state, slot.health_port = None, ProcessState.DEAD, None
        exit_code = code if code >= 0 else 128 - code  # as a shell reports a signal
        if self._stopping:
            self._code = self._code or exit_code
        elif code == 0 and self._until_done:
            slot.state = ProcessState.DONE
        else:
            self._restart_or_end_all(index, exit_code, ready_for_s)

    def _restart_or_end_all(self, index: int, exit_code: int, ready_for_s: float) -> None:
        slot, now_s = self._slots[index], self._clock()
        if is_final(exit_code, was_ready=slot.ready_s is not None):
            log.error(
                "process %d ended with code %d, which a restart cannot fix: ending all processes", index, exit_code
            )
            self._end_all(exit_code)
        elif (pause_s := slot.restarts.pause_s(ready_for_s)) is None:
            log.error("process %d ended with code %d too often in a row: ending all processes", index, exit_code)
            self._end_all(exit_code)
        else:
            log.warning("process %d ended with code %d: restarting it in %.1f s", index, exit_code, pause_s)
            slot.due_s = now_s + pause_s

    # ---- deadlines

    def _start_due(self) -> None:
        for index, slot in enumerate(self._slots):
            if slot.due_s is not None and not self._stopping and self._clock() >= slot.due_s:
                self._start(index)

    def _watch_silence(self) -> None:
        now_s = self._clock()
        stood_still = now_s - self._looked_s > STOOD_STILL_S
        self._looked_s = now_s
        for slot in self._slots:
            if slot.child and stood_still:
                slot.child.heard_s = now_s
            if slot.child and not slot.killed:
                self._watch_silence_of(slot, slot.child, now_s)

    def _watch_silence_of(self, slot: _Slot, child: Child, now_s: float) -> None:
        silent_s = now_s - child.heard_s
        if slot.silent != self._is_silent(child, now_s):
            slot.silent = not slot.silent
            if slot.silent:
                log.warning("process %d has not reported for %.0f s and is not ready", child.index, silent_s)
            else:
                log.warning("process %d reports again", child.index)
        if silent_s > (self._silence.starting_s if slot.ready_s is None else self._silence.kill_s):
            log.error("process %d (pid %d) has not reported for %.0f s: killing it", child.index, child.pid, silent_s)
            child.kill()
            slot.killed = True

    def _end_all(self, exit_code: int) -> None:
        """Ask all children to end, and exit with `exit_code` unless an earlier call gave one."""
        if self._stopping:
            return
        self._stopping, self._code = True, exit_code
        self._kill_s = self._clock() + self._grace_s
        for slot in self._slots:
            slot.due_s = None
            if slot.child:
                slot.child.ask_to_end()

    def _kill_late(self) -> None:
        if self._kill_s is None or self._clock() < self._kill_s:
            return
        log.error("processes still run after %.0f s, killing them: %s", self._grace_s, dict(self.pids()))
        self._kill_s, self._code = None, self._code or Stalled.exit_code
        self._abandon_s = self._clock() + UNKILLABLE_S
        for slot in self._slots:
            if slot.child:
                slot.child.kill()
