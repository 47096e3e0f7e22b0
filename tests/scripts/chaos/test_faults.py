"""Each kind of fault in its short form, on three brokers and three workers; every record is checked after each.

The kinds are divided between two scenes, because most of a fault is waiting for a session to end or a broker to return.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from random import Random
from typing import cast

import pytest
from support.crews import forked
from support.short_faults import shorten

from tools.chaos.campaign import Outcome, inject
from tools.chaos.check import check
from tools.chaos.faults import KINDS, Fault
from tools.chaos.proxy import nodes_behind_a_proxy
from tools.chaos.scene import Scene
from tools.kafka.properties import QUICK_TO_NOTICE
from tools.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.long]

WORLDS = 2
RATE_PER_S = 60.0
IDLE_S = 60.0


def begun(scene: Scene) -> None:
    """Start publishing; wait until every worker publishes."""
    scene.workload.resume()
    assert scene.wait_until_whole()


def survived(scene: Scene, ready: Future[None], kind: type[Fault]) -> Outcome | None:
    """Run one fault, then check every record once the input is processed; None if the fault is not possible here."""
    ready.result()
    if not kind.possible(scene):
        return None
    scene.workload.resume()
    fault = kind(scene, Random(1))
    shorten(fault)
    outcome = inject(scene, fault)
    print(outcome)
    scene.workload.pause()
    assert outcome.recovered_s is not None
    assert wait_until(lambda: scene.backlog() == 0 and scene.workload.acknowledged, IDLE_S), "the input did not run dry"
    assert wait_until(scene.all_is_seen, IDLE_S, 0.5)
    findings = check(scene.names, scene.timeline.seen, scene.topics.past)
    assert findings.inputs > 0
    assert findings.wrong == {}
    return outcome


def wanted(request: pytest.FixtureRequest) -> Sequence[type[Fault]]:
    """The kinds of the selected tests."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    here = [item for item in items if item.path == request.path]
    return [cast("type[Fault]", item.callspec.params["kind"]) for item in here]


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[type[Fault], Future[Outcome | None]]]:
    """The outcome of every kind; each scene runs its kinds one after the other."""
    kinds, futures = wanted(request), {}
    with ExitStack() as closing:
        for number in range(min(WORLDS, len(kinds))):
            brokers = closing.enter_context(nodes_behind_a_proxy(3, properties=QUICK_TO_NOTICE))
            folder = tmp_path_factory.mktemp("workers")
            scene = closing.enter_context(Scene(folder, brokers, rate_per_s=RATE_PER_S, launch=forked))
            pool = ThreadPoolExecutor(1)
            closing.callback(pool.shutdown, cancel_futures=True)
            ready = pool.submit(begun, scene)
            futures.update({kind: pool.submit(survived, scene, ready, kind) for kind in kinds[number::WORLDS]})
        yield futures


def name_of(kind: type[Fault]) -> str:
    """The id of a test."""
    return kind.__name__


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_group_publishes_again_and_every_record_is_there_once_after(
    outcomes: Mapping[type[Fault], Future[Outcome | None]], kind: type[Fault]
) -> None:
    """Every partition publishes again, no worker exits unexplained, and nothing is lost, doubled, wrong or out of order."""
    outcome = outcomes[kind].result()
    if outcome is None:
        pytest.skip("not on this system")
    assert list(outcome.wrong) == []
