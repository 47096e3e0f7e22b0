"""Measures each file of a run, and at its end writes `profile.json` and a table into `.profile/`, which git ignores.

A file's processor time is that of the test process and of all that it started, while its tests ran; brokers that several
files share count where they did the work. Processes whose parent has ended are not seen.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest

from support.profile.processes import Children, tree_s
from support.profile.table import write_tables
from tools.kafka import Cluster
from tools.kafka.node import Node
from tools.opensearch import OpenSearch
from tools.registry import Registry

P = ParamSpec("P")
R = TypeVar("R")

_FOLDER = "PYTEST_PROFILE_FOLDER"
_CHILD = Path(__file__).with_name("child")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Whether to measure."""
    parser.addoption(
        "--profile", action="store_true", help="write where the time goes, by file and by cause, to .profile/"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Measure in each process that runs tests; gather in the one that distributes them."""
    if not config.getoption("--profile"):
        return
    folder = config.rootpath / ".profile"
    is_distributor = not hasattr(config, "workerinput") and bool(config.getoption("numprocesses", None))
    if not hasattr(config, "workerinput"):
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.json"):
            old.unlink()
    if not is_distributor:
        config.pluginmanager.register(_Profile(folder))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Report(folder))


class _Profile:
    """Of one process that runs tests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._causes: defaultdict[str, float] = defaultdict(float)
        self._files: dict[str, dict[str, float]] = {}
        self._file, self._since = "collection", (time.monotonic(), 0.0)
        self._children = Children()
        os.environ[_FOLDER] = str(folder)
        os.environ["PYTHONPATH"] = os.pathsep.join((str(_CHILD), os.environ.get("PYTHONPATH", "")))

    def pytest_sessionstart(self) -> None:
        """Watch processes, Java and the loading of models."""
        from enricher.worker.wiring import loaded_tasks  # noqa: PLC0415 - only where a run is profiled

        self._children.start()
        for kind in (Cluster, Node, Registry, OpenSearch):
            kind.start = self._then_java_answers(kind.start)  # type: ignore[method-assign]
        loaded_tasks.load_model = self._timed("models", loaded_tasks.load_model)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Change the file that pays; what a test of properties takes is a cause."""
        self._now_runs(item.nodeid.split("::")[0])
        started_s = time.process_time()
        result = yield
        if hasattr(getattr(item, "obj", None), "hypothesis"):
            self._causes["properties"] += time.process_time() - started_s
        return result

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Write this process's figures."""
        self._now_runs("end")
        self._children.stop()
        self._causes["own"] = time.process_time()
        figures = {
            "files": self._files,
            "causes": self._causes,
            "java": sum(self._children.java_s.values()),
            "java_ready": sum(self._children.java_ready_s.values()),
            "java_processes": len(self._children.java_s),
            "python": self._children.python_s,
        }
        (self._folder / f"process-{os.getpid()}.json").write_text(json.dumps(figures))

    def _now_runs(self, file: str) -> None:
        if file == self._file:
            return
        now = (time.monotonic(), tree_s())
        passed = self._files.setdefault(self._file, {"wall": 0.0, "processor": 0.0})
        passed["wall"] += now[0] - self._since[0]
        passed["processor"] += now[1] - self._since[1]
        self._file, self._since = file, now

    def _then_java_answers(self, start: Callable[P, R]) -> Callable[P, R]:
        def started(*arguments: P.args, **named: P.kwargs) -> R:
            result = start(*arguments, **named)
            self._children.java_answers()
            return result

        return started

    def _timed(self, cause: str, call: Callable[P, R]) -> Callable[P, R]:
        def timed(*arguments: P.args, **named: P.kwargs) -> R:
            started_s = time.process_time()
            try:
                return call(*arguments, **named)
            finally:
                self._causes[cause] += time.process_time() - started_s

        return timed


class _Report:
    """Of the process that the user started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started_s = time.monotonic()

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the tables, and show the shorter one."""
        terminalreporter.section("where the time goes")
        terminalreporter.write_line(write_tables(self._folder, time.monotonic() - self._started_s))
