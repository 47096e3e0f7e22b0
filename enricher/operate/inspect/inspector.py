"""Questions about topics and groups: partitions, ids, offsets, clean-up policies, members. Each has a time limit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from enricher.worker.kafka.errors import Complaint, broker_errors, new_client
from enricher.worker.kafka.metadata import (
    answer_to,
    listed_offsets,
    offsets_at_time,
    partitions_of,
    settings_of,
    topic_id_of,
)
from enricher.worker.kafka.partition_reader import committed_offsets, lone_consumer
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.runtime.deadlines import Deadline

_EARLIEST, _LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client has no types here
_Answer = TypeVar("_Answer")


class Inspector:
    """Asks about topics, and about the group of `config`. For one thread.

    Every method blocks for at most the request timeout (see `within`), and repeats a question that a broker cannot answer
    yet: a partition has no leader during an election. Raises BrokerError. `numbers` selects partitions; None means all.
    The constructor raises SettingsError.

    `stable`: wait until no transaction with offsets of the group is pending, instead of answering with those before it.
    """

    def __init__(self, config: KafkaConfig, complaint: Complaint | None = None, *, stable: bool = False) -> None:
        self._config = config
        self._complaint = complaint or Complaint()
        self._admin = new_client(AdminClient, config.client("admin"), self._complaint)
        isolation = "read_committed" if stable else "read_uncommitted"
        self._consumer = lone_consumer(config, self._complaint, {"isolation.level": isolation})
        self._deadline: Deadline | None = None

    @contextmanager
    def within(self, timeout_s: float) -> Iterator[Deadline]:
        """One time limit for all questions in the body together."""
        self._deadline = Deadline(timeout_s)
        try:
            yield self._deadline
        finally:
            self._deadline = None

    def partitions(self, topic: str) -> list[int]:
        """The partition numbers, in order. Raises BrokerError at once if there is no such topic."""

        def ask(left_s: float) -> list[int]:
            return [partition.number for partition in partitions_of(self._consumer, topic, left_s)]

        return self._ask(f"asking for the topic '{topic}'", ask, client=self._consumer)

    def topic_id(self, topic: str) -> str | None:
        """Kafka's id of a topic; None if the broker has no ids. Raises BrokerError at once if there is no such topic."""
        self.partitions(topic)
        # The topic exists, but another broker may not have heard of it yet.
        later = {KafkaError.UNKNOWN_TOPIC_OR_PART}
        doing = f"asking for the id of the topic '{topic}'"
        return self._ask(doing, lambda left_s: topic_id_of(self._admin, topic, left_s), later)

    def beginnings(self, topic: str, numbers: Sequence[int] | None = None) -> dict[int, int]:
        """The first offset of each partition that retention has left."""
        return self._offsets(topic, numbers, _EARLIEST, IsolationLevel.READ_UNCOMMITTED)

    def ends(self, topic: str, numbers: Sequence[int] | None = None, *, committed_only: bool) -> dict[int, int]:
        """The end of each partition: the last stable offset if `committed_only`, else the high offset."""
        isolation = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
        return self._offsets(topic, numbers, _LATEST, isolation)

    def at_time(self, topic: str, numbers: Sequence[int], time_s: float) -> dict[int, int | None]:
        """The offset of the first record with this timestamp or a later one; None if the partition has none.

        `time_s`: seconds since the epoch.
        """
        doing = f"asking for the offsets of '{topic}' at a time"
        consumer = self._consumer
        return self._ask(
            doing, lambda left_s: offsets_at_time(consumer, topic, numbers, time_s, left_s), client=consumer
        )

    def is_compacted(self, topic: str) -> bool | None:
        """Whether the broker drops records for newer ones with the same key; None without the right to ask."""
        doing = f"asking for the settings of '{topic}'"
        settings = self._ask(doing, lambda left_s: settings_of(self._admin, topic, left_s))
        return None if settings is None else "compact" in settings["cleanup.policy"]

    def committed_offsets(self, topic: str, numbers: Sequence[int] | None = None) -> list[TopicPartition]:
        """The group's committed offsets as the client returns them, without those of pending transactions.

        Asked with a consumer: an administrator's request may not time out, see `COORDINATOR_LIMIT_S`.
        """
        tps = self._places(topic, numbers)

        def ask(left_s: float) -> list[TopicPartition]:
            return committed_offsets(self._consumer, tps, left_s)

        return self._ask(f"asking for the committed offsets of the group '{self._config.group_id}'", ask)

    def members(self) -> int:
        """How many members the group has now."""
        group = self._config.group_id

        def ask(left_s: float) -> int:
            # The deprecated request: it asks every broker and needs no coordinator, see `committed_offsets`.
            found = self._admin.list_groups(group, timeout=left_s)
            return sum(len(each.members) for each in found if each.id == group)

        return self._ask(f"asking for the members of the group '{group}'", ask)

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def _places(self, topic: str, numbers: Sequence[int] | None) -> list[TopicPartition]:
        return [TopicPartition(topic, each) for each in (self.partitions(topic) if numbers is None else numbers)]

    def _offsets(
        self, topic: str, numbers: Sequence[int] | None, spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[int, int]:
        wanted = dict.fromkeys(self._places(topic, numbers), spec)

        def ask(left_s: float) -> dict[int, int]:
            listed = listed_offsets(self._admin, wanted, isolation, left_s)
            return {partition.number: offset for partition, offset in listed.items()}

        return self._ask(f"asking for the offsets of '{topic}'", ask)

    def _ask(
        self,
        doing: str,
        question: Callable[[float], _Answer],
        later: Collection[int] = (),
        client: AdminClient | Consumer | None = None,
    ) -> _Answer:
        """Ask as `answer_to` does, within the time that is left."""
        deadline = self._deadline or Deadline(self._config.request_timeout_s)
        with broker_errors(client or self._admin, doing, self._complaint):
            return answer_to(question, deadline, later)
