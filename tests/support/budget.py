"""What a quick run may take: with `--budget`, its last lines say what it took, and the slowest files if that is more.

Processor time is that of all processes: those that run tests, and what they started and waited for. No test fails for it.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from operator import itemgetter

import psutil
import pytest

WALL_S, PROCESSOR_S = 60, 100
_SHOWN = 10
_IDLE = 0.1
"""The cores count as idle if others have used less than this share of them; else wall time says nothing."""
_OUTPUT = "budget"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Whether to measure."""
    parser.addoption(
        "--budget",
        action="store_true",
        help=f"say what the run took, and which files took most if it was more than {WALL_S} s on idle cores or"
        f" {PROCESSOR_S} s of processor time",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Measure in each process that runs tests, and report in the one that was called."""
    if config.getoption("--budget"):
        config.pluginmanager.register(_Budget(config))


def summary(wall_s: float, processor_s: float, idle: bool, files: Mapping[str, float]) -> Iterator[str]:  # noqa: FBT001  a finding
    """What the run took. `files`: processor time by name. `idle`: whether the cores had nothing else to do."""
    yield f"{wall_s:.0f} s of wall time{'' if idle else ' on a busy machine'}, {processor_s:.0f} s of processor time"
    if processor_s > PROCESSOR_S or (idle and wall_s > WALL_S):
        yield f"That is more than {WALL_S} s of wall time or {PROCESSOR_S} s of processor time. The slowest files:"
        for name, seconds in sorted(files.items(), key=itemgetter(1), reverse=True)[:_SHOWN]:
            yield f"{seconds:6.1f} s {name}"


class _Budget:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._busy_s = _busy_s()
        self._files: dict[str, float] = defaultdict(float)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before_s = _processor_s()
        result = yield
        self._files[item.nodeid.partition("::")[0]] += _processor_s() - before_s
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """A process that runs tests for another one hands its figures over."""
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput[_OUTPUT] = dict(self._files)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take the figures of a process that ended. One that crashed has none."""
        for name, seconds in getattr(node, "workeroutput", {}).get(_OUTPUT, {}).items():
            self._files[name] += seconds

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say it. The processes that ran tests have ended by now."""
        wall_s, processor_s = time.time() - psutil.Process().create_time(), _processor_s()
        others_s = _busy_s() - self._busy_s - processor_s
        idle = others_s < _IDLE * wall_s * (os.cpu_count() or 1)
        terminalreporter.section("time")
        for line in summary(wall_s, processor_s, idle, self._files):
            terminalreporter.write_line(line)


def _processor_s() -> float:
    """Seconds of this process and of all that it has waited for, with theirs."""
    return sum(os.times()[:4])


def _busy_s() -> float:
    """Seconds of processor time that all processes of this machine have used."""
    times = psutil.cpu_times()
    return float(times.user + times.system)
