"""A pytest plugin: how long a test may take, and what ends one that does not end.

pytest-timeout ends a test with its stacks. One that hangs in C does not hear of it: faulthandler then ends the process, also
with all stacks, and pytest-xdist names the test and goes on with another process.
"""

from __future__ import annotations

import faulthandler

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

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
