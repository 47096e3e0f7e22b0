"""Faults of what Kafka keeps of a topic and a group: the topic is made again, the committed offsets are gone."""

from __future__ import annotations

import time

from tools.chaos.faults.base import EXIT_CODES, Fault

_REFUSED = 4
"""A worker that starts while there is no input topic may say so and end."""


class TopicMadeAgain(Fault):
    """The input topic is deleted and created again under its name, with other records in it.

    At once, and one partition is filled beyond the place where the group was: a client that knows the topic by its name
    goes on there and leaves out what comes before. Or after a pause, in which there is no such topic.
    """

    name = "topic made again"
    exit_codes = EXIT_CODES | {_REFUSED}
    _burst, _beyond = 600, 100

    def choose(self) -> None:
        """At once or after a pause; which partition is filled."""
        self.absent_s = self.chosen.choice([0.0, self.chosen.uniform(3.0, 8.0)])
        self.filled = self.chosen.randrange(self.scene.partitions)

    def shorten(self) -> None:
        """At once: that is the worse one."""
        self.absent_s = 0.0

    def apply(self) -> None:
        """Note what is in it while the workers read on, publish some more and delete it before they are done."""
        scene = self.scene
        scene.workload.pause()
        scene.workload.settle()
        past = scene.topics.remember_input()
        scene.workload.burst(self._burst)
        scene.topics.remember_the_rest(past)
        scene.topics.delete_input()
        time.sleep(self.absent_s)
        scene.topics.create_input()
        scene.workload.reconnect()
        self.about = f"after {past.count} inputs"
        if self.absent_s:
            self.about += f", {self.absent_s:.1f} s later"
        else:
            count = past.nexts.get(self.filled, 0) + self._beyond
            scene.workload.burst(count, self.filled)
            self.about += f", at once, with {count} in partition {self.filled}"

    def heal(self) -> None:
        """The usual ones again."""
        self.scene.workload.resume()


class OffsetsDeleted(Fault):
    """All workers are stopped in order, the group is deleted with all its offsets, and the workers are started again."""

    name = "committed offsets deleted"

    def choose(self) -> None:
        """How long nobody works."""
        self.lasts_s = self.chosen.uniform(0.5, 4.0)
        self.about = f"nobody works for {self.lasts_s:.1f} s"

    def apply(self) -> None:
        """Stop and delete."""
        self.scene.crew.rest()
        self.scene.topics.forget_offsets()

    def heal(self) -> None:
        """Start."""
        self.scene.crew.wake()
