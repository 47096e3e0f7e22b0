"""The shortest effective form of each fault, so that a test of it takes seconds."""

from __future__ import annotations

import signal
from collections.abc import Mapping

from support.crews import forked_module
from tools.chaos.faults import Fault
from tools.chaos.faults.brokers import CoordinatorGoneWhileIdle
from tools.chaos.faults.commands import CommandKilled
from tools.chaos.faults.network import LateRequest
from tools.chaos.faults.topics import OffsetsDeleted, TopicMadeAgain
from tools.chaos.faults.workers import ModelHangs, RebalanceStorm, WorkerPaused
from tools.chaos.scene import TRANSACTION_S
from tools.chaos.worker import POLL_INTERVAL_S

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
    if isinstance(fault, OffsetsDeleted):  # the output topic has most outputs
        fault.hidden, fault.early, fault.lasts_s = fault.scene.names.output, False, 4.0
    if isinstance(fault, CommandKilled):
        fault.launch = forked_module
        fault.kills = fault.kills[:1]
        fault.about = f"in {fault.kills[0].name}"
