"""A pytest plugin: what a test opens is closed with it, also if it fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

CLOSING = ExitStack()
"""Takes what the test that runs now opens. Closed after each test, so that nothing is left to a later one."""


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Closes it, what was opened last first."""
    yield
    CLOSING.close()
