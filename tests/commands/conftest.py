"""Fixtures that several tests of commands share."""

from __future__ import annotations

import pytest


@pytest.fixture
def brief_traffic(monkeypatch: pytest.MonkeyPatch) -> None:
    """`model tune` simulates seconds of traffic, which is much on a model as small as those of the tests."""
    for name in ("_WINDOWS", "_SHORTEST_S", "_WARM_UP_S"):
        monkeypatch.setattr(f"enricher.workshop.freshness.{name}", 0.05)
