"""Faults that come with the input or its topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.chaos.articles import Articles
from tools.chaos.faults.base import EXIT_CODES, REFUSED, Fault
from tools.chaos.frames import Api
from tools.chaos.incarnations import LARGE_BYTES
from tools.chaos.rules import Delay, Match
from tools.topics import configure

if TYPE_CHECKING:
    from tools.chaos.scene import Scene

_MOST_PARTITIONS = 10
_LETTER_LIMIT_BYTES = 2 * LARGE_BYTES
_OUTPUT_LIMIT_BYTES = 4_096
"""Above every output of the workload: with their headers they take up to 3,500 bytes."""


class PartitionsAdded(Fault):
    """Adds one partition to each topic."""

    name = "partitions added"

    @classmethod
    def possible(cls, scene: Scene) -> bool:
        """Only a few times, because partitions cannot be removed."""
        return scene.partitions < _MOST_PARTITIONS

    def apply(self) -> None:
        self.scene.topics.add_partition()
        self.about = f"{self.scene.partitions} now"


class OutputPartitionsAdded(Fault):
    """Adds one partition to the outputs while the workers run, and one to the input some seconds later.

    Slow transactions make each worker renew its producer, which looks at the partitions again. In the end the counts are
    equal, since a worker that starts while they differ rightly refuses.
    """

    name = "output partitions added"

    @classmethod
    def possible(cls, scene: Scene) -> bool:
        """Only a few times, because partitions cannot be removed."""
        return scene.partitions < _MOST_PARTITIONS

    def choose(self) -> None:
        self.lasts_s, self.slow_s = self.chosen.uniform(3.0, 6.0), self.chosen.uniform(0.2, 0.4)

    def apply(self) -> None:
        self.scene.topics.add_output_partition()
        self.inject(Delay(Match({Api.END_TXN}), self.slow_s))
        self.about = f"{self.scene.partitions + 1} of the outputs, {self.lasts_s:.1f} s before the input's"

    def heal(self) -> None:
        super().heal()
        self.scene.topics.add_input_partition()


class _LimitLowered(Fault):
    """A topic accepts less than the workers know. They may end, and ask for the limit only when they start."""

    exit_codes = EXIT_CODES | {REFUSED}

    def limit(self, topic: str, size_bytes: int) -> None:
        """Limit the message size of a topic until `heal`."""
        self.topic = topic
        configure(self.scene.names.bootstrap_servers, topic, {"max.message.bytes": str(size_bytes)})

    def heal(self) -> None:
        """Restore the broker's default, and restart the workers, as an operator does."""
        configure(self.scene.names.bootstrap_servers, self.topic, {"max.message.bytes": None})
        self.scene.crew.rest()
        self.scene.crew.wake()


class RefusedLetter(_LimitLowered):
    """Invalid inputs about as large as the dead-letter topic accepts, and larger."""

    name = "dead letters refused for their size"
    _around = (-2_000, -700, -100, 0, 60_000, 600_000)
    """Bytes beyond the limit: letters that fit, letters too large only with their headers, letters that never fit."""

    def choose(self) -> None:
        self.sizes_bytes = [
            _LETTER_LIMIT_BYTES + beyond for beyond in self.chosen.sample(self._around, len(self._around))
        ]
        self.lasts_s = self.chosen.uniform(5.0, 10.0)
        self.about = f"{len(self.sizes_bytes)} around {_LETTER_LIMIT_BYTES} bytes, {self.lasts_s:.1f} s"

    def apply(self) -> None:
        self.limit(self.scene.names.dead_letters, _LETTER_LIMIT_BYTES)
        self.scene.workload.large_poison(self.sizes_bytes)


class OutputLimitLowered(_LimitLowered):
    """The output topic accepts less while articles arrive: each output fits, and many in one batch do not.

    So no article may become a dead letter.
    """

    name = "max.message.bytes lowered"
    _burst = 600

    def choose(self) -> None:
        """Draw the limit, how long it stays, and which partition gets the articles: their outputs share batches."""
        self.limit_bytes = self.chosen.randrange(_OUTPUT_LIMIT_BYTES, 2 * _OUTPUT_LIMIT_BYTES)
        self.lasts_s = self.chosen.uniform(5.0, 10.0)
        self.filled = self.chosen.randrange(self.scene.partitions)
        self.about = (
            f"to {self.limit_bytes} bytes, {self.lasts_s:.1f} s, {self._burst} articles in partition {self.filled}"
        )

    def apply(self) -> None:
        """Limit the topic's message size and publish many articles at once."""
        self.limit(self.scene.names.output, self.limit_bytes)
        self.scene.workload.burst(self._burst, self.filled)


class PoisonMessages(Fault):
    """Many invalid inputs in a row."""

    name = "poison messages"

    def choose(self) -> None:
        self.count = self.chosen.randrange(50, 300)
        self.about = f"{self.count} in a row"

    def apply(self) -> None:
        self.scene.workload.burst(self.count, make=Articles.poison)


class TransactionalInput(Fault):
    """Input written in transactions, some of them aborted: offsets have gaps and markers between them."""

    name = "input in transactions, some aborted"

    def choose(self) -> None:
        chosen = self.chosen
        self.transactions = [(chosen.randrange(1, 60), chosen.random() < 0.6) for _ in range(5)]
        self.about = ", ".join(f"{count} {'committed' if commit else 'aborted'}" for count, commit in self.transactions)

    def apply(self) -> None:
        for count, commit in self.transactions:
            self.scene.workload.in_transaction(count, commit=commit)
