"""Several worker processes under one parent, which starts them and ends with the first that ends.

The platform restarts the parent and so all workers. Before the parent ends, it asks the other children to drain, so that
their work is committed and the rule that finds a record which kills (`rules/attempts.py`) counts only the process that died.

A child's standard input is a pipe from its parent, and its end asks the child to drain and end. The parent closes the pipe;
if the parent is killed, the system does. This works on every platform and at any time of a child's life.
"""

from __future__ import annotations

import _thread
import contextlib
import logging
import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from enricher.errors import Stalled
from enricher.worker.runtime.watchdog import Guard

MAX_WAIT_S = 1.0
"""The longest wait for an event: on Windows the handler of Ctrl-C runs only after it."""
UNKILLABLE_S = 30.0
"""How long to wait for killed children: one that hangs in a driver or on a network disk may never end."""

log = logging.getLogger(__name__)


class Processes:
    """Runs each of `commands` as a child process, by its number, until one of them ends.

    `grace_s`: how long children may drain before they are killed. `until_done`: a child that ends with code 0 has nothing
    left to do, and the other children go on.
    """

    def __init__(self, commands: Sequence[Sequence[str]], *, grace_s: float, until_done: bool) -> None:
        self._commands = commands
        self._grace_s = grace_s
        self._until_done = until_done
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        # Written by the threads that wait for a child: its number and exit code; and by `stop`, None.
        self._events: queue.SimpleQueue[tuple[int, int] | None] = queue.SimpleQueue()

    def running(self) -> Sequence[int]:
        """The numbers of the children that run. Safe in any thread."""
        return list(self._running)

    def stop(self) -> None:
        """Ask all children to drain and end. Safe in a signal handler."""
        self._events.put(None)

    def run(self, guard: Guard) -> int:
        """Block until all children have ended; return the first exit code that is not 0, or 0.

        `guard` bounds the end. Leaves no child behind, even on an exception.
        """
        try:
            for index, command in enumerate(self._commands):
                self._start(index, command)
            first = self._first_end()
            with guard("ending all processes", self._grace_s + UNKILLABLE_S):
                return self._end_all(first)
        finally:
            for child in self._running.values():
                child.kill()

    def _start(self, index: int, command: Sequence[str]) -> None:
        # Ctrl-C goes to the whole process group of a terminal, and only the parent must react to it.
        own_group = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
        child = subprocess.Popen(  # noqa: S603  this program again
            command, stdin=subprocess.PIPE, start_new_session=sys.platform != "win32", creationflags=own_group
        )
        self._running[index] = child
        wait = threading.Thread(
            target=lambda: self._events.put((index, child.wait())), name=f"child-{index}", daemon=True
        )
        wait.start()

    def _first_end(self) -> tuple[int, int] | None:
        """Wait for the end of a child that ends all; None if `stop` was called, or nothing is left to do."""
        while self._running:
            ended = self._next_end()
            if ended is None or ended[1] or not self._until_done:
                return ended
        return None

    def _next_end(self, deadline_s: float = math.inf) -> tuple[int, int] | None:
        """Wait for the next end, and return number and exit code; None at the deadline, or if `stop` was called."""
        while (left_s := deadline_s - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                event = self._events.get(timeout=min(left_s, MAX_WAIT_S))
                if event is None:
                    return None
                index, code = event
                del self._running[index]
                return index, code if code >= 0 else 128 - code  # as a shell reports a signal
        return None

    def _end_all(self, first: tuple[int, int] | None) -> int:
        for child in self._running.values():
            assert child.stdin is not None
            child.stdin.close()
        # Afterwards, because a log that nobody reads may block.
        if first:
            log.error("process %d ended with code %d: ending all processes", *first)
        elif self._running:
            log.info("asking %d processes to end", len(self._running))
        code = first[1] if first else 0
        deadline_s = time.monotonic() + self._grace_s
        while self._running:
            ended = self._next_end(deadline_s)
            if ended:
                code = code or ended[1]
            elif time.monotonic() >= deadline_s:
                pids = {index: child.pid for index, child in self._running.items()}
                for child in self._running.values():
                    child.kill()
                log.error("processes still run after %.0f s, killed them (pids by number): %s", self._grace_s, pids)
                code, deadline_s = code or Stalled.exit_code, math.inf
        return code


def end_with_parent() -> None:
    """From now on, treat the end of standard input like SIGTERM, in the main thread. Called in a child."""
    threading.Thread(target=_end_with_input, name="parent", daemon=True).start()


def _end_with_input() -> None:
    # Not sys.stdin: the interpreter aborts if a waiting thread holds its lock at exit.
    with contextlib.suppress(OSError):
        while os.read(0, 1):
            pass
    # Like the signal; but without a handler it has no effect, so it cannot kill a process that drains.
    _thread.interrupt_main(signal.SIGTERM)
