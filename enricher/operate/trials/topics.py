"""Creates the topics of the trials, and deletes every one that it requested."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic

from enricher.errors import BrokerError
from enricher.operate.topics.admin import Admin
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.kafka.shared.metadata import COORDINATOR_LIMIT_S, result_of, topic_id_of
from enricher.worker.runtime.deadlines import Deadline, until

_REQUEST_S = 15.0
"""A cluster that is electing leaders takes seconds."""
_LOOK_AGAIN_S = 0.1
_GONE = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID}
_NO_ANSWER = {KafkaError._TRANSPORT, KafkaError._TIMED_OUT}  # noqa: SLF001  the client's names
_ANY_REPLICAS = -1  # the broker's default (KIP-464, Kafka 2.4)


class TrialTopics(Admin):
    """Makes and deletes topics whose names begin with `prefix`. Every method may block for 15 s and raises BrokerError.

    They have as many replicas as the worker's input topic, or the broker's default if that is unknown.
    """

    def __init__(self, config: KafkaConfig, prefix: str) -> None:
        super().__init__(config)
        self._prefix = prefix
        self._asked: dict[str, Future[None]] = {}
        seen = self.topic(config.input_topic)
        self._replicas = seen.replicas if seen and seen.replicas else _ANY_REPLICAS

    @property
    def asked_for(self) -> list[str]:
        """The topics that exist or may exist."""
        return list(self._asked)

    def make(self, name: str, partitions: int) -> None:
        """Create a topic and wait until it can be used. Waits for a deletion of the same name that is in progress."""
        new = NewTopic(name, num_partitions=partitions, replication_factor=self._replicas)

        def attempt() -> bool:
            with self._errors(f"creating the topic '{name}'", f"CREATE on topics that begin with '{self._prefix}'"):
                self._asked[name] = self._client.create_topics([new], request_timeout=_REQUEST_S)[name]
                code, error = _end_of(self._asked[name])
                if error is None or code == KafkaError.TOPIC_ALREADY_EXISTS:
                    return error is None
                if code not in _NO_ANSWER:
                    del self._asked[name]  # it was not created
                raise error

        _await(attempt, f"the topic '{name}' could not be created again, its deletion goes on for longer")
        _await(lambda: self._is_usable(name), f"the topic '{name}' was created, and has no leader yet")

    def delete(self, name: str) -> None:
        """Delete a topic; a missing one is no error. Retries if the broker did not answer."""
        # If its creation were still in progress, the topic would be created after its deletion.
        with suppress(Exception):
            self._asked[name].result(_REQUEST_S)
        doing = f"deleting the topic '{name}'"

        def attempt() -> bool:
            with self._errors(doing, f"DELETE on topics that begin with '{self._prefix}'"):
                code, error = _end_of(self._client.delete_topics([name], request_timeout=_REQUEST_S)[name])
                if error is not None and code not in _GONE | _NO_ANSWER:
                    raise error
            return code not in _NO_ANSWER

        _await(attempt, f"{doing}: the broker does not answer")
        self._asked.pop(name, None)

    def id_of(self, name: str) -> str | None:
        """The id of an existing topic; None before Kafka 2.8, which has no ids."""
        found: list[str | None] = []

        def attempt() -> bool:
            with self._errors(f"asking for the id of the topic '{name}'"):
                try:
                    found.append(topic_id_of(self._client, name, _REQUEST_S))
                except KafkaException as exception:
                    if exception.args[0].code() not in _GONE:
                        raise
            return bool(found)

        _await(attempt, f"the topic '{name}' was created, and the broker that was asked does not know it yet")
        return found[0]

    def delete_groups(self, prefix: str) -> None:
        """Delete the consumer groups whose names begin with `prefix`. Waits for members that are leaving."""
        _await(lambda: self._groups_gone(prefix), "a group still has members; without them Kafka removes it by itself")

    def _groups_gone(self, prefix: str) -> bool:
        """Delete the groups that are listed, since their coordinators answer."""
        with self._errors("deleting groups", f"DELETE on groups that begin with '{self._prefix}'"):
            listed = self._client.list_consumer_groups(request_timeout=_REQUEST_S).result(2 * _REQUEST_S).valid
            names = [group.group_id for group in listed if group.group_id.startswith(prefix)]
            if not names:
                return True
            asked = self._client.delete_consumer_groups(names, request_timeout=COORDINATOR_LIMIT_S)
            ends = [_end_of(future) for future in asked.values()]
            for code, error in ends:
                if error is not None and code not in {KafkaError.GROUP_ID_NOT_FOUND, KafkaError.NON_EMPTY_GROUP}:
                    raise error
        return all(code != KafkaError.NON_EMPTY_GROUP for code, _error in ends)


def _end_of(future: Future[Any]) -> tuple[int, KafkaException | None]:
    """Wait for the result: the error's code, and the error if there was one."""
    try:
        result_of(future, _REQUEST_S)
    except KafkaException as exception:
        return exception.args[0].code(), exception
    return KafkaError.NO_ERROR, None


def _await(done: Callable[[], bool], otherwise: str) -> None:
    if not until(done, Deadline(_REQUEST_S), pause_s=_LOOK_AGAIN_S):
        raise BrokerError(otherwise)
