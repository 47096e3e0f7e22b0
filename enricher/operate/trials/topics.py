"""Makes the topic of the trials, and deletes it with the trials' groups."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from enricher.errors import BrokerError
from enricher.operate.topics.admin import Admin, TopicPlan
from enricher.worker.kafka.shared.metadata import COORDINATOR_LIMIT_S, result_of
from enricher.worker.runtime.deadlines import Deadline, until

_REQUEST_S = 15.0
"""A cluster that is electing leaders takes seconds."""
_LOOK_AGAIN_S = 0.1
_ANY_REPLICAS = -1  # the broker's default (KIP-464, Kafka 2.4)


class TrialTopics(Admin):
    """Methods may block for 30 s, and raise BrokerError."""

    def make(self, name: str, partitions: int) -> None:
        """Create a topic and wait until it can be used. It has the input topic's replicas, or the broker's default."""
        seen = self.topic(self._config.input_topic)
        self.create([TopicPlan(name, partitions, seen.replicas if seen and seen.replicas else _ANY_REPLICAS)])

    def delete(self, name: str) -> None:
        """Delete a topic; a missing one is no error."""
        with self._errors(f"deleting the topic '{name}'", "DELETE on the topic"):
            future = self._client.delete_topics([name], request_timeout=_REQUEST_S)[name]
            try:
                result_of(future, _REQUEST_S)
            except KafkaException:
                if self.topic(name):
                    raise

    def delete_groups(self, prefix: str) -> None:
        """Delete the consumer groups whose names begin with `prefix`. Waits for members that are leaving."""
        if not until(lambda: self._groups_gone(prefix), Deadline(_REQUEST_S), pause_s=_LOOK_AGAIN_S):
            raise BrokerError("a group still has members; without them Kafka removes it by itself")

    def _groups_gone(self, prefix: str) -> bool:
        """Delete the groups that are listed, since their coordinators answer."""
        with self._errors("deleting groups", "DELETE on groups"):
            listed = self._client.list_consumer_groups(request_timeout=_REQUEST_S).result(2 * _REQUEST_S).valid
            names = [group.group_id for group in listed if group.group_id.startswith(prefix)]
            asked = self._client.delete_consumer_groups(names, request_timeout=COORDINATOR_LIMIT_S) if names else {}
            codes = {error.args[0].code() for future in asked.values() if (error := future.exception())}
            if unexpected := codes - {KafkaError.GROUP_ID_NOT_FOUND, KafkaError.NON_EMPTY_GROUP}:
                raise KafkaException(KafkaError(unexpected.pop()))
        return KafkaError.NON_EMPTY_GROUP not in codes
