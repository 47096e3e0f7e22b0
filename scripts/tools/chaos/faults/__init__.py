"""All kinds of faults; `plan` draws them by a seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from tools.chaos.faults.base import Fault
from tools.chaos.faults.brokers import BrokerFrozen, BrokerKilled, CoordinatorGoneWhileIdle, DiskFull
from tools.chaos.faults.commands import RedriveKilled, ReplayKilled
from tools.chaos.faults.network import ConnectionsCut, ConnectionsDelayed, LateEndTxn, LateTxnOffsetCommit
from tools.chaos.faults.topics import OffsetsDeleted, PartitionsAdded, TopicMadeAgain
from tools.chaos.faults.workers import ModelHangs, RebalanceStorm, Rival, WorkerKilled, WorkerPaused, WorkerStopped

__all__ = ["KINDS", "Fault", "plan"]

KINDS: tuple[type[Fault], ...] = (
    WorkerKilled,
    WorkerPaused,
    WorkerStopped,
    RebalanceStorm,
    ModelHangs,
    Rival,
    BrokerKilled,
    BrokerFrozen,
    CoordinatorGoneWhileIdle,
    DiskFull,
    ConnectionsCut,
    ConnectionsDelayed,
    LateEndTxn,
    LateTxnOffsetCommit,
    PartitionsAdded,
    TopicMadeAgain,
    OffsetsDeleted,
    ReplayKilled,
    RedriveKilled,
)


def plan(seed: int, kinds: Sequence[type[Fault]] = KINDS) -> Iterator[tuple[type[Fault], Random]]:
    """Yield kinds forever, each with the random source of its parameters: all kinds once in random order, then again.

    Depends on `seed` and `kinds` alone, not on how long anything takes.
    """
    order = Random(seed)  # noqa: S311  repeatable, not secret
    while True:
        for kind in order.sample(kinds, len(kinds)):
            yield kind, Random(order.getrandbits(64))  # noqa: S311  as above
