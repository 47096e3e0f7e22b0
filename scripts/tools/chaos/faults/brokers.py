"""Faults of the brokers."""

from __future__ import annotations

import resource
import sys
import time
from abc import abstractmethod
from typing import TYPE_CHECKING

from tools.chaos.faults.base import EXIT_CODES, FENCED, Fault
from tools.chaos.waiting import wait_until

if TYPE_CHECKING:
    from tools.chaos.scene import Scene
    from tools.kafka import Node

_IDLE_S = 30.0
_ENDS_S = 30.0


class _BrokerKilled(Fault):
    """SIGKILL to a broker with a certain job; it is started again after a while."""

    def choose(self) -> None:
        """For how long it is away."""
        self.lasts_s = self.chosen.uniform(2.0, 8.0)
        self.worker = self.some_worker()
        self.partition = self.chosen.randrange(self.scene.partitions)

    @abstractmethod
    def find(self) -> Node:
        """Who has the job now."""

    def apply(self) -> None:
        """Kill it."""
        self.node = self.find()
        self.about = f"node {self.node.node_id}, {self.lasts_s:.1f} s"
        self.node.kill()

    def heal(self) -> None:
        """Start it."""
        self.node.start()


class LeaderKilled(_BrokerKilled):
    """The leader of an output partition."""

    name = "data leader killed"

    def find(self) -> Node:
        """Of an output partition."""
        return self.scene.leader_of(self.scene.names.output, self.partition)


class TransactionCoordinatorKilled(_BrokerKilled):
    """The coordinator of a worker's transactions."""

    name = "transaction coordinator killed"

    def find(self) -> Node:
        """Of one of the workers."""
        return self.scene.transaction_coordinator(self.worker)


class GroupCoordinatorKilled(_BrokerKilled):
    """The coordinator of the workers' group."""

    name = "group coordinator killed"

    def find(self) -> Node:
        """Of the group."""
        return self.scene.group_coordinator()


class CoordinatorGoneWhileIdle(_BrokerKilled):
    """The group's coordinator goes while no worker has anything to do, and work comes back before the coordinator does.

    A client that still caches it hangs in send_offsets for ever (librdkafka 5511, 5456).
    """

    name = "group coordinator gone while idle"

    def choose(self) -> None:
        """For how long it is away before there is work again, and afterwards."""
        super().choose()
        self.away_s = self.chosen.uniform(4.0, 8.0)
        self.graceful = self.chosen.random() < 0.5

    def shorten(self) -> None:
        """Long enough for the coordinator to leave the metadata."""
        super().shorten()
        self.away_s = 4.0

    def find(self) -> Node:
        """Of the group."""
        return self.scene.group_coordinator()

    def apply(self) -> None:
        """Run dry, end it, let work come back."""
        self.scene.workload.pause()
        dry = wait_until(lambda: self.scene.backlog() == 0, _IDLE_S, 0.5)
        self.node = self.find()
        (self.node.stop if self.graceful else self.node.kill)()
        time.sleep(self.away_s)
        self.scene.workload.resume()
        how = "SIGTERM" if self.graceful else "SIGKILL"
        self.about = (
            f"node {self.node.node_id}, {how}, {'idle' if dry else 'not idle'}, {self.away_s:.1f} s before work came"
        )


class BrokerFrozen(_BrokerKilled):
    """SIGSTOP to a broker, past its session with the controller or not; then SIGCONT."""

    name = "broker frozen"
    exit_codes = EXIT_CODES - {FENCED}

    def find(self) -> Node:
        """Of an output partition."""
        return self.scene.leader_of(self.scene.names.output, self.partition)

    def apply(self) -> None:
        """Freeze it."""
        self.node = self.find()
        self.about = f"node {self.node.node_id}, {self.lasts_s:.1f} s"
        self.node.suspend()

    def heal(self) -> None:
        """Let it go on."""
        self.node.resume()


class RollingRestart(Fault):
    """All brokers one after the other, in good order."""

    name = "rolling restart of all brokers"
    exit_codes = EXIT_CODES - {FENCED}

    def apply(self) -> None:
        """Each comes back before the next one goes."""
        for node in self.scene.cluster.nodes:
            node.stop()
            node.start()


class DiskFull(_BrokerKilled):
    """No file of a broker can grow any more. It ends itself at the next write, and is started again with room.

    By a limit on the size of files (EFBIG instead of ENOSPC), which needs no right to mount a small disk: to Kafka both
    are an input/output error of its log directory.
    """

    name = "broker's disk full"
    exit_codes = EXIT_CODES - {FENCED}

    @classmethod
    def possible(cls, scene: Scene) -> bool:  # noqa: ARG003
        """Where another process's limits can be set."""
        return sys.platform == "linux"

    def find(self) -> Node:
        """Of an output partition."""
        return self.scene.leader_of(self.scene.names.output, self.partition)

    def apply(self) -> None:
        """Set the limit, and wait until the broker has met it."""
        self.node = self.find()
        resource.prlimit(self.node.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        ended = wait_until(lambda: not self.node.running, _ENDS_S)
        self.about = f"node {self.node.node_id} {'ended itself' if ended else 'went on'}"

    def heal(self) -> None:
        """There is room again: a new process has no such limit."""
        self.node.kill()
        super().heal()
