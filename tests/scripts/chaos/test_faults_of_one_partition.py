"""Faults that concern the articles of one partition notice if others stand still. No broker or registry runs here."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tools.chaos.faults import registry
from tools.chaos.faults.registry import IdForbidden, UnknownIds
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


@pytest.mark.parametrize("kind", [IdForbidden, UnknownIds])
def test_a_partition_that_stands_still_because_of_another_one_is_noticed(kind: type[IdForbidden | UnknownIds]) -> None:
    """The negative control: a worker that lets one partition take all the room breaks what the fault demands."""
    concerned = kind(cast("Scene", _Group(set())), Random(1)).partition
    other = (concerned + 1) % PARTITIONS
    fault = kind(cast("Scene", _Group({concerned, other})), Random(1))
    fault.apply()
    assert [f"partitions [{other}] did not go on within 0 s"] == fault.broken


def test_the_partition_itself_may_wait_while_its_id_is_forbidden_but_a_flood_must_end() -> None:
    """Its articles were good; unknown ids are dead letters."""
    concerned = IdForbidden(cast("Scene", _Group(set())), Random(1)).partition
    found = []
    for kind in (IdForbidden, UnknownIds):
        fault = kind(cast("Scene", _Group({concerned})), Random(1))
        fault.apply()
        fault.heal()
        found.append(fault.broken)
    assert [[], ["the flood is not through within 0 s"]] == found
