"""Faults between workers and brokers, by the proxy: connections cut or slow, requests late."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from tools.chaos.faults.base import Fault
from tools.chaos.rules import Api, Cut, Delay, Hold, Match, Rule


class _NetworkFault(Fault):
    """Applies a rule to the connections of one worker, to one broker, or to all connections."""

    least_s, most_s = 1.0, 6.0

    def choose(self) -> None:
        self.lasts_s = self.chosen.uniform(self.least_s, self.most_s)
        worker, node = self.some_worker(), self.chosen.randrange(len(self.scene.cluster.nodes))
        one_worker = Match(client=self.slot(worker).client_id)
        targets = [(worker, one_worker), (f"node {node + 1}", Match(nodes={node})), ("all", Match())]
        self.about, self.match = self.chosen.choice(targets)
        self.rule = self.make()
        self.about += f", {self.lasts_s:.1f} s"

    @abstractmethod
    def make(self) -> Rule:
        """The rule that injects the fault."""

    def apply(self) -> None:
        self.inject(self.rule)


class ConnectionsCut(_NetworkFault):
    """Resets connections, and new ones too."""

    name = "connections cut"

    def make(self) -> Rule:
        return Cut(self.match)


class ConnectionsDelayed(_NetworkFault):
    """Delays every frame by 5 to 30 s, each way."""

    name = "connections delayed"
    least_s, most_s = 6.0, 15.0

    def make(self) -> Rule:
        seconds = self.chosen.uniform(5.0, 30.0)
        self.about += f", by {seconds:.0f} s"
        return Delay(self.match, seconds)


class LateRequest(Fault):
    """Holds a request and releases it later.

    Mostly the connection is closed at once and the worker repeats the request on a new one; otherwise the worker must notice
    by itself that no reply comes.
    """

    api: ClassVar[Api]

    def choose(self) -> None:
        self.worker, self.nth = self.some_worker(), self.chosen.randrange(1, 4)
        self.hang_up = self.chosen.random() < 0.75
        self.lasts_s = self.chosen.uniform(0.5, 3.0) if self.hang_up else self.chosen.uniform(6.0, 9.0)

    def apply(self) -> None:
        how = "sent again meanwhile" if self.hang_up else "no connection lost"
        self.about = f"{self.worker}, {how}, {self.lasts_s:.1f} s"
        self.hold = Hold(self.of_worker(self.worker, self.api), self.nth, hang_up=self.hang_up)
        self.catch(self.hold)


class LateEndTxn(LateRequest):
    """A late EndTxn ends whichever transaction is open by then (KAFKA-17754), unless the epoch has moved on."""

    name = "EndTxn late"
    api = Api.END_TXN


class LateTxnOffsetCommit(LateRequest):
    """A late TxnOffsetCommit sets the committed offset back, unless the epoch has moved on."""

    name = "TxnOffsetCommit late"
    api = Api.TXN_OFFSET_COMMIT
