"""The three topics of a run and its consumer group, under names that nobody else has. Creates and fills topics."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tools.waiting import wait_until

_ASK_S = 60.0


@dataclass(frozen=True, slots=True)
class Topics:
    """The places where a worker reads and writes: its brokers, topics and group. The topics need not exist."""

    bootstrap_servers: str
    input: str
    output: str
    dead_letters: str
    group: str

    @classmethod
    def fresh(cls, bootstrap_servers: str, prefix: str) -> Self:
        """Unique names that begin with `prefix`."""
        return cls.named(bootstrap_servers, f"{prefix}-{uuid.uuid4().hex[:8]}")

    @classmethod
    def named(cls, bootstrap_servers: str, name: str) -> Self:
        """The names that begin with `name`, which is also the group's."""
        return cls(bootstrap_servers, f"{name}.articles", f"{name}.entities", f"{name}.dead-letters", name)

    @property
    def all(self) -> tuple[str, str, str]:
        return self.input, self.output, self.dead_letters

    def kafka_settings(self, instance: str) -> dict[str, str]:
        """The group `kafka` of the settings of a worker."""
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "group_id": self.group,
            "instance": instance,
            "input_topic": self.input,
            "output_topic": self.output,
            "dead_letter_topic": self.dead_letters,
        }

    def variables(self, instance: str = "worker-0") -> dict[str, str]:
        """The same settings as environment variables."""
        return {f"ENRICHER_KAFKA__{name.upper()}": value for name, value in self.kafka_settings(instance).items()}

    def make(self, partitions: int) -> None:
        """Create all three; blocks and raises as `make_topics`."""
        make_topics(self.bootstrap_servers, self.all, partitions)

    def delete(self, timeout_s: float = _ASK_S) -> None:
        """Delete all three. Raises KafkaException."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        for future in admin.delete_topics(list(self.all), operation_timeout=timeout_s).values():
            future.result(timeout_s)


def make_topics(
    bootstrap_servers: str,
    names: Sequence[str],
    partitions: int,
    *,
    replicas: int = 1,
    config: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> None:
    """Create topics, and wait until the brokers' metadata has them: a moment after their creation.

    `config`: settings of a topic, by its name. Raises KafkaException and TimeoutError.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0, "reconnect.backoff.ms": 20})
    new = [NewTopic(name, partitions, replicas, config=dict(config.get(name, {}))) for name in names]
    for future in admin.create_topics(new).values():
        future.result(_ASK_S)
    if not wait_until(lambda: set(names) <= admin.list_topics(timeout=_ASK_S).topics.keys(), _ASK_S, 0.02):
        raise TimeoutError(f"the brokers do not know their new topics after {_ASK_S:g} s")


def publish(producer: Producer, topic: str, value: bytes | str | None, key: bytes | str, **more: Any) -> None:  # noqa: ANN401  as `produce` takes
    """Give the client a record; blocks while its queue is full."""
    while True:
        try:
            producer.produce(topic, value, key, **more)
        except BufferError:
            producer.poll(0.1)
        else:
            return
