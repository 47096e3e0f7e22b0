"""Why outputs do not show where a partition resumes: not yet, or not at all."""

from __future__ import annotations

from enricher.errors import SettingsError, TransactionTrouble
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.records import Partition


class HiddenOutputs(TransactionTrouble):
    """The outputs of these input partitions cannot all be seen yet, because a transaction is open in an output topic."""

    def __init__(self, message: str, partitions: frozenset[Partition]) -> None:
        super().__init__(message)
        self.partitions = partitions


class StillSearching(TransactionTrouble):
    """The newest outputs are not found yet; the same question again continues the search, which is bounded."""


def cannot_tell(config: KafkaConfig, partition: Partition, reason: str) -> SettingsError:
    """The error for a partition without a committed offset whose outputs do not show where to resume."""
    name, group = f"{partition.topic}:{partition.number}", config.group_id
    return SettingsError(
        f"the group '{group}' has no committed offset for partition {name}, and its outputs do not show where to resume: "
        f"{reason}. Guessing would lose or duplicate articles. Either set the offset yourself "
        f"(kafka-consumer-groups --group {group} --topic {name} --reset-offsets --to-offset N --execute), or read "
        "everything again with kafka.start=beginning, or only what is published from now on with kafka.start=end"
    )
