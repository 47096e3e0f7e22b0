"""A pytest plugin: what a test opens is closed with it, also if it fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Protocol

import pytest

_LEAVE_S = 20.0
CLOSING = ExitStack()
"""Takes what the test that runs now opens. Closed after each test, so that nothing is left to a later one."""


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Closes it, what was opened last first."""
    yield
    CLOSING.close()


class Member(Protocol):
    """A client in a consumer group."""

    def close(self) -> object:
        """Leave the group."""


def leave_group(member: Member) -> None:
    """Close a member of a group, in a thread that is left behind if that hangs.

    Of 170 members that were closed while they joined, one never returned from the client's `close`. A worker's watchdog
    ends the process then.
    """
    closing = threading.Thread(target=member.close, name="leave-group", daemon=True)
    closing.start()
    closing.join(_LEAVE_S)
