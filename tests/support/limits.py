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
    return any(item.get_closest_marker(name) for name in ("long", "cluster"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse tests of the plain run that ask for more time than the others."""
    most_s = float(config.getini("timeout"))
    longer = sorted({item.nodeid for item in items if limit_s(item) > most_s and not may_take_longer(item)})
    if longer:
        raise pytest.UsageError(f"a test that may take more than {most_s:g} s is marked as long: {', '.join(longer)}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give a test that may take longer the time that it asks for, instead of `faulthandler_timeout`."""
    is_on = float(item.config.getini("faulthandler_timeout") or 0) > 0
    if is_on and limit_s(item) > float(item.config.getini("timeout")):
        stderr = item.config.stash[fault_handler_stderr_fd_key]
        faulthandler.dump_traceback_later(limit_s(item) + _GRACE_S, file=stderr, exit=True)
