"""A pytest plugin: files that share a server run in one process, and a run goes on, and ends, after a process has died.

pytest-xdist 3.8 gives everything that the dead process had to another one. That includes the files that it had finished: the
new process has nothing to do then, reports nothing, and is never given more. It also includes the test that killed it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadFileScheduling

from support.order import SHARING

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController


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
