"""A pytest plugin: how long a test may take, what ends one that does not end, and where the tests of a dead process run.

pytest-timeout ends a test with its stacks. One that hangs in C does not hear of it: faulthandler then ends the process, also
with all stacks, and pytest-xdist names the test and goes on with another process.

pytest-xdist 3.8 gives everything that the dead process had to another one. That includes the files that it had finished: the
new process has nothing to do then, reports nothing, and is never given more. It also includes the test that killed it. Files
that share a server run in one process.
"""

from __future__ import annotations

import faulthandler

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from support.order import SHARING

_GRACE_S = 60.0


def limit_s(item: pytest.Item) -> float:
    """The limit that a test asks for; that of all tests if it asks for none."""
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0] if marker else item.config.getini("timeout"))


def may_take_longer(item: pytest.Item) -> bool:
    """Whether it is left out of a plain run."""
    return item.get_closest_marker("long") is not None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give a long test the time that it asks for, instead of `faulthandler_timeout`; refuse it to others."""
    most_s = float(item.config.getini("timeout"))
    if limit_s(item) <= most_s:
        return
    assert may_take_longer(item), f"a test that may take more than {most_s:g} s is marked as long"
    if float(item.config.getini("faulthandler_timeout") or 0) > 0:
        stderr = item.config.stash[fault_handler_stderr_fd_key]
        faulthandler.dump_traceback_later(limit_s(item) + _GRACE_S, file=stderr, exit=True)


class SurvivingScheduling(LoadFileScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Hands out test files. What is left of a dead process's files goes to others, without the test in which it died."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return next((server for server, files in SHARING.items() if file.removeprefix("tests/") in files), file)

    def remove_node(self, node: WorkerController) -> str | None:
        """Hand out what `node` has not done; returns the test in which it died, None if it had nothing more to do."""
        left = {}
        died_in = None
        for scope, tests in self.assigned_work.pop(node).items():
            pending = [name for name, done in tests.items() if not done]
            if pending and died_in is None:
                died_in = pending.pop(0)
            if pending:
                left[scope] = dict.fromkeys(pending, False)
        self.workqueue.update(left)
        for other in self.assigned_work:
            self._reschedule(other)
        return died_in

    def schedule(self) -> None:
        """Begin; if that is done, give a new process two files: it begins a test only when it has the next one, too."""
        begun = self.collection is not None
        super().schedule()
        if begun:
            super().schedule()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> SurvivingScheduling | None:
    """Take the place of `--dist loadfile`."""
    return SurvivingScheduling(config, log) if config.getvalue("dist") == "loadfile" else None
