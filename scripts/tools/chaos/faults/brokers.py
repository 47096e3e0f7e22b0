"""Faults of the brokers."""

from __future__ import annotations

import resource
import sys
import time

from tools.chaos.faults.base import Fault
from tools.chaos.scene import Scene
from tools.kafka import Node
from tools.waiting import wait_until

_IDLE_S = 30.0
_ENDS_S = 30.0
_LEADER, _TRANSACTIONS, _GROUP = "leader of outputs", "coordinator of transactions", "coordinator of the group"


class BrokerKilled(Fault):
    """SIGKILL to a broker with a certain role; it is restarted after a while."""

    name = "broker killed"
    role: str = ""
    """The role, if a kind has only one."""

    def choose(self) -> None:
        self.lasts_s = self.chosen.uniform(2.0, 8.0)
        self.worker = self.some_worker()
        self.partition = self.chosen.randrange(self.scene.partitions)
        self.role = self.role or self.chosen.choice([_LEADER, _TRANSACTIONS, _GROUP])

    def find(self) -> Node:
        """The node that has the role now."""
        if self.role == _TRANSACTIONS:
            return self.scene.transaction_coordinator(self.worker)
        if self.role == _GROUP:
            return self.scene.group_coordinator()
        return self.scene.leader_of(self.scene.names.output, self.partition)

    def apply(self) -> None:
        self.node = self.find()
        self.about = f"node {self.node.node_id}, {self.role}, {self.lasts_s:.1f} s"
        self.node.kill()

    def heal(self) -> None:
        self.node.start()


class CoordinatorGoneWhileIdle(BrokerKilled):
    """The group's coordinator goes while no worker has work, and work comes back before the coordinator does.

    A client that still caches it hangs in send_offsets for ever (librdkafka 5511, 5456).
    """

    name = "group coordinator gone while idle"
    role = _GROUP

    def choose(self) -> None:
        """Draw how long it is away before there is work again, and how it ends."""
        super().choose()
        self.away_s = self.chosen.uniform(4.0, 8.0)
        self.graceful = self.chosen.random() < 0.5

    def apply(self) -> None:
        """Let the workers become idle, end the coordinator, then publish again."""
        self.scene.workload.pause()
        dry = wait_until(lambda: self.scene.backlog() == 0, _IDLE_S, 0.5)
        self.node = self.find()
        (self.node.stop if self.graceful else self.node.kill)()
        time.sleep(self.away_s)
        self.scene.workload.resume()
        how = f"{'SIGTERM' if self.graceful else 'SIGKILL'}, {'idle' if dry else 'not idle'}"
        self.about = f"node {self.node.node_id}, {how}, {self.away_s:.1f} s before work came"


class BrokerFrozen(BrokerKilled):
    """SIGSTOP to a broker, past its session with the controller or not; then SIGCONT."""

    name = "broker frozen"

    def apply(self) -> None:
        self.node = self.find()
        self.about = f"node {self.node.node_id}, {self.role}, {self.lasts_s:.1f} s"
        self.node.suspend()

    def heal(self) -> None:
        self.node.resume()


class DiskFull(BrokerKilled):
    """The files of a coordinator of transactions can no longer grow. It ends itself at the next write, and is restarted.

    Uses a limit on file size (EFBIG instead of ENOSPC), which needs no right to mount a small disk: to Kafka both are an
    input/output error of its log directory.
    """

    name = "disk of transactions full"
    role = _TRANSACTIONS

    @classmethod
    def possible(cls, scene: Scene) -> bool:  # noqa: ARG003
        """Only Linux can set limits of another process."""
        return sys.platform == "linux"

    def apply(self) -> None:
        """Set the limit and wait until the broker has ended."""
        self.node = self.find()
        resource.prlimit(self.node.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        ended = wait_until(lambda: not self.node.running, _ENDS_S)
        self.about = f"node {self.node.node_id} {'ended itself' if ended else 'went on'}"

    def heal(self) -> None:
        """Start the node; a new process has no limit."""
        self.node.kill()
        super().heal()
