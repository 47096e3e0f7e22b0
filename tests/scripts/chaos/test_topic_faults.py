"""Each fault of topics, connections and single requests, on one broker."""

from __future__ import annotations

import pytest
from support.series import assert_exactly_once, kinds_of, name_of, survive

from tools.chaos.faults import Fault
from tools.chaos.scene import Scene

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("kind", kinds_of("topics", "network"), ids=name_of)
def test_group_publishes_again_after(scene: Scene, kind: type[Fault]) -> None:
    """Every partition publishes again, and no worker ends without a reason."""
    survive(scene, kind)


def test_every_record_is_there_once_after_all_of_them(scene: Scene) -> None:
    """Nothing is lost, doubled, wrong or out of order."""
    assert_exactly_once(scene)
