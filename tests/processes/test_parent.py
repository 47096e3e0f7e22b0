"""The parent, with children that are real processes and do nothing but what a test says."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from support.patience import PATIENCE_S

from enricher.worker.processes import Processes
from enricher.worker.runtime.watchdog import Watchdog
from tools.waiting import wait_until

_PRELUDE = """
import os, signal, sys, threading, time
def ready(name): open(os.path.join(FOLDER, name), "x").close()
def until(name):
    while not os.path.exists(os.path.join(FOLDER, name)): time.sleep(0.01)
"""
WORKING = "ready(NAME); sys.stdin.read(); ready(NAME + ' drained')"
"""A child that works until it is asked to end, and then does so."""
DEAF = "ready(NAME); threading.Event().wait()"


def child(folder: Path, index: int, program: str) -> Sequence[str]:
    """The command line of a child that runs `program`."""
    return [sys.executable, "-c", f"FOLDER, NAME = {str(folder)!r}, {str(index)!r}\n{_PRELUDE}{program}"]


def children_in(folder: Path) -> Sequence[psutil.Process]:
    """The children of a test, by number; this process may have others, and zombies have no command line."""
    commands = {process: "".join(process.cmdline()) for process in psutil.Process().children()}
    return sorted(
        [process for process in commands if str(folder) in commands[process]], key=lambda each: commands[each]
    )


class Run:
    """A parent at work in a thread."""

    def __init__(self, folder: Path, programs: Sequence[str], grace_s: float, *, until_done: bool) -> None:
        self.folder = folder
        commands = [child(folder, index, program) for index, program in enumerate(programs)]
        self.processes = Processes(commands, grace_s=grace_s, until_done=until_done)
        self.codes: list[int] = []
        self.stalls: list[str] = []
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        with Watchdog(self.stalls.append) as watchdog:
            self.codes.append(self.processes.run(watchdog.guard))

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for something."""
        assert wait_until(holds, PATIENCE_S, 0.005), f"not in time: {sorted(self.folder.iterdir())} {self.codes}"

    def until_ready(self, count: int) -> Sequence[psutil.Process]:
        """Wait until so many children say that they are ready; returns all that run, by number."""
        self.until(lambda: all((self.folder / str(index)).exists() for index in range(count)))
        return children_in(self.folder)

    def drained(self, index: int) -> bool:
        """Whether this child ended because it was asked to."""
        return (self.folder / f"{index} drained").exists()

    def code(self) -> int:
        """How it ended."""
        self.thread.join(PATIENCE_S)
        assert self.codes, f"it does not end: {self.processes.running()}"
        return self.codes[0]


@contextmanager
def parent_of(folder: Path, *programs: str, grace_s: float = 30.0, until_done: bool = False) -> Iterator[Run]:
    """A parent of children that run `programs`; at the end none is left."""
    run = Run(folder, programs, grace_s, until_done=until_done)
    try:
        yield run
    finally:
        run.processes.stop()
        run.thread.join(PATIENCE_S)
        assert [] == children_in(folder)


FAILING = "ready(NAME); sys.stdin.read(); sys.exit({})"
"""A child that fails while it drains."""
ENDING = "ready(NAME); until('go'); sys.exit({})"
"""A child that ends so once it may."""
ACTS: dict[str, Callable[[Run, Sequence[psutil.Process]], None]] = {
    "all are asked to end": lambda run, _children: run.processes.stop(),
    "the first is killed": lambda _run, children: children[0].kill(),
    "the first ends": lambda run, _children: (run.folder / "go").touch(),
}


@pytest.mark.parametrize(
    ("programs", "act", "code", "drained"),
    [
        ([WORKING, WORKING, WORKING], "all are asked to end", 0, {0, 1, 2}),
        ([WORKING, FAILING.format(6)], "all are asked to end", 6, {0}),
        ([ENDING.format(0), WORKING, WORKING], "the first ends", 0, {1, 2}),
        ([ENDING.format(12), WORKING, WORKING], "the first ends", 12, {1, 2}),
        ([ENDING.format(3), FAILING.format(7)], "the first ends", 3, set[int]()),
        ([WORKING, WORKING, WORKING], "the first is killed", 137, {1, 2}),
        ([DEAF, WORKING], "all are asked to end", 7, {1}),
    ],
)
def test_the_first_that_ends_ends_all_with_its_code(
    tmp_path: Path, programs: Sequence[str], act: str, code: int, drained: set[int]
) -> None:
    """The others drain within the grace, or are killed; what failed first is what to look at. Signals as a shell says."""
    with parent_of(tmp_path, *programs, grace_s=1.0 if DEAF in programs else 30.0) as run:
        children = run.until_ready(len(programs))
        assert [*range(len(programs))] == run.processes.running()
        ACTS[act](run, children)
        assert code == run.code()
        assert drained == {index for index in range(len(programs)) if run.drained(index)}
        assert [] == run.processes.running()


def test_a_frozen_child_does_not_keep_a_parent_that_ends(tmp_path: Path) -> None:
    """It is killed after the grace; the code is that of the child that ended all."""
    with parent_of(tmp_path, DEAF, WORKING, grace_s=0.5) as run:
        frozen, killed = run.until_ready(2)
        frozen.suspend()
        killed.kill()
        assert 137 == run.code()


def test_until_done_a_child_that_ends_with_zero_leaves_the_others_at_work(tmp_path: Path) -> None:
    """When all are done, the end is a clean one."""
    with parent_of(tmp_path, "ready(NAME)", "ready(NAME); until('go')", until_done=True) as run:
        run.until(lambda: run.processes.running() == [1])
        assert [] == run.codes
        (tmp_path / "go").touch()
        assert 0 == run.code()


def test_until_done_a_child_that_dies_ends_all(tmp_path: Path) -> None:
    """Nobody else would know what it left undone."""
    with parent_of(tmp_path, DEAF, WORKING, until_done=True) as run:
        run.until_ready(2)[0].kill()
        assert 137 == run.code()
        assert run.drained(1)


def test_a_child_treats_the_end_of_its_input_as_sigterm() -> None:
    """Its handler runs in the main thread, also of a child that reads no input."""
    program = """
import signal, sys, threading
from enricher.worker.processes import end_with_parent
over = threading.Event()
signal.signal(signal.SIGTERM, lambda number, frame: over.set())
end_with_parent()
print("ready", flush=True)
while not over.wait(0.05): pass
sys.exit(5)
"""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe) as process:
        assert process.stdin
        assert process.stdout
        assert b"ready\n" == process.stdout.readline()
        assert process.poll() is None
        process.stdin.close()
        assert 5 == process.wait(PATIENCE_S)


def test_a_parent_whose_log_nobody_reads_ends_and_so_do_its_children(tmp_path: Path) -> None:
    """It asks them to end before it logs, and its watchdog bounds the rest."""
    commands = [list(child(tmp_path, 0, "until('1')")), list(child(tmp_path, 1, WORKING))]
    program = f"""
import logging, os
from enricher.worker import processes
from enricher.worker.runtime.watchdog import Watchdog
logging.basicConfig()
os.set_blocking(2, False)
try:
    while os.write(2, b"x"):
        pass
except BlockingIOError:
    os.set_blocking(2, True)
processes.UNKILLABLE_S = 1.0
with Watchdog(check_every_s=0.01) as watchdog:
    processes.Processes({commands!r}, grace_s=1.0, until_done=False).run(watchdog.guard)
"""
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) as parent:
        try:
            assert 7 == parent.wait(PATIENCE_S)
        finally:
            parent.kill()
    assert wait_until((tmp_path / "1 drained").exists, PATIENCE_S)


@pytest.mark.skipif(sys.platform == "win32", reason="groups of processes are another thing there")
def test_ctrl_c_on_a_terminal_reaches_only_the_parent(tmp_path: Path) -> None:
    """Children are in groups of their own: a signal to the parent's group would interrupt them while they drain."""
    with parent_of(tmp_path, WORKING, WORKING) as run:
        groups = {os.getpgid(each.pid) for each in run.until_ready(2)}
        assert 2 == len(groups - {os.getpgid(0)})
