"""Faults of topics and group: the input is made again or grows, offsets are deleted, outputs are hidden."""

from __future__ import annotations

import subprocess
import time

from confluent_kafka import Producer

from tools.chaos.faults.base import EXIT_CODES, NO_OFFSETS, REFUSED, Fault
from tools.chaos.scene import Scene


class _OffsetsGone(Fault):
    """Takes the group's offsets away, and sets them as an operator does, while no worker runs."""

    exit_codes = EXIT_CODES | {NO_OFFSETS}

    def wake_after(self, command: subprocess.Popen[bytes]) -> None:
        """Start the workers once the offsets are set."""
        if code := command.wait():
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
        self.wake_after(self.scene.start_set_offsets())
        self.scene.workload.resume()


class OffsetsDeleted(_OffsetsGone):
    """Drains all workers, deletes the group with its offsets, and sets them behind the outputs.

    Sometimes another producer's open transaction hides the newest outputs: it begins while the workers run, so outputs
    follow in the same partitions, and a reader of committed records sees none of them. Whoever goes on behind those that it
    sees writes the others twice. So `enricher offsets set` waits for its end.
    """

    name = "all drained, offsets deleted"
    _until_outputs_s = 3.0

    def choose(self) -> None:
        """Draw which output topic has another producer's transaction, if any."""
        names = self.scene.names
        self.hidden = self.chosen.choice([None, names.output, names.dead_letters])
        self.lasts_s = self.chosen.uniform(5.0, 12.0) if self.hidden else self.chosen.uniform(0.5, 4.0)

    def apply(self) -> None:
        """Stop the workers and delete the offsets; set them already if a transaction hides outputs."""
        scene = self.scene
        self.about = f"for {self.lasts_s:.1f} s"
        if self.hidden:
            self.about += f", behind another producer's transaction in '{self.hidden}'"
            self._hide(self.hidden)
        scene.crew.rest()
        scene.topics.forget_offsets()
        if self.hidden:
            self.command = scene.start_set_offsets()

    def heal(self) -> None:
        """Set the offsets; abort the transaction first, for which the command waits."""
        if not self.hidden:
            self.command = self.scene.start_set_offsets()
        elif self.command.poll() is not None:
            self.broken.append("the offsets were set although a transaction hid outputs")
        if self.hidden:
            self.producer.abort_transaction(30)
            self.producer.close()
        self.wake_after(self.command)

    def _hide(self, topic: str) -> None:
        """Open the transaction and let outputs follow. It is aborted: the check knows no outputs of others."""
        self.producer = Producer(
            {
                "bootstrap.servers": self.scene.cluster.bootstrap_servers,
                "transactional.id": f"{self.scene.names.group}-foreign",
                "transaction.timeout.ms": 120_000,
                "log_level": 0,
            }
        )
        self.producer.init_transactions(30)
        self.producer.begin_transaction()
        for partition in range(self.scene.partitions):
            self.producer.produce(topic, b"another producer's", b"foreign", partition)
        self.producer.flush(30)
        time.sleep(self._until_outputs_s)


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
