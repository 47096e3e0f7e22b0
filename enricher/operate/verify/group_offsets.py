"""Reads the group's committed offsets, and waits for open transactions. Judges no record.

A topic that is deleted and created again has a new id, which is in the offsets' metadata; then they rightly begin at 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from enricher.operate.inspector import Inspector
from enricher.operate.verify.ledger import Check, Place
from enricher.worker.kafka.errors import broker_errors
from enricher.worker.kafka.metadata import without_errors
from enricher.worker.kafka.partition_reader import lone_consumer
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.ranges import Progress
from enricher.worker.runtime.deadlines import Deadline, until

_VERSION = "enricher/1"
_TOPIC_ID = "topic-id="
_ONE_ALPHABET = str.maketrans("+/", "-_")


_PENDING_S = 1.0
_ASK_AGAIN_S = 0.1


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The commit of a group for a partition. `topic_id`: that of its metadata, None if they name none."""

    offset: int
    topic_id: str | None = None


Committed = Mapping[int, CommittedOffset | None]
"""The committed offset of each partition; None if there is none."""


def same_topic(one: str | None, other: str | None) -> bool:
    """False if both ids are known and differ.

    Ids are 16 bytes in base64, of which the client and Kafka's tools write two characters differently: `+/` and `-_`.
    """
    if one is None or other is None or one == other:
        return True
    return one.translate(_ONE_ALPHABET) == other.translate(_ONE_ALPHABET)


def topic_id_in(metadata: str | None) -> str | None:
    """The topic id in a committed offset's metadata (`enricher/1 topic-id=... attempts=...`), or None."""
    version, *fields = (metadata or "").split(" ")
    found = [field.removeprefix(_TOPIC_ID) for field in fields if field.startswith(_TOPIC_ID)]
    return found[-1] or None if version == _VERSION and found else None


def committed_of(answer: Iterable[TopicPartition]) -> dict[int, CommittedOffset | None]:
    """The client's answer by partition."""
    return {
        tp.partition: CommittedOffset(tp.offset, topic_id_in(tp.metadata)) if tp.offset >= 0 else None for tp in answer
    }


def of_topic(committed: Committed, topic_id: str | None) -> dict[int, int | None]:
    """The offsets by partition; one that names another topic id counts as none."""
    return {
        number: place.offset if place is not None and same_topic(place.topic_id, topic_id) else None
        for number, place in committed.items()
    }


class Cluster(Inspector):
    """Asks about the topics and the group of `config`, with its own clients."""

    def __init__(self, config: KafkaConfig) -> None:
        super().__init__(config)
        self._stable = lone_consumer(config, self._complaint, {"isolation.level": "read_committed"})

    def offsets_now(self) -> Committed:
        """The group's committed offsets in the input topic now, without those of pending transactions."""
        return committed_of(self.committed_offsets(self._config.input_topic))

    def stable_offsets(self, timeout_s: float) -> tuple[Committed, Committed]:
        """The committed offsets once no pending transaction holds any back, and the offsets that are still held back.

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


def stable_ends(
    topics: Iterable[str], cluster: Cluster, *, timeout_s: float, check: Check, progress: Progress
) -> dict[str, dict[int, int]]:
    """The ends of the topics' partitions as they are now, once committed readers can read that far.

    If they still cannot after `timeout_s`, a transaction was left open: that fails `check`, and the end is the last stable
    offset. Newer transactions that are open behind these ends do not matter.
    """
    ends = {topic: cluster.ends(topic, committed_only=False) for topic in topics}
    deadline = Deadline(timeout_s)
    for topic, wanted in ends.items():
        check.checked += len(wanted)
        for number, stable in _has_reached(topic, wanted, cluster, deadline, progress).items():
            if stable < wanted[number]:
                check.fail(Place(topic, number, stable))
                wanted[number] = stable
    return ends


def _has_reached(
    topic: str, wanted: dict[int, int], cluster: Cluster, deadline: Deadline, progress: Progress
) -> dict[int, int]:
    """The last stable offsets, once they have reached `wanted` or the time is over."""
    stable: dict[int, int] = {}

    def done() -> bool:
        stable.update(cluster.ends(topic, committed_only=True))
        ready = sum(stable[number] >= end for number, end in wanted.items())
        if ready < len(wanted):
            progress(f"waiting for open transactions of {topic}, partitions", ready, len(wanted))
        return ready == len(wanted)

    until(done, deadline, pause_s=_ASK_AGAIN_S)
    return {number: stable[number] for number in wanted}
