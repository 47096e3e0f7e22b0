"""The five rights that a worker needs, as the errors, the check before the start and the doctor name them.

Whether one is missing shows in two ways: the broker refuses a request (`needed_after`), or it says in advance what it allows
(`Right.is_missing`). It cannot be asked in advance about a transactional id.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError

from enricher.worker.kafka.shared.client import KafkaConfig

if TYPE_CHECKING:  # not needed at run time
    from confluent_kafka.admin import ConsumerGroupDescription, TopicDescription

_MISSING: Final[Mapping[int, str]] = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "READ on a topic to read it, WRITE to write to it",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "READ on the consumer group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "WRITE on the transactional id",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "the right to use this cluster",
}
"""The right behind each refusal, for a client without a worker's configuration."""
DENIED: Final = frozenset(_MISSING)
"""The broker's errors for a missing right."""
_CREDENTIALS: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED})  # noqa: SLF001  the client's name


@dataclass(frozen=True, slots=True)
class Right:
    """An operation on a resource, as Kafka's ACLs name them."""

    operation: str
    resource: str

    def __str__(self) -> str:
        return f"{self.operation} on the {self.resource}"

    def is_missing(self, allowed: Collection[str] | None) -> bool:
        """Whether it is none of the operations that the broker allows; False if the broker does not say."""
        return allowed is not None and self.operation not in allowed


def topic_rights(config: KafkaConfig) -> dict[str, Right]:
    """The right on each of the topics, by the topic."""
    written = {config.output_topic: "WRITE", config.dead_letter_topic: "WRITE"}
    operations = dict.fromkeys(config.inputs, "READ") | written
    return {topic: Right(operation, f"topic '{topic}'") for topic, operation in operations.items()}


def group_right(config: KafkaConfig) -> Right:
    """The right on the consumer group."""
    return Right("READ", f"group '{config.group_id}'")


def transactional_id_right(config: KafkaConfig) -> Right:
    """The right on this worker's transactional id."""
    return Right("WRITE", f"transactional id '{config.transactional_id}'")


def needed_after(code: int, text: str, config: KafkaConfig | None, refused_topics: Collection[str]) -> str | None:
    """Names the right that is missing if a request failed with this error; None if that is not the reason.

    The right has the resource's name if the client is a worker's. `text`: the error's, which may name topics.
    `refused_topics`: those that the client's log named.
    """
    if code in _CREDENTIALS:
        return "valid credentials"
    if config is None:
        return _MISSING.get(code)
    match code:
        case KafkaError.TOPIC_AUTHORIZATION_FAILED:
            rights = topic_rights(config)
            # One topic's name may be part of another one's.
            named = [topic for topic in rights if re.search(rf"(?<![\w.-]){re.escape(topic)}(?![\w.-])", text)]
            topics = named or sorted(rights.keys() & refused_topics) or rights
            return ", ".join(str(rights[topic]) for topic in topics)
        case KafkaError.GROUP_AUTHORIZATION_FAILED:
            return str(group_right(config))
        case KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return str(transactional_id_right(config))
        case _:
            return _MISSING.get(code)


def operations_of(description: ConsumerGroupDescription | TopicDescription) -> frozenset[str] | None:
    """The operations that the broker allows this client (`WRITE`, `READ`, ...), if it was asked; None if it does not say.

    No operations at all mean that it does not say: seeing a topic or group is a right, too.
    """
    return frozenset(operation.name for operation in description.authorized_operations or ()) or None
