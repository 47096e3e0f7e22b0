"""The child's side: reports its state on its original standard output, and ends when its standard input ends.

A thread reports every second that the process is alive. It cannot while the process is stopped, or while C code holds the
interpreter's lock. The child's own watchdog checks whether the loop makes progress.

The parent closes the child's input to ask it to drain and end; if the parent is killed, the system closes it. This works on
every platform and at any time of a child's life.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import select
import signal
import sys
import threading
import time

from enricher.worker.processes.states import ALIVE, ALIVE_EVERY_S, ProcessState, health_line

_INPUT, _OUTPUT, _ERRORS = 0, 1, 2


class ParentLink:
    """Takes over standard input and output; from now on, other code that prints writes to standard error."""

    def __init__(self) -> None:
        self._output = os.dup(_OUTPUT)
        os.dup2(_ERRORS, _OUTPUT)
        threading.Thread(target=self._report_alive, name="alive", daemon=True).start()

    def report(self, state: ProcessState) -> None:
        """Report the state to the parent, if it still runs. Safe in a signal handler."""
        self._write(state.value)

    def report_port(self, port: int) -> None:
        """Report the port of the loopback address on which this process serves its health."""
        self._write(health_line(port))

    def end_with_parent(self) -> None:
        """From now on, treat the end of standard input like SIGTERM, in the main thread."""
        threading.Thread(target=_end_with_input, name="parent", daemon=True).start()

    def _report_alive(self) -> None:
        while True:
            # A pipe is writable while a page of it is free. If the parent reads nothing, this page is kept for states,
            # because `report` must not block.
            if sys.platform == "win32" or select.select([], [self._output], [], 0)[1]:
                self._write(ALIVE)
            time.sleep(ALIVE_EVERY_S)

    def _write(self, line: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._output, f"{line}\n".encode())


def _end_with_input() -> None:
    # Not sys.stdin: the interpreter aborts if a waiting thread holds its lock at exit.
    with contextlib.suppress(OSError):
        while os.read(_INPUT, 1):
            pass
    # Like the signal; but without a handler it has no effect, so it cannot kill a process that drains.
    _thread.interrupt_main(signal.SIGTERM)
