"""Faults of the network between workers and brokers, injected by the proxy."""

from __future__ import annotations

import signal
from abc import abstractmethod

from tools.chaos.faults.base import EXIT_CODES, Fault
from tools.chaos.forgeries import DamagedRecords
from tools.chaos.frames import Api
from tools.chaos.rules import Cut, Delay, Direction, Match, Rule, Silence


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


class OneWay(_NetworkFault):
    """Passes nothing in one direction."""

    name = "one-way connections"
    least_s, most_s = 2.0, 10.0

    def make(self) -> Rule:
        direction = self.chosen.choice(list(Direction))
        self.about += f", nothing {direction.value}"
        return Silence(self.match, {direction})


class RecordsDamaged(Fault):
    """Damages one byte of a record in every other Fetch reply to a worker, as a faulty network card does."""

    name = "records damaged on the way"
    # Now and then librdkafka aborts on such a reply instead of reporting it (rd_slice_narrow_copy's assertion, see
    # confluent-kafka-python issue 689). The process dies, which is safe at any moment.
    exit_codes = EXIT_CODES | {-signal.SIGABRT}

    def choose(self) -> None:
        self.worker, self.lasts_s = self.some_worker(), self.chosen.uniform(2.0, 6.0)
        self.about = f"{self.worker}, {self.lasts_s:.1f} s"

    def apply(self) -> None:
        self.damage = DamagedRecords(self.of_worker(self.worker, Api.FETCH))
        self.catch(self.damage)

    def heal(self) -> None:
        super().heal()
        self.about += f", {self.damage.damaged} replies"
