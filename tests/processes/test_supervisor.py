"""The parent, with children that are real processes and do nothing but what a test says."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from support.patience import PATIENCE_S

from enricher.worker.processes import ProcessState, RestartLimits, SilenceLimits, Supervisor
from enricher.worker.processes.child import Child
from enricher.worker.processes.states import health_line, health_port_of
from tools.waiting import wait_until

LIMITS = RestartLimits(max_in_a_row=2, first_pause_s=0.0, stable_s=60.0)
PATIENT = SilenceLimits(unready_s=600.0, kill_s=600.0, starting_s=600.0)
"""For children that report their states alone."""
STARTING, READY, DRAINING, DONE, DEAD, SILENT = ProcessState
WORKING = "tell('ready'); sys.stdin.read(); tell('draining')"
"""A child that is ready, works until it is asked to end, and then does so."""
DEAF = "tell('ready'); threading.Event().wait()"

REPORTING = "from enricher.worker.processes import ParentLink, ProcessState; ParentLink().report(ProcessState.READY); "
"""A child that is ready, and reports as a worker does."""
FREEZABLE = f"{REPORTING}sys.stdin.read()"
HOLDS_THE_LOCK = f"{REPORTING}import ctypes; ctypes.PyDLL(None).sleep(600)"

_PRELUDE = "import os, sys, threading\ntell = lambda word: print(word, flush=True)\n"


def child(program: str) -> Sequence[str]:
    """The command line of a child that runs `program`."""
    return [sys.executable, "-c", _PRELUDE + program]


class Run:
    """A supervisor at work in a thread, and what it says."""

    def __init__(
        self, programs: Callable[[int], str], count: int, grace_s: float, silence: SilenceLimits, *, until_done: bool
    ) -> None:
        self.started: Counter[int] = Counter()
        self.lines: list[str] = []
        self._programs = programs
        self.supervisor = Supervisor(
            self._command, count, LIMITS, silence, grace_s=grace_s, until_done=until_done, write=self.lines.append
        )
        self.codes: list[int] = []
        self.thread = threading.Thread(target=lambda: self.codes.append(self.supervisor.run()), daemon=True)
        self.thread.start()

    def _command(self, index: int) -> Sequence[str]:
        self.started[index] += 1
        return child(self._programs(index))

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for something, looking all the time: states change in another thread, and nobody is told."""
        assert wait_until(holds, PATIENCE_S, 0.005), f"not in time: {self.supervisor.states()} {self.lines}"

    def code(self) -> int:
        """How it ended."""
        self.thread.join(PATIENCE_S)
        assert self.codes, f"it does not end: {self.supervisor.states()}"
        return self.codes[0]


@contextmanager
def supervised(
    *programs: str,
    grace_s: float = 30.0,
    until_done: bool = False,
    then: Sequence[str] = (),
    silence: SilenceLimits = PATIENT,
) -> Iterator[Run]:
    """Children that run `programs`; `then`: what the first one runs after each restart."""
    later = iter(then)
    seen: Counter[int] = Counter()

    def program(index: int) -> str:
        seen[index] += 1
        return programs[index] if index or seen[index] == 1 else next(later, programs[index])

    run = Run(program, len(programs), grace_s, silence, until_done=until_done)
    try:
        yield run
    finally:
        pids = list(run.supervisor.pids().values())
        run.supervisor.stop()
        run.thread.join(PATIENCE_S)
        assert not [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).ppid() == os.getpid()]


def until_there(path: Path) -> str:
    """The code of a child that waits for this file."""
    return f"while not os.path.exists({str(path)!r}): threading.Event().wait(0.01)\n"


def test_all_are_ready_when_each_is(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """One that still starts keeps the whole unready; a line says when all are there."""
    caplog.set_level(logging.INFO)
    with supervised(WORKING, until_there(tmp_path / "go") + WORKING) as run:
        run.until(lambda: run.supervisor.states() == {0: READY, 1: STARTING})
        assert not run.supervisor.ready
        (tmp_path / "go").touch()
        run.until(lambda: run.supervisor.ready)
        run.until(lambda: "all 2 processes are ready" in caplog.text)


def test_stop_lets_all_drain_and_ends_with_zero() -> None:
    """Asked once, each child ends in good order, and nobody is started again."""
    with supervised(WORKING, WORKING, WORKING) as run:
        run.until(lambda: run.supervisor.ready)
        run.supervisor.stop()
        assert run.code() == 0
        assert run.supervisor.states() == {0: DEAD, 1: DEAD, 2: DEAD}
        assert run.started == {0: 1, 1: 1, 2: 1}


def test_a_child_that_drains_says_so() -> None:
    """From being asked to its end it is not ready any more."""
    with supervised("tell('ready'); sys.stdin.read(); tell('draining'); threading.Event().wait()") as run:
        run.until(lambda: run.supervisor.ready)
        run.supervisor.stop()
        run.until(lambda: run.supervisor.states() == {0: DRAINING})
        assert not run.supervisor.ready
        os.kill(run.supervisor.pids()[0], signal.SIGKILL)
        assert run.code() == 137


def test_a_child_that_does_not_end_within_the_grace_is_killed() -> None:
    """With the exit code of no progress."""
    with supervised(DEAF, WORKING, grace_s=0.5) as run:
        run.until(lambda: run.supervisor.ready)
        run.supervisor.stop()
        assert run.code() == 7


def test_a_killed_child_is_started_again_and_the_others_go_on() -> None:
    """Another process takes the place, and everything is ready again."""
    with supervised(WORKING, WORKING) as run:
        run.until(lambda: run.supervisor.ready)
        before = dict(run.supervisor.pids())
        os.kill(before[0], signal.SIGKILL)
        run.until(lambda: run.started[0] == 2 and run.supervisor.ready)
        after = run.supervisor.pids()
        assert after[0] != before[0]
        assert after[1] == before[1]


def test_a_child_that_ends_with_zero_unasked_is_started_again() -> None:
    """The number of workers is kept, no matter why one ended."""
    with supervised("tell('ready')", WORKING, then=[WORKING]) as run:
        run.until(lambda: run.started[0] == 2 and run.supervisor.ready)


def test_until_done_a_child_that_ends_with_zero_is_done(tmp_path: Path) -> None:
    """When all are, the end is a clean one; those that still work decide whether the whole is ready."""
    with supervised("pass", f"tell('ready')\n{until_there(tmp_path / 'done')}", until_done=True) as run:
        run.until(lambda: run.supervisor.states() == {0: DONE, 1: READY})
        assert run.supervisor.ready
        os.kill(run.supervisor.pids()[1], signal.SIGKILL)
        run.until(lambda: run.started[1] == 2 and 1 in run.supervisor.pids())
        (tmp_path / "done").touch()
        assert run.code() == 0
        assert run.started == {0: 1, 1: 2}
        assert not run.supervisor.ready


@pytest.mark.parametrize("code", [2, 3, 4, 12])
def test_what_no_restart_mends_ends_all_with_its_code(code: int) -> None:
    """At once, and the others in good order."""
    with supervised(f"sys.exit({code})", WORKING) as run:
        assert run.code() == code
        assert run.started == {0: 1, 1: 1}


def test_a_device_that_fails_under_way_is_worth_another_process() -> None:
    """Code 3 before a child was ready is a model that is refused; later it is a device that stopped."""
    with supervised("tell('ready'); sys.exit(3)", WORKING, then=[WORKING]) as run:
        run.until(lambda: run.started[0] == 2 and run.supervisor.ready)


@pytest.mark.parametrize(("program", "code"), [("sys.exit(1)", 1), ("os.kill(os.getpid(), 9)", 137)])
def test_a_child_that_dies_again_and_again_ends_all_with_its_code(program: str, code: int) -> None:
    """Two restarts in a row are allowed here; the third death is the end, and a killed child ends as a shell says it."""
    with supervised(program, WORKING) as run:
        assert run.code() == code
        assert run.started == {0: 3, 1: 1}


def test_lines_of_children_have_their_number_before_them() -> None:
    """Whatever they print and wherever, none is lost, and none is mixed with another's."""
    loud = "for n in range(200): print('error', n, file=sys.stderr)\nprint('output')\nsys.stderr.write('no newline')"
    with supervised(loud, loud, until_done=True) as run:
        assert run.code() == 0
        for index in (0, 1):
            own = [line for line in run.lines if line.startswith(f"[{index}] ")]
            expected = [f"[{index}] error {n}\n" for n in range(200)] + [
                f"[{index}] no newline\n",
                f"[{index}] output\n",
            ]
            assert sorted(expected) == sorted(own)


def test_a_child_goes_on_though_nobody_takes_its_lines() -> None:
    """Of `enricher run --processes 2 | tee` the reader was killed: what the child says must not fill its pipe for ever."""

    def gone(_line: str) -> None:
        raise BrokenPipeError

    more_than_a_pipe_holds = "sys.stderr.write('a line\\n' * 500_000)"
    supervisor = Supervisor(
        lambda _index: child(more_than_a_pipe_holds), 1, LIMITS, PATIENT, grace_s=30.0, until_done=True, write=gone
    )
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(supervisor.run()), daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    supervisor.stop()
    assert [0] == codes


def test_children_are_told_of_the_end_of_a_parent_that_was_killed(tmp_path: Path) -> None:
    """SIGKILL leaves no time for anything: the end of the pipe tells them."""
    pids = tmp_path / "pids"
    parent = f"""
from enricher.worker.processes import *
limits = RestartLimits(0, 0.0, 60.0)
silence = SilenceLimits(600.0, 600.0, 600.0)
program = {_PRELUDE + WORKING!r}
parent = Supervisor(lambda index: [sys.executable, "-c", program], 2, limits, silence, grace_s=30.0, until_done=False)
thread = threading.Thread(target=parent.run)
thread.start()
while not parent.ready:
    threading.Event().wait(0.01)
from pathlib import Path
Path({str(pids)!r}).write_text(" ".join(map(str, parent.pids().values())))
print("ready", flush=True)
"""
    process = psutil.Popen(child(parent), stdout=-1)
    try:
        assert process.stdout.readline() == b"ready\n"
        children = [psutil.Process(int(pid)) for pid in pids.read_text().split()]
        process.kill()
        gone, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
        assert (2, []) == (len(gone), alive)
    finally:
        process.kill()
        process.wait()


def test_a_child_tells_where_it_answers_for_its_health() -> None:
    """Until it ends; its replacement reports again. A line that only looks like a report is forwarded."""
    first = "print('health 43211', flush=True); print('health port', flush=True); tell('ready'); sys.stdin.readline()"
    with supervised(first, WORKING, then=["print('health 43212', flush=True); " + WORKING]) as run:
        run.until(lambda: run.supervisor.ready)
        assert {0: 43211} == run.supervisor.health_ports()
        os.kill(run.supervisor.pids()[0], signal.SIGKILL)
        run.until(lambda: run.started[0] == 2 and run.supervisor.ready)
        run.until(lambda: run.supervisor.health_ports() == {0: 43212})
        assert "[0] health port\n" in run.lines


def test_started_once_is_started_for_ever() -> None:
    """A child that dies later takes readiness away, and not that."""
    with supervised(WORKING, WORKING, then=["sys.stdin.readline(); " + WORKING]) as run:
        assert not run.supervisor.started
        run.until(lambda: run.supervisor.ready)
        run.until(lambda: run.supervisor.started)
        os.kill(run.supervisor.pids()[0], signal.SIGKILL)
        run.until(lambda: run.started[0] == 2)
        assert not run.supervisor.ready
        assert run.supervisor.started
        assert not run.supervisor.stopping


def test_the_loop_turns_though_nothing_happens() -> None:
    """What the parent's own liveness is told by: it begins a turn at least once a second."""
    with supervised(WORKING) as run:
        run.until(lambda: run.supervisor.ready)
        ages_s = [run.supervisor.turn_age_s]

        def a_turn_began() -> bool:
            ages_s.append(run.supervisor.turn_age_s)
            return ages_s[-1] < ages_s[-2]

        run.until(a_turn_began)


UNREADY_ONLY = SilenceLimits(unready_s=3.0, kill_s=600.0, starting_s=600.0)


def test_a_frozen_child_is_not_ready_until_it_continues(caplog: pytest.LogCaptureFixture) -> None:
    """A process that is stopped reports nothing; the age of its last report grows until it does again."""
    with supervised(FREEZABLE, FREEZABLE, silence=UNREADY_ONLY) as run:
        run.until(lambda: run.supervisor.ready)
        os.kill(run.supervisor.pids()[0], signal.SIGSTOP)
        run.until(lambda: run.supervisor.states() == {0: SILENT, 1: READY})
        assert not run.supervisor.ready
        assert 3.0 < run.supervisor.report_ages_s()[0]
        run.until(lambda: 3.0 > run.supervisor.report_ages_s()[1])
        run.until(lambda: bool(re.search(r"process 0 has not reported for \d+ s and is not ready", caplog.text)))
        os.kill(run.supervisor.pids()[0], signal.SIGCONT)
        run.until(lambda: run.supervisor.ready)
        run.until(lambda: "process 0 reports again" in caplog.text)
        assert {0: 1, 1: 1} == run.started


KILLING = SilenceLimits(unready_s=2.0, kill_s=4.0, starting_s=600.0)


def test_all_children_that_are_frozen_are_killed_and_started_again(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody is left to answer, and the parent alone brings all of them back."""
    with supervised(FREEZABLE, FREEZABLE, silence=KILLING) as run:
        run.until(lambda: run.supervisor.ready)
        before = dict(run.supervisor.pids())
        for pid in before.values():
            os.kill(pid, signal.SIGSTOP)
        run.until(lambda: min(run.started.values()) > 1 and run.supervisor.ready)
        assert not set(before.values()) & set(run.supervisor.pids().values())
        for index, pid in before.items():
            assert f"process {index} (pid {pid}) has not reported for" in caplog.text


def test_a_child_whose_c_code_holds_the_interpreters_lock_is_killed_and_started_again() -> None:
    """It runs, but none of its threads does, its watchdog's included."""
    with supervised(HOLDS_THE_LOCK, FREEZABLE, silence=KILLING, then=[FREEZABLE]) as run:
        run.until(lambda: run.started[0] == 2 and run.supervisor.ready)
        assert 1 == run.started[1]


def test_a_child_that_freezes_while_it_starts_has_the_time_of_a_start() -> None:
    """A library may hold the lock for long while it is loaded, but not for ever."""
    silence = SilenceLimits(unready_s=1.0, kill_s=2.0, starting_s=6.0)
    program = "from enricher.worker.processes import ParentLink; ParentLink(); threading.Event().wait(1.5); "
    with supervised(
        f"{program}import ctypes; ctypes.PyDLL(None).sleep(600)", FREEZABLE, silence=silence, then=[FREEZABLE]
    ) as run:
        run.until(lambda: run.supervisor.states()[0] is SILENT and run.supervisor.report_ages_s()[0] > 3.0)
        assert 1 == run.started[0]
        run.until(lambda: run.started[0] == 2 and run.supervisor.ready)


def test_a_child_that_freezes_again_and_again_ends_all() -> None:
    """The time for which it was frozen does not count as time for which it was ready."""
    limits = RestartLimits(max_in_a_row=1, first_pause_s=0.0, stable_s=3.0)
    frozen = f"{REPORTING}import signal; os.kill(os.getpid(), signal.SIGSTOP)"
    parent = Supervisor(
        lambda _: child(frozen), 1, limits, KILLING, grace_s=30.0, until_done=False, write=lambda _: None
    )
    assert 128 + signal.SIGKILL == parent.run()


def test_a_parent_that_stood_still_kills_nobody() -> None:
    """After a pause of the parent all its children seem silent, until it has read what they reported meanwhile."""
    now_s, turns, heard = 0.0, 0, threading.Event()

    def clock() -> float:
        return now_s

    def write(_line: str) -> None:
        heard.set()

    started: list[int] = []

    def command(index: int) -> Sequence[str]:
        started.append(index)
        return child("tell('ready'); sys.stderr.write('ready\\n'); sys.stdin.read()")

    supervisor = Supervisor(command, 1, LIMITS, KILLING, grace_s=30.0, until_done=False, clock=clock, write=write)
    codes: list[int] = []

    @contextmanager
    def counted() -> Iterator[None]:
        nonlocal turns
        yield
        turns += 1

    thread = threading.Thread(target=lambda: codes.append(supervisor.run(counted)), daemon=True)
    thread.start()
    assert heard.wait(PATIENCE_S)
    for _ in range(5):
        now_s, before = now_s + 60.0, turns
        assert wait_until(lambda before=before: turns > before, PATIENCE_S, 0.005)  # type: ignore[misc]
    supervisor.stop()
    thread.join(PATIENCE_S)
    assert ([0], [0]) == (codes, started)


def test_children_that_cannot_be_killed_do_not_keep_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that hangs in a driver or on a network disk outlives SIGKILL for as long as the kernel waits."""
    monkeypatch.setattr("enricher.worker.processes.supervisor.UNKILLABLE_S", 0.5)
    with supervised(DEAF, grace_s=0.5) as run:
        run.until(lambda: run.supervisor.ready)
        stuck = psutil.Process(run.supervisor.pids()[0])
        monkeypatch.setattr(Child, "kill", lambda _child: None)
        run.supervisor.stop()
        assert 7 == run.code()
        stuck.kill()
        stuck.wait(PATIENCE_S)


def test_a_child_never_blocks_on_a_parent_that_reads_nothing() -> None:
    """While the parent is frozen, reports of being alive stop before the pipe is full: states still fit into it."""
    program = (
        "import select\n"
        "from enricher.worker.processes import ProcessState, link\n"
        "link.ALIVE_EVERY_S = 0.0\n"
        "parent = link.ParentLink()\n"
        "while select.select([], [parent._output], [], 0)[1]:\n"
        "    threading.Event().wait(0.01)\n"
        "for state in (ProcessState.READY, ProcessState.DRAINING):\n"
        "    parent.report(state)\n"
        "print('told', file=sys.stderr, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        child(program), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        assert "told\n" == process.stderr.readline()
        lines = [process.stdout.readline() for _ in range(20_000)]
        assert {"alive\n", "ready\n", "draining\n"} == set(lines)
        process.stdin.close()


def test_a_parent_whose_log_nobody_reads_ends() -> None:
    """Its own watchdog bounds each turn: a parent that hangs would restart nobody."""
    program = """
import logging
from enricher.worker.processes import *
from enricher.worker.runtime.watchdog import Watchdog
logging.basicConfig()
os.set_blocking(2, False)
try:
    while os.write(2, b"x" * 1_000):
        pass
except BlockingIOError:
    os.set_blocking(2, True)
silence = SilenceLimits(600.0, 600.0, 600.0)
command = [sys.executable, "-c", "pass"]
parent = Supervisor(lambda _: command, 1, RestartLimits(5, 0.0, 60.0), silence, grace_s=30.0, until_done=False)
with Watchdog(check_every_s=0.01) as watchdog:
    parent.run(lambda: watchdog.guard("one turn of the parent", 3.0))
"""
    with subprocess.Popen(child(program), stderr=subprocess.PIPE) as parent:
        try:
            assert 7 == parent.wait(PATIENCE_S)
        finally:
            parent.kill()


@pytest.mark.parametrize(
    "line", ["health", "health 0", "health 65536", "health x", "health -1", "health ٣", "ready 1", ""]
)
def test_what_is_no_port_is_none(line: str) -> None:
    """Nor a state's word with something behind it."""
    assert health_port_of(line) is None
    assert health_port_of(health_line(8080)) == 8080
