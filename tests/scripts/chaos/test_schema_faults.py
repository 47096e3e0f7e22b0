"""Each fault of the schema registry, on one broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.series import assert_exactly_once, kinds_of, name_of, running, survive

from tools.chaos.faults import Fault
from tools.chaos.proxy import Proxy
from tools.chaos.scene import Scene
from tools.kafka import Cluster

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def scene(broker_and_proxy: tuple[Proxy, Cluster], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Workers on the shared node, with articles in Avro."""
    with running(tmp_path_factory.mktemp("workers"), broker_and_proxy, registry=True) as scene:
        yield scene


@pytest.mark.parametrize("kind", kinds_of("registry"), ids=name_of)
def test_group_publishes_again_after(scene: Scene, kind: type[Fault]) -> None:
    """Every partition publishes again, and no worker ends without a reason."""
    survive(scene, kind)


def test_every_record_is_there_once_after_all_of_them(scene: Scene) -> None:
    """Nothing is lost, doubled, wrong or out of order."""
    assert_exactly_once(scene)
