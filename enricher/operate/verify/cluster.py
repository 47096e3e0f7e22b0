"""Asks the broker for a verification: what `Inspector` asks, and the group's committed offsets and pending transactions."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from enricher.operate.inspect.inspector import Inspector
from enricher.operate.verify.committed import Committed, committed_of
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.kafka.shared.errors import broker_errors
from enricher.worker.kafka.shared.lone_consumers import lone_consumer
from enricher.worker.kafka.shared.metadata import without_errors

_PENDING_S = 1.0


class Cluster(Inspector):
    """Asks about the topics and the group of `config`, with its own clients."""

    def __init__(self, config: KafkaConfig) -> None:
        super().__init__(config)
        self._stable = lone_consumer(config, self._complaint, {"isolation.level": "read_committed"})

    def offsets_now(self) -> Committed:
        """The group's committed offsets in the input topic now, without those of pending transactions."""
        return committed_of(self.committed_offsets(self._config.input_topic))

    def stable_offsets(self, timeout_s: float) -> tuple[Committed, Committed]:
        """The committed offsets once no pending transaction holds any back, and those that are still held back.

        Waits for pending transactions for at most `timeout_s`; the second part is empty if all have ended.
        """
        numbers = self.partitions(self._config.input_topic)
        answer = self._stable_offsets(numbers, timeout_s)
        if answer is not None:
            return committed_of(answer), {}
        pending = [number for number in numbers if self._stable_offsets([number], _PENDING_S) is None]
        committed = self.offsets_now()
        return committed, {number: committed[number] for number in pending}

    def close(self) -> None:
        """Close the connections."""
        self._stable.close()
        super().close()

    def _stable_offsets(self, numbers: Sequence[int], timeout_s: float) -> list[TopicPartition] | None:
        """The offsets; None if the broker gives none while a transaction with offsets of these partitions is pending."""
        tps = [TopicPartition(self._config.input_topic, number) for number in numbers]
        doing = f"asking for the committed offsets of the group '{self._config.group_id}'"
        with broker_errors(self._stable, doing, self._complaint):
            try:
                return without_errors(self._stable.committed(tps, timeout=timeout_s))
            except KafkaException as exception:
                if exception.args[0].code() == KafkaError._TIMED_OUT:  # noqa: SLF001  the client's name
                    return None
                raise
