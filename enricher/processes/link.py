"""The child's side: tells its state on what was its standard output, and learns from its standard input when to end.

The end of the input means "end in good order": the parent closes it to ask for that, and a parent that was killed without
a word has closed it too. It works alike on every system, and at any moment of a child's life.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import threading

from enricher.processes.states import ProcessState, health_line

_INPUT, _OUTPUT, _ERRORS = 0, 1, 2


class ParentLink:
    """Takes the process's standard input and output for itself; what others print goes to standard error from now on."""

    def __init__(self) -> None:
        self._output = os.dup(_OUTPUT)
        os.dup2(_ERRORS, _OUTPUT)

    def tell(self, state: ProcessState) -> None:
        """Tell the parent, if there still is one. Safe in a signal handler."""
        self._write(state.value)

    def serves(self, port: int) -> None:
        """Tell on which port of the loopback address this process answers for its health."""
        self._write(health_line(port))

    def end_with_parent(self) -> None:
        """From now on the end of the input is a SIGTERM for this process, handled in its main thread."""
        threading.Thread(target=_wait_for_the_end, name="parent", daemon=True).start()

    def _write(self, line: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._output, f"{line}\n".encode())


def _wait_for_the_end() -> None:
    # Not by sys.stdin: its lock, held by a thread that waits, ends the interpreter with a fatal error.
    with contextlib.suppress(OSError):
        while os.read(_INPUT, 1):
            pass
    # As if the signal had come, but with no effect once its handler has gone: it cannot kill a process that drains.
    _thread.interrupt_main(signal.SIGTERM)
