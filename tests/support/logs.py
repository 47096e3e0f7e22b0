"""A pytest plugin: where the processes of a test log, and what the report of a failure shows of it.

A log is a file `*.log`, or just `log`, in pytest's temporary folder, which stays when a test has failed. The workers and
servers for which a test names no file write to `folder()`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Generator, Iterator
from itertools import count
from pathlib import Path

import pytest

from tools.kafka.keeper import LOGS

LINES, LINE_CHARS, TAIL_BYTES = 30, 400, 64 * 2**10
MOST_LOGS = 8
_SEGMENT = re.compile(r"\d{20}\.log")
"""A file of a broker's topic."""
_CLOCK_S = 0.1
"""Time stamps of files may be older than the clock by a tick of the kernel's."""
_BEGAN = pytest.StashKey[float]()
_base: list[Path] = []


def folder() -> Path:
    """The folder of logs that no test has named."""
    return _base[-1] / "logs"


def new_log(name: str) -> Path:
    """A new file for the log of a process."""
    path = next(path for number in count(1) if not (path := folder() / f"{name}-{number}.log").exists())
    path.touch()
    return path


def written_since(began_s: float) -> list[Path]:
    """The logs that were written to since then, the one that was written to last first."""
    found = [(path.stat().st_mtime, path) for path in _logs_in(_base[-1]) if path.stat().st_size]
    return [path for changed_s, path in sorted(found, reverse=True) if changed_s >= began_s]


def _logs_in(base: Path) -> Iterator[Path]:
    for pattern in ("*.log", "log"):
        yield from (path for path in base.rglob(pattern) if path.is_file() and not _SEGMENT.fullmatch(path.name))


def _end_of(path: Path) -> str:
    """The last lines. Lines of any length are cut, so that the report can be read."""
    with path.open("rb") as file:
        file.seek(-min(TAIL_BYTES, path.stat().st_size), os.SEEK_END)
        lines = file.read().decode("utf-8", "replace").splitlines()
    return "\n".join(line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]} ..." for line in lines[-LINES:])


@pytest.fixture(autouse=True, scope="session")
def _logs_are_kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """All logs go to pytest's temporary folder, those of servers too, whose own folders are removed."""
    _base.append(tmp_path_factory.getbasetemp())
    folder().mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LOGS, str(folder()))
        yield
    _base.pop()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note when the test begins."""
    item.stash[_BEGAN] = time.time() - _CLOCK_S


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the ends of the logs that were written to since the test began."""
    report = yield
    if report.failed and _base:
        for number, path in enumerate(written_since(item.stash[_BEGAN])):
            report.sections.append((f"Log {path}", _end_of(path) if number < MOST_LOGS else "(not shown)"))
    return report
