"""Replay and redrive killed in their transactions, beside live workers on one broker; each checks what it wrote itself."""

from __future__ import annotations

from random import Random

import pytest
from kafka.harness import Sent, publish
from support.series import assert_exactly_once, kinds_of, name_of, survive

from tools.chaos.faults import Fault
from tools.chaos.faults.commands import RedriveKilled
from tools.chaos.scene import Scene
from tools.topics import Topics as Names
from tools.topics import make_topics

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("kind", kinds_of("commands"), ids=name_of)
def test_a_killed_command_comes_to_its_end_with_each_record_once(scene: Scene, kind: type[Fault]) -> None:
    """And the group goes on publishing."""
    survive(scene, kind)


def test_what_is_lost_doubled_or_invented_is_told(scene: Scene) -> None:
    """Negative control for the check of a redrive: of three inputs one is sent twice, one never, and another one once."""
    fault = RedriveKilled(scene, Random(1))
    fault.topics = Names.fresh(scene.cluster.bootstrap_servers, "control")
    make_topics(scene.cluster.bootstrap_servers, fault.topics.all, 1)
    fault.published = {(0, b"once"), (0, b"twice"), (0, b"never")}
    sent = [
        Sent(None, value, [("enricher.redrive.count", b"1")]) for value in (b"once", b"twice", b"twice", b"nobody's")
    ]
    publish(
        scene.cluster.bootstrap_servers,
        fault.topics.input,
        [*(Sent(None, value) for _, value in fault.published), *sent],
    )
    assert {"lost": 1, "doubled": 1, "invented": 1} == fault.check()


def test_every_record_is_there_once_after_all_of_them(scene: Scene) -> None:
    """The live topics and the live group are untouched."""
    assert_exactly_once(scene)
