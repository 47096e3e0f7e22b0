"""Each fault of a broker, on three of which each partition has three replicas.

One broker alone does not keep its promise: see deploy/promises.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.series import assert_exactly_once, kinds_of, name_of, running, survive

from tools.chaos.faults import Fault
from tools.chaos.proxied import nodes_behind_a_proxy
from tools.chaos.scene import Scene
from tools.kafka.properties import QUICK_TO_NOTICE

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def scene(kafka_version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Workers on three nodes that no other file has."""
    with (
        nodes_behind_a_proxy(3, version=kafka_version, properties=QUICK_TO_NOTICE) as nodes,
        running(tmp_path_factory.mktemp("workers"), nodes) as scene,
    ):
        yield scene


@pytest.mark.parametrize("kind", kinds_of("brokers"), ids=name_of)
def test_group_publishes_again_after(scene: Scene, kind: type[Fault]) -> None:
    """Every partition publishes again, and no worker ends without a reason."""
    survive(scene, kind)


def test_every_record_is_there_once_after_all_of_them(scene: Scene) -> None:
    """Nothing is lost, doubled, wrong or out of order."""
    assert_exactly_once(scene)
