"""Exactly-once on the oldest supported Kafka: real workers and transactions, a stub for the model."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.harness import transactional
from kafka.test_crash_points import killed_and_continued
from support.patience import PATIENCE_S

from tools.chaos.__main__ import catch_up, run_verify
from tools.chaos.check import check
from tools.chaos.proxy import nodes_behind_a_proxy
from tools.chaos.rules import Answered, Api, Hold, Match, Watch
from tools.chaos.scene import Scene
from tools.kafka import Cluster
from tools.kafka.versions import OLDEST

pytestmark = pytest.mark.broker

GUEST = "guest"


@pytest.fixture(scope="module")
def oldest() -> Iterator[Cluster]:
    """One broker."""
    with Cluster(version=OLDEST) as cluster:
        yield cluster


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """One broker behind a proxy, two workers, and a publisher that never pauses."""
    with (
        nodes_behind_a_proxy(1, version=OLDEST) as brokers,
        Scene(tmp_path, brokers, workers=2, rate_per_s=40.0) as scene,
    ):
        scene.workload.resume()
        assert scene.wait_until_whole()
        yield scene


def killed_in_a_transaction(scene: Scene, worker: str) -> None:
    """SIGKILL when records and offsets of a transaction are written; its end reaches the broker after the successor."""
    slot = scene.crew.slots[worker]
    scene.proxy.apply(ending := Hold(Match({Api.END_TXN}, slot.client_id)))
    assert ending.caught.wait(PATIENCE_S)
    scene.proxy.apply(succeeded := Answered(Match({Api.INIT_PRODUCER_ID}, slot.client_id)))
    slot.send(signal.SIGKILL)
    assert succeeded.caught.wait(PATIENCE_S)
    scene.proxy.lift(ending, succeeded)


def test_a_worker_killed_in_a_transaction_is_continued_by_its_successor(oldest: Cluster) -> None:
    """When its offsets were sent, and when its records were with the broker: every article has one output."""
    killed_and_continued(oldest, ["offsets-sent:1", "flushed:3"])


@pytest.mark.long
def test_every_article_is_there_once_after_a_kill_a_move_and_a_rival(scene: Scene) -> None:
    """One worker dies in a transaction, one comes and goes, a rival takes an id: nothing is lost, doubled or different."""
    killed_in_a_transaction(scene, "worker-0")
    scene.crew.add(GUEST)
    joined = Watch(Match({Api.END_TXN}, scene.crew.slots[GUEST].client_id))
    scene.proxy.apply(joined)
    assert joined.caught.wait(PATIENCE_S), "the third worker has work of its own"
    scene.proxy.lift(joined)
    scene.crew.remove(GUEST)

    scene.proxy.apply(ending := Hold(Match({Api.END_TXN}, scene.crew.slots["worker-1"].client_id)))
    assert ending.caught.wait(PATIENCE_S)
    transactional(scene.cluster.bootstrap_servers, scene.transactional_id("worker-1"))
    scene.proxy.lift(ending)
    assert scene.wait_until_whole(), "both workers commit again"

    assert catch_up(scene)
    scene.crew.close()
    findings = check(scene.names, scene.timeline.seen)
    assert findings.wrong == {}
    assert findings.inputs > 200
    assert findings.uncommitted > 0, "no transaction was rolled back: nothing was tried"
    assert run_verify(scene.names) == 0
