"""Faults that concern the articles of one partition notice if others stand still. No broker or registry runs here."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tools.chaos.faults import registry
from tools.chaos.faults.registry import UnknownIds
from tools.chaos.scene import Scene

PARTITIONS, END = 6, 100


class _Group:
    """A scene whose group never commits anything of the partitions that `stand`."""

    partitions = PARTITIONS

    def __init__(self, stand: set[int]) -> None:
        self.schemas = self.workload = cast("Any", _Accepts())
        self._stand = stand

    def ends(self) -> Mapping[int, int]:
        """All alike."""
        return dict.fromkeys(range(PARTITIONS), END)

    def behind(self, ends: Mapping[int, int]) -> list[int]:
        """Those that stand."""
        return sorted(self._stand & ends.keys())


class _Accepts(SimpleNamespace):
    def __getattr__(self, _name: str) -> Any:  # noqa: ANN401  whatever it is asked
        return lambda *_, **_options: None


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_OTHERS_S", 0.0)
    monkeypatch.setattr(registry, "_THROUGH_S", 0.0)


def flood_of(scene: _Group) -> UnknownIds:
    """A flood in the same partition each time."""
    return UnknownIds(cast("Scene", scene), Random(1))


def test_a_partition_that_stands_still_because_of_another_one_is_noticed() -> None:
    """The negative control: a worker that lets one partition take all the room breaks what the fault demands."""
    concerned = flood_of(_Group(set())).partition
    other = (concerned + 1) % PARTITIONS
    fault = flood_of(_Group({concerned, other}))
    fault.apply()
    assert [f"partitions [{other}] did not go on within 0 s"] == fault.broken


def test_a_flood_must_end() -> None:
    """Its partition may wait for a while, and not for ever."""
    fault = flood_of(_Group({flood_of(_Group(set())).partition}))
    fault.apply()
    fault.heal()
    assert ["the flood is not through within 0 s"] == fault.broken
