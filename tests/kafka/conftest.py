"""What a test opens is closed with it, also if it fails."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka.clients import CLOSING


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Closes sinks and sources, the last one first."""
    CLOSING.pop_all()  # tests elsewhere close what they open
    yield
    CLOSING.close()
