"""Tells the client to assign, seek, pause and resume partitions, and notes since when it should deliver their records.

Decides nothing: `start_offsets` finds where a partition begins, `assignment` decides which ones are read.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from enricher.errors import TransactionTrouble
from enricher.worker.kafka.reading.partition import State
from enricher.worker.kafka.reading.partitions import Partitions
from enricher.worker.kafka.reading.start_offsets import StartOffset, assigned_at
from enricher.worker.kafka.shared.client_errors import ClientErrors
from enricher.worker.kafka.shared.errors import mapping_errors
from enricher.worker.kafka.shared.metadata import foreign, ours
from enricher.worker.records import Partition
from enricher.worker.rules.offsets import names_of

_GATHER_S = 1.0
"""How long after an assignment the first records are read together, see `gathers`."""


class Fetching:
    """Tells the client what to fetch of `partitions`. Methods raise TransactionTrouble, unless they say otherwise."""

    def __init__(self, consumer: Consumer, partitions: Partitions, client_errors: ClientErrors) -> None:
        self._consumer = consumer
        self._partitions = partitions
        self._client_errors = client_errors
        self._paused = False
        self._gather_until_s = 0.0
        self._resumed: set[Partition] = set()
        """Partitions that the client paused during a rebalance and that stay."""

    def renew(self, consumer: Consumer) -> None:
        """Tell this consumer from now on."""
        self._consumer = consumer

    def assign(self, starts: Mapping[Partition, StartOffset | None]) -> None:
        """Assign these at their starts; those without one are assigned, but paused. Raises the client's errors.

        For the client's callback, which must assign them in any case: otherwise the client does, where it chooses.
        """
        self._resumed = {*self._partitions} - starts.keys()
        self._consumer.incremental_assign([assigned_at(partition, start) for partition, start in starts.items()])
        # Always set both: a partition that was revoked while paused stays paused in the client when it comes back.
        reading = {p for p, start in starts.items() if start and not start.start.is_over and not self._paused}
        self._consumer.resume([foreign(partition) for partition in starts if partition in reading])
        self._consumer.pause([foreign(partition) for partition in starts if partition not in reading])

    def assignment(self) -> list[Partition]:
        """The partitions that the client has, whatever is known here."""
        with mapping_errors("asking for the assignment", self._client_errors):
            return [ours(tp) for tp in self._consumer.assignment()]

    def begin(self, starts: Mapping[Partition, StartOffset]) -> None:
        """Read from there. Partitions that the client has not started yet keep waiting."""
        with mapping_errors("seeking", self._client_errors):
            begun = [partition for partition, start in starts.items() if self._seek(start.at(partition))]
        for partition in begun:
            self._partitions[partition].begin(starts[partition].start, starts[partition].leader_epoch)
        self.read_on([partition for partition in begun if self._partitions[partition].state is State.READING])
        self.stop_finished(begun)

    def go_back(self, partitions: Collection[Partition]) -> None:
        """Seek to the first record that was not delivered. Raises TransactionTrouble also if the client cannot yet."""
        if not partitions:
            return
        with mapping_errors("seeking", self._client_errors):
            refused = [partition for partition in partitions if not self._seek(self._position(partition))]
        if refused:
            raise TransactionTrouble(f"the client did not go back to what it has not delivered of {names_of(refused)}")

    def go_on_at(self, offsets: Mapping[Partition, int]) -> None:
        """Fetch these from there, whose offsets the broker does not have any more. The client refuses to seek then."""
        tps = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        with mapping_errors("assigning again", self._client_errors):
            self._consumer.incremental_unassign(tps)
            self._consumer.incremental_assign(tps)
            if self._paused:
                self._consumer.pause(tps)

    def stop(self, partitions: Collection[Partition]) -> None:
        """Fetch nothing of these. The client drops what it has fetched of them."""
        with mapping_errors("pausing", self._client_errors):
            self._consumer.pause([foreign(partition) for partition in partitions])

    def stop_finished(self, partitions: Collection[Partition]) -> None:
        """Fetch nothing more of those among these that were read to the end of the range."""
        if finished := [each for each in self._partitions.of(State.FINISHED) if each in partitions]:
            self.stop(finished)

    def read_on(self, partitions: Collection[Partition]) -> None:
        """Fetch these, and expect their records."""
        self.expect(partitions)
        if not self._paused:
            with mapping_errors("resuming", self._client_errors):
                self._consumer.resume([foreign(partition) for partition in partitions])

    def expect(self, partitions: Collection[Partition]) -> None:
        """From now on they should deliver; nothing is expected during a pause."""
        if not self._paused:
            self._partitions.expect(partitions, now_s := time.monotonic())
            self._gather_until_s = now_s + _GATHER_S

    def gathers(self, now_s: float) -> bool:
        """Whether the next poll should wait for the first records of several partitions, which share a transaction then."""
        return now_s < self._gather_until_s and self._partitions.unheard

    def fetch_again(self) -> None:
        """Have the client fetch what a rebalance paused. Only when all that it gave was delivered.

        librdkafka pauses all partitions until the callbacks are over, and may leave the thread that fetches asleep for
        another second. Only new partitions of the same broker wake it, and a seek.
        """
        resumed, self._resumed = self._resumed, set()
        if resumed and not self._paused:
            with mapping_errors("seeking", self._client_errors):
                for partition in resumed.intersection(self._partitions.of(State.READING)):
                    self._seek(self._position(partition))

    def pause(self) -> None:
        """Deliver nothing until `resume`. Drops prefetched records, so not for short waits."""
        if not self._paused:
            self._paused = True
            self._partitions.expect_nothing()
            with mapping_errors("pausing", self._client_errors):
                self._consumer.pause(self._consumer.assignment())

    def resume(self) -> None:
        """Deliver records again."""
        self._paused = False
        self.read_on(self._partitions.of(State.READING))

    def _position(self, partition: Partition) -> TopicPartition:
        offset = self._partitions[partition].position
        assert offset is not None
        return TopicPartition(*partition, offset)

    def _seek(self, tp: TopicPartition) -> bool:
        """Seek; False if the client has not started the partition yet."""
        try:
            self._consumer.seek(tp)
        except KafkaException as exception:
            if exception.args[0].code() != KafkaError._STATE:  # noqa: SLF001  the client's name
                raise
            return False
        return True
