"""Each fault of a broker, on three of which each partition has three replicas, and a negative control.

One broker alone does not keep its promise: see deploy/promises.md.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from support.coordinator_gone import AS_IT_IS, FIRST, HANGS, REST, WATCHED, Outcome, scenario
from support.series import assert_exactly_once, kinds_of, name_of, running, survive

from enricher.errors import Stalled
from tools.chaos.faults import Fault
from tools.chaos.proxy import Proxy, nodes_behind_a_proxy
from tools.chaos.scene import Scene
from tools.kafka import Cluster
from tools.kafka.properties import QUICK_TO_NOTICE

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def nodes(kafka_version: str) -> Iterator[tuple[Proxy, Cluster]]:
    """Three nodes that no other file has."""
    with nodes_behind_a_proxy(3, version=kafka_version, properties=QUICK_TO_NOTICE) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def outcome(nodes: tuple[Proxy, Cluster], tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The workers of the negative control, when the coordinator of their groups has gone and is back."""
    return scenario(*nodes, tmp_path_factory.mktemp("workers"))


@pytest.fixture(scope="module")
def scene(nodes: tuple[Proxy, Cluster], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Workers for all faults."""
    with running(tmp_path_factory.mktemp("workers"), nodes) as scene:
        yield scene


def test_without_settings_and_watchdog_a_worker_hangs_until_killed(outcome: Outcome) -> None:
    """Its offsets are never sent; neither SIGTERM nor the coordinator's return helps; its successor loses nothing."""
    assert [] == outcome.exits_then[HANGS]
    assert not outcome.offsets_sent_then[HANGS]
    assert outcome.committed_then[HANGS] == FIRST
    assert [-signal.SIGKILL] == outcome.exits[HANGS]
    assert outcome.committed[HANGS] == FIRST + REST
    assert [] == outcome.failed[HANGS]


def test_without_the_settings_the_watchdog_ends_it_and_its_successor_works(outcome: Outcome) -> None:
    """The watchdog ends the worker with its exit code; nothing is lost or doubled."""
    assert [Stalled.exit_code] == outcome.exits[WATCHED]
    assert outcome.committed[WATCHED] == FIRST + REST
    assert [] == outcome.failed[WATCHED]


def test_with_the_settings_the_worker_goes_on(outcome: Outcome) -> None:
    """The same process publishes everything, although its group's coordinator is gone."""
    assert [] == outcome.exits[AS_IT_IS]
    assert outcome.offsets_sent_then[AS_IT_IS]
    assert outcome.committed_then[AS_IT_IS] == FIRST + REST
    assert [] == outcome.failed[AS_IT_IS]


@pytest.mark.parametrize("kind", kinds_of("brokers"), ids=name_of)
def test_group_publishes_again_after(scene: Scene, kind: type[Fault]) -> None:
    """Every partition publishes again, and no worker ends without a reason."""
    survive(scene, kind)


def test_every_record_is_there_once_after_all_of_them(scene: Scene) -> None:
    """Nothing is lost, doubled, wrong or out of order."""
    assert_exactly_once(scene)
