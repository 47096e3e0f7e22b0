"""Trouble that comes with the input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemesis.faults.base import Fault

if TYPE_CHECKING:
    from nemesis.scene import Scene

_MOST_PARTITIONS = 8


class PartitionsAdded(Fault):
    """One more partition for each topic."""

    name = "partitions added"

    @classmethod
    def possible(cls, scene: Scene) -> bool:
        """A few times: what is added stays."""
        return scene.partitions < _MOST_PARTITIONS

    def apply(self) -> None:
        """Add."""
        self.scene.add_partition()
        self.about = f"{self.scene.partitions} now"


class PoisonMessages(Fault):
    """Many inputs in a row that can never be articles."""

    name = "poison messages"

    def choose(self) -> None:
        """How many."""
        self.count = self.chosen.randrange(50, 300)
        self.about = f"{self.count} in a row"

    def apply(self) -> None:
        """Publish them."""
        self.scene.workload.poison(self.count)


class TransactionalInput(Fault):
    """Input written in transactions, some of them aborted: gaps and markers between the offsets."""

    name = "input in transactions, some aborted"

    def choose(self) -> None:
        """How many articles each, and whether they are committed."""
        chosen = self.chosen
        self.transactions = [(chosen.randrange(1, 60), chosen.random() < 0.6) for _ in range(5)]
        self.about = ", ".join(f"{count} {'committed' if commit else 'aborted'}" for count, commit in self.transactions)

    def apply(self) -> None:
        """Publish them."""
        for count, commit in self.transactions:
            self.scene.workload.in_transaction(count, commit=commit)
