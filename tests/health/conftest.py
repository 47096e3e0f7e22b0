"""The browser in which the status pages are looked at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.browser import Browser, chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests of a file."""
    program = chromium()
    assert program is not None
    with Browser(program) as browser:
        yield browser
