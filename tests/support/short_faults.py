"""The shortest effective form of each fault, so that a test of it takes seconds."""

from __future__ import annotations

import signal
from collections.abc import Mapping

from support.crews import forked_module
from tools.chaos.faults import Fault
from tools.chaos.faults.brokers import CoordinatorGoneWhileIdle
from tools.chaos.faults.commands import CommandKilled
from tools.chaos.faults.inputs import OutputLimitLowered, OutputPartitionsAdded, RefusedLetter
from tools.chaos.faults.registry import UnknownIds
from tools.chaos.faults.requests import LateProduce, LateRequest, OffsetFetchWrong
from tools.chaos.faults.topics import ForeignTransactionOpen, TopicMadeAgain
from tools.chaos.faults.workers import BrokerAwayAtStart, ChildKilled, ModelHangs, RebalanceStorm, WorkerPaused
from tools.chaos.scene import POLL_INTERVAL_S, TRANSACTION_S

_SHORT: Mapping[type[Fault], Mapping[str, object]] = {
    CoordinatorGoneWhileIdle: {"away_s": 4.0},  # until the coordinator has left the metadata
    OutputPartitionsAdded: {"lasts_s": 3.0},  # until there are new producers
    RefusedLetter: {"lasts_s": 4.0},  # for a few tries
    OutputLimitLowered: {"lasts_s": 4.0},  # for a refused batch and what follows
    UnknownIds: {"_count": 50},
    LateProduce: {},
    LateRequest: {"hang_up": True},  # the request is repeated at once
    OffsetFetchWrong: {"times": 1, "how": signal.SIGTERM},
    TopicMadeAgain: {"absent_s": 0.0},  # the harder case
    WorkerPaused: {"lasts_s": TRANSACTION_S + 0.5},
    BrokerAwayAtStart: {"lasts_s": 12.0},  # longer than a request may take
    RebalanceStorm: {"visits": [(2.0, signal.SIGTERM), (2.0, signal.SIGKILL)]},
    ChildKilled: {"frozen": []},
    ModelHangs: {"hang_s": POLL_INTERVAL_S + 1},  # the worker survives
}
"""Parameters by kind; the first kind that a fault is decides. All others last two seconds at most."""


def shorten(fault: Fault) -> None:
    """Give a fault that has not been applied its shortest parameters."""
    fault.lasts_s = min(fault.lasts_s, 2.0)
    for name, value in next((short for kind, short in _SHORT.items() if isinstance(fault, kind)), {}).items():
        setattr(fault, name, value)
    if isinstance(fault, ForeignTransactionOpen):  # the output topic has most outputs
        fault.topic, fault.lasts_s = fault.scene.names.output, 4.0
    if isinstance(fault, CommandKilled):
        fault.launch = forked_module
        fault.kills = fault.kills[:1]
        fault.about = f"in {fault.kills[0].name}"
