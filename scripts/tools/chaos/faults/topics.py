"""Faults of the topics and the group: the input is recreated, the committed offsets are deleted, outputs are hidden."""

from __future__ import annotations

import time

from confluent_kafka import Producer

from tools.chaos.faults.base import EXIT_CODES, REFUSED, Fault
from tools.chaos.frames import Api
from tools.chaos.rules import Watch


class TopicMadeAgain(Fault):
    """Deletes the input topic and creates it again under its name, with other records.

    Either at once, with one partition filled beyond the group's position: a client that identifies the topic by name would
    continue there and skip what comes before. Or after a pause during which there is no topic.
    """

    name = "topic made again"
    exit_codes = EXIT_CODES | {REFUSED}
    _burst, _beyond = 600, 100

    def choose(self) -> None:
        self.absent_s = self.chosen.choice([0.0, self.chosen.uniform(3.0, 8.0)])
        self.filled = self.chosen.randrange(self.scene.partitions)

    def apply(self) -> None:
        """Record the topic's contents while the workers read, publish more, and delete it before they are done."""
        scene = self.scene
        if self.absent_s:  # a worker that starts meanwhile would take the new topic for a first start
            self.restart_with("resume")
        scene.workload.pause()
        scene.workload.flush()
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
        self.scene.workload.resume()


class TopicMadeAgainAfterEnd(TopicMadeAgain):
    """The same while the workers have `kafka.start=end`: the new topic is read from its beginning all the same.

    Without a pause, in which workers might be restarted.
    """

    name = "topic made again under start=end"

    def choose(self) -> None:
        super().choose()
        self.absent_s = 0.0

    def apply(self) -> None:
        self.restart_with("end")
        super().apply()


class ForeignTransactionOpen(Fault):
    """Deletes the group's offsets while another producer's open transaction hides its newest outputs.

    The transaction begins while the workers run, so outputs follow in the same partitions. A reader of committed records
    sees none of them: who resumes behind those that it sees writes the others twice. With `kafka.start=resume`, because a
    group without offsets begins at the end if it has to.
    """

    name = "foreign open transaction in the output topic"
    _until_outputs_s, _start_s = 3.0, 60.0

    def choose(self) -> None:
        """Draw which output topic, and for how long the transaction stays open once the workers look for offsets."""
        names = self.scene.names
        self.topic = self.chosen.choice([names.output, names.output, names.dead_letters])
        self.lasts_s = self.chosen.uniform(5.0, 12.0)
        self.about = f"in '{self.topic}', {self.lasts_s:.1f} s"

    def apply(self) -> None:
        """Open the transaction, let outputs follow, and restart the workers without their offsets."""
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
            self.producer.produce(self.topic, b"another producer's", b"foreign", partition)
        self.producer.flush(30)
        time.sleep(self._until_outputs_s)
        self.scene.crew.rest()
        self.scene.crew.start = "resume"
        self.scene.topics.forget_offsets()
        looks = [Watch(self.of_worker(name, Api.OFFSET_FETCH)) for name in sorted(self.scene.crew.slots)]
        for look in looks:
            self.scene.proxy.apply(look)
        self.scene.crew.wake()
        looked = [look.caught.wait(self._start_s) for look in looks]
        for look in looks:
            self.scene.proxy.lift(look)
        if not all(looked):
            self.about += ", before all workers looked"

    def heal(self) -> None:
        """Abort the transaction: the check knows no outputs of others."""
        self.producer.abort_transaction(30)
        self.producer.close()


class OffsetsDeleted(Fault):
    """Stops all workers gracefully, deletes the group with all its offsets, and starts the workers again.

    With `kafka.start=resume`, because a group without offsets begins at the end if it has to.
    """

    name = "committed offsets deleted"

    def choose(self) -> None:
        self.lasts_s = self.chosen.uniform(0.5, 4.0)
        self.about = f"no worker for {self.lasts_s:.1f} s"

    def apply(self) -> None:
        self.scene.crew.rest()
        self.scene.crew.start = "resume"
        self.scene.topics.forget_offsets()

    def heal(self) -> None:
        self.scene.crew.wake()
