"""How long tests wait, and for what."""

from __future__ import annotations

import time
from collections.abc import Callable

from tools import waiting

PATIENCE_S = 120.0
"""For what must happen, and usually does in seconds: a busy machine takes twenty times as long. Half of a test's limit."""


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str, every_s: float = 0.1) -> None:
    """Wait until `condition()` is true; fails with `what` after `timeout_s`."""
    assert waiting.wait_until(condition, timeout_s, every_s), f"not within {timeout_s:g} s: {what}"


def retry(action: Callable[[], object], *errors: type[Exception]) -> None:
    """Repeat an action until it raises none of these errors; fails with the last of them."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            action()
        except errors:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.02)
        else:
            return
