"""Faults in their shortest effective form, one after another on one scene; every record is checked at the end."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from support.crews import forked
from support.patience import PATIENCE_S
from tools.chaos.__main__ import catch_up, inject
from tools.chaos.check import check
from tools.chaos.faults import KINDS, Fault, base
from tools.chaos.faults.brokers import CoordinatorGoneWhileIdle
from tools.chaos.faults.commands import CommandKilled
from tools.chaos.faults.network import LateRequest
from tools.chaos.faults.topics import TopicMadeAgain
from tools.chaos.faults.workers import ModelHangs, RebalanceStorm, WorkerPaused
from tools.chaos.proxy import Proxy
from tools.chaos.scene import TRANSACTION_S, Scene
from tools.chaos.worker import POLL_INTERVAL_S
from tools.kafka import Cluster

RATE_PER_S = 12.0
LONG = {
    "BrokerKilled",  # DiskFull ends a broker that has all roles for some partitions, and hands over as little
    "CoordinatorGoneWhileIdle",  # test_broker_faults.py has it, and what would happen without the defences
}
"""Kinds that only `scripts/chaos` has, every night."""


def kinds_of(*modules: str) -> Sequence[type[Fault]]:
    """The kinds of these modules of `tools.chaos.faults`."""
    return [each for each in KINDS if each.__module__.rpartition(".")[2] in modules and each.__name__ not in LONG]


def name_of(kind: type[Fault]) -> str:
    """The id of a test."""
    return kind.__name__


@contextmanager
def running(folder: Path, brokers: tuple[Proxy, Cluster]) -> Iterator[Scene]:
    """Two workers that both publish."""
    with Scene(folder, brokers, workers=2, rate_per_s=RATE_PER_S, launch=forked) as scene:
        scene.workload.resume()
        assert scene.wait_until_whole()
        yield scene


def survive(scene: Scene, kind: type[Fault]) -> None:
    """One fault of a kind takes effect; every partition publishes again, and no worker ends without a reason."""
    if not kind.possible(scene):
        pytest.skip("not on this system")
    fault = kind(scene, Random(1))
    shorten(fault)
    with pytest.MonkeyPatch.context() as patch:  # the machine may be busy
        patch.setattr(base, "CATCH_S", PATIENCE_S)
        outcome = inject(scene, fault)
    print(outcome)
    assert "did not come" not in outcome.about
    assert outcome.recovered_s is not None
    assert list(outcome.wrong) == []


def assert_exactly_once(scene: Scene) -> None:
    """Every input has its one output, the right one and in order."""
    assert catch_up(scene)
    findings = check(scene.names, scene.timeline.seen, scene.topics.past)
    assert findings.inputs > 0
    assert findings.wrong == {}, findings.wrong


_SHORT: Mapping[type[Fault], Mapping[str, object]] = {
    CoordinatorGoneWhileIdle: {"away_s": 4.0},  # until the coordinator has left the metadata
    LateRequest: {"hang_up": True},  # the request is repeated at once
    TopicMadeAgain: {"absent_s": 0.0},  # the harder case
    WorkerPaused: {"lasts_s": TRANSACTION_S + 0.5},
    RebalanceStorm: {"visits": [(2.0, signal.SIGTERM), (2.0, signal.SIGKILL)]},
    ModelHangs: {"hang_s": POLL_INTERVAL_S + 1},  # the worker survives
}
"""Parameters by kind; the first kind that a fault is decides. All others last two seconds at most."""


def shorten(fault: Fault) -> None:
    """Give a fault that has not been applied its shortest parameters."""
    fault.lasts_s = min(fault.lasts_s, 2.0)
    for name, value in next((short for kind, short in _SHORT.items() if isinstance(fault, kind)), {}).items():
        setattr(fault, name, value)
    if isinstance(fault, CommandKilled):
        fault.records = 75  # a second and a half of articles: some transactions
        fault.kills = fault.kills[:1]
        fault.about = f"in {fault.kills[0].name}"
