"""Workers that end are restarted, and their exit codes are recorded."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.crews import forked
from support.doctored import names_of
from support.patience import PATIENCE_S
from support.topics import Topics

from tools.chaos.crew import Crew
from tools.chaos.scene import settings_of
from tools.waiting import wait_until

pytestmark = pytest.mark.broker


def test_killed_worker_is_another_process_and_a_removed_one_is_gone(topics: Topics, tmp_path: Path) -> None:
    """SIGKILL is recorded as a signal, and closing the crew leaves no process."""
    names = names_of(topics)
    with Crew(["w"], lambda name: settings_of(topics.bootstrap_servers, names, name), tmp_path, launch=forked) as crew:
        slot = crew.slots["w"]
        first = slot.pid
        slot.send(signal.SIGKILL)
        assert wait_until(lambda: slot.pid not in {first, None}, PATIENCE_S)
        assert [-signal.SIGKILL] == [end.code for end in crew.exits]
    assert slot.pid is None
