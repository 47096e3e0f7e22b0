"""Processor time of this process and of all that it started, by kind."""

from __future__ import annotations

import threading

import psutil

_INTERVAL_S = 0.25


def tree_s() -> float:
    """Seconds of processor time of this process, of its living descendants and of all that were waited for."""
    me = psutil.Process()
    total = 0.0
    for process in (me, *me.children(recursive=True)):
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.Error:
            continue  # ended; its time comes with its parent's
    return total


class Children(threading.Thread):
    """Looks at the living descendants a few times a second; what one does after the last look is not seen."""

    def __init__(self) -> None:
        super().__init__(name="profile", daemon=True)
        self.java_s: dict[int, float] = {}
        self.java_ready_s: dict[int, float] = {}
        self.python_s: dict[int, float] = {}
        self._me = psutil.Process()
        self._ended = threading.Event()

    def run(self) -> None:
        """Until `stop`."""
        while not self._ended.wait(_INTERVAL_S):
            self.look()

    def stop(self) -> None:
        """Ends the thread."""
        self._ended.set()
        self.join()

    def look(self) -> None:
        """Remember what each living descendant has used, by kind; a process id that is used again counts on."""
        for process in self._me.children(recursive=True):
            try:
                name, used_s = process.name(), sum(process.cpu_times()[:2])
            except psutil.Error:
                continue
            if name == "java":
                self.java_s[process.pid] = used_s
            elif name.startswith(("python", "enricher")):
                self.python_s[process.pid] = used_s

    def java_answers(self) -> None:
        """What Java processes have used that were not there at the last call is the price of starting them."""
        self.look()
        for pid, used_s in self.java_s.items():
            self.java_ready_s.setdefault(pid, used_s)
