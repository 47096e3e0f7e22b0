"""Each kind of fault in its short form, on three brokers and three workers; after each, every record is checked."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from random import Random

import pytest

from nemesis.campaign import Campaign
from nemesis.check import check
from nemesis.faults import KINDS, Fault
from nemesis.scene import Scene, wait_until

pytestmark = pytest.mark.broker

RATE_PER_S = 60.0
IDLE_S = 60.0
EXIT_CODES = {0, 4, 5, 6, 7, -signal.SIGKILL, -signal.SIGTERM}
"""With a reason; SIGTERM where it came before the interpreter had begun to listen. No crash, no bug."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A world for all kinds, one after the other."""
    with Scene(tmp_path_factory.mktemp("workers"), rate_per_s=RATE_PER_S) as scene:
        scene.workload.resume()
        assert Campaign(scene).wait_until_whole()
        yield scene


def name_of(kind: type[Fault]) -> str:
    """Of a test's parameter."""
    return kind.__name__


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_group_publishes_again_and_every_record_is_there_once_after(scene: Scene, kind: type[Fault]) -> None:
    """Every partition publishes again; when the input has run dry nothing is lost, doubled, wrong or out of order."""
    if not kind.possible(scene):
        pytest.skip("not on this system")
    scene.workload.resume()
    fault = kind(scene, Random(1))
    fault.shorten()
    outcome = Campaign(scene, print).run_one(fault)
    scene.workload.pause()
    assert outcome.recovered_s is not None
    assert wait_until(lambda: scene.backlog() == 0 and scene.workload.settled, IDLE_S), "the input did not run dry"
    assert wait_until(lambda: scene.timeline.total >= scene.workload.delivered, IDLE_S)
    findings = check(scene.cluster.bootstrap_servers, scene.names, scene.timeline.seen)
    assert findings.inputs > 0
    assert findings.wrong == {}
    assert {code for codes in outcome.exits.values() for code in codes} <= EXIT_CODES
