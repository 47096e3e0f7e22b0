"""Faults of topics and group: the input is made again or grows, offsets are deleted."""

from __future__ import annotations

import time

from tools.chaos.faults.base import EXIT_CODES, NO_OFFSETS, REFUSED, Fault
from tools.chaos.scene import Scene


class _OffsetsGone(Fault):
    """Takes the group's offsets away, and sets them as an operator does, while no worker runs."""

    exit_codes = EXIT_CODES | {NO_OFFSETS}

    def set_offsets_and_wake(self) -> None:
        """Start the workers once the offsets are set."""
        if code := self.scene.set_offsets():
            self.broken.append(f"`enricher offsets set` ended with {code}")
        self.scene.crew.wake()


class TopicMadeAgain(_OffsetsGone):
    """Deletes the input topic and creates it again under its name, with other records.

    Either at once, with one partition filled beyond the group's position: a client that identifies the topic by name would
    continue there and skip what comes before. Or after a pause during which there is no topic.
    """

    name = "topic made again"
    exit_codes = _OffsetsGone.exit_codes | {REFUSED}
    _burst, _beyond = 600, 100

    def choose(self) -> None:
        self.absent_s = self.chosen.choice([0.0, self.chosen.uniform(3.0, 8.0)])
        self.filled = self.chosen.randrange(self.scene.partitions)

    def apply(self) -> None:
        """Record the topic's contents while the workers read, publish more, and delete it before they are done."""
        scene = self.scene
        scene.workload.pause()
        scene.workload.flush()
        past = scene.topics.remember_input()
        scene.workload.burst(self._burst)
        scene.topics.remember_the_rest(past)
        scene.topics.delete_input()
        time.sleep(self.absent_s)
        scene.topics.create_input()
        scene.workload.reconnect()
        self.about = f"after {len(past.inputs)} inputs"
        if self.absent_s:
            self.about += f", {self.absent_s:.1f} s later"
        else:
            count = past.nexts.get(self.filled, 0) + self._beyond
            scene.workload.burst(count, self.filled)
            self.about += f", at once, with {count} in partition {self.filled}"

    def heal(self) -> None:
        """Do as the operator: workers end when they see the new topic, and refuse to start without offsets."""
        self.scene.crew.rest()
        self.scene.topics.wait_until_empty()
        self.set_offsets_and_wake()
        self.scene.workload.resume()


class OffsetsDeleted(_OffsetsGone):
    """Drains all workers, deletes the group with its offsets, and sets them behind the outputs."""

    name = "all drained, offsets deleted"

    def choose(self) -> None:
        self.lasts_s = self.chosen.uniform(0.5, 4.0)
        self.about = f"for {self.lasts_s:.1f} s"

    def apply(self) -> None:
        self.scene.crew.rest()
        self.scene.topics.forget_offsets()

    def heal(self) -> None:
        """Set the offsets as an operator does."""
        self.set_offsets_and_wake()


class PartitionsAdded(Fault):
    """Adds one partition to each topic."""

    name = "partitions added"
    _most = 10

    @classmethod
    def possible(cls, scene: Scene) -> bool:
        """Only a few times, because partitions cannot be removed."""
        return scene.partitions < cls._most

    def apply(self) -> None:
        self.scene.topics.add_partition()
        self.about = f"{self.scene.partitions} now"
