"""Faults of the network between workers and brokers, by the proxy."""

from __future__ import annotations

from abc import abstractmethod

from tools.chaos.faults.base import Fault
from tools.chaos.forgeries import DamagedRecords
from tools.chaos.frames import Api
from tools.chaos.rules import Cut, Delay, Direction, Match, Rule, Silence


class _NetworkFault(Fault):
    """A rule for the connections of one worker, to one broker, or for all."""

    least_s, most_s = 1.0, 6.0

    def choose(self) -> None:
        """Whose connections, for how long."""
        self.lasts_s = self.chosen.uniform(self.least_s, self.most_s)
        worker, node = self.some_worker(), self.chosen.randrange(len(self.scene.cluster.nodes))
        one_worker = Match(client=self.place(worker).client_id)
        targets = [(worker, one_worker), (f"node {node + 1}", Match(nodes={node})), ("all", Match())]
        self.about, self.match = self.chosen.choice(targets)
        self.rule = self.make()
        self.about += f", {self.lasts_s:.1f} s"

    @abstractmethod
    def make(self) -> Rule:
        """The rule."""

    def apply(self) -> None:
        """Let it work."""
        self.scene.proxy.apply(self.rule)

    def heal(self) -> None:
        """No more of it."""
        self.scene.proxy.lift(self.rule)


class ConnectionsCut(_NetworkFault):
    """Connections are reset, and new ones too."""

    name = "connections cut"

    def make(self) -> Rule:
        """The rule."""
        return Cut(self.match)


class ConnectionsDelayed(_NetworkFault):
    """Everything takes 5 to 30 s longer, each way."""

    name = "connections delayed"
    least_s, most_s = 6.0, 15.0

    def make(self) -> Rule:
        """The rule."""
        seconds = self.chosen.uniform(5.0, 30.0)
        self.about += f", by {seconds:.0f} s"
        return Delay(self.match, seconds)


class OneWay(_NetworkFault):
    """Nothing arrives in one direction."""

    name = "one-way connections"
    least_s, most_s = 2.0, 10.0

    def make(self) -> Rule:
        """The rule."""
        direction = self.chosen.choice(list(Direction))
        self.about += f", nothing {direction.value}"
        return Silence(self.match, {direction})


class RecordsDamaged(Fault):
    """One byte of a record is another on its way to a worker, in every other reply to its Fetch: a bad network card."""

    name = "records damaged on the way"

    def choose(self) -> None:
        """On whose way, for how long."""
        self.worker, self.lasts_s = self.some_worker(), self.chosen.uniform(2.0, 6.0)
        self.about = f"{self.worker}, {self.lasts_s:.1f} s"

    def apply(self) -> None:
        """Damage them."""
        self.damage = DamagedRecords(self.of_worker(self.worker, Api.FETCH))
        self.catch(self.damage)

    def heal(self) -> None:
        """No more of it."""
        self.scene.proxy.lift(self.damage)
        self.about += f", {self.damage.damaged} replies"
