"""Creates, grows, deletes and recreates the topics of a run, and remembers what deleted ones contained."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions

from enricher.worker.kafka.metadata import COORDINATOR_LIMIT_S
from tools.chaos.incarnations import Incarnation, topic_id_of
from tools.reading import Reader
from tools.topics import Topics, make_topics
from tools.waiting import wait_until

_ASK_S = 60.0
_TRY_S = 5.0
_EMPTY_S = 120.0
"""A killed worker stays a group member until its session ends, and only an empty group can be deleted."""


class TopicKeeper:
    """Manages the three topics of a run, as faults need it.

    `partitions`: of each topic at first. `replicas`: of each partition.
    """

    def __init__(self, names: Topics, partitions: int, *, replicas: int) -> None:
        self._servers = names.bootstrap_servers
        self._names = names
        self._replicas = replicas
        self._admin = AdminClient({"bootstrap.servers": names.bootstrap_servers, "log_level": 0})
        self._reader = Reader(names.bootstrap_servers, names.group)
        self.partitions = partitions
        """How many partitions the input has now."""
        self.past: list[Incarnation] = []
        """The deleted input topics, oldest first."""

    def make_all(self) -> None:
        self._make(*self._names.all)

    def add_partition(self) -> None:
        """Add one partition to each topic: outputs first, so that every input partition always has its counterpart."""
        self.partitions += 1
        for topic in (self._names.output, self._names.dead_letters, self._names.input):
            self._admin.create_partitions([NewPartitions(topic, self.partitions)])[topic].result(_ASK_S)

    def remember_input(self) -> Incarnation:
        """Read the whole input topic before it is deleted: afterwards nothing else knows what it contained."""
        incarnation = Incarnation(topic_id_of(self._servers, self._names.input))
        incarnation.add(self._reader.records(self._names.input))
        self.past.append(incarnation)
        return incarnation

    def remember_the_rest(self, incarnation: Incarnation) -> None:
        """Read what was published since, and the group's committed offsets."""
        topic = self._names.input
        incarnation.add(self._reader.records(topic, begins=incarnation.nexts))
        committed = self._reader.committed_and_ends(topic)
        incarnation.committed = {partition: offset for partition, (offset, _) in committed.items()}

    def delete_input(self) -> None:
        topic = self._names.input
        self._admin.delete_topics([topic], operation_timeout=_ASK_S)[topic].result(_ASK_S)
        assert wait_until(lambda: topic not in self._admin.list_topics(timeout=_ASK_S).topics, _ASK_S), (
            "the topic still exists"
        )

    def create_input(self) -> None:
        """Create an empty input topic with the same name and number of partitions."""
        self._make(self._names.input)

    def forget_offsets(self) -> None:
        """Delete the group with its committed offsets. Only while no worker runs."""
        assert wait_until(self._group_is_deleted, _EMPTY_S, 0.5), "the group could not be deleted"

    def wait_until_empty(self) -> None:
        """Wait until the group has no members: on a busy broker a member stays for a moment after its process has ended."""
        assert wait_until(self._group_is_empty, _EMPTY_S, 0.5), "the group still has members"

    # ---- inside

    def _group_is_empty(self) -> bool:
        group = self._names.group
        described = self._admin.describe_consumer_groups([group], request_timeout=COORDINATOR_LIMIT_S)[group]
        try:
            return not described.result(_TRY_S).members
        except (KafkaException, TimeoutError):  # the coordinator may have just gone: try again
            return False

    def _group_is_deleted(self) -> bool:
        group = self._names.group
        # A new client: one that has cached the group's coordinator may wait for it after it is gone (librdkafka 5511).
        admin = AdminClient({"bootstrap.servers": self._servers, "log_level": 0})
        try:
            admin.delete_consumer_groups([group], request_timeout=COORDINATOR_LIMIT_S)[group].result(_TRY_S)
        except KafkaException as exception:
            return bool(exception.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND)
        except TimeoutError:  # the coordinator may have just gone: try again
            return False
        return True

    def _make(self, *topics: str) -> None:
        make_topics(self._servers, topics, self.partitions, replicas=self._replicas)
