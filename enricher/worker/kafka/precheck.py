"""Checks properties, topics and rights before the model is loaded, which takes longer.

Does not wait for brokers that do not answer: the start itself does (`recovery`). The right on the transactional id cannot
be requested, so it is checked when the producer opens.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient, TopicDescription

from enricher.errors import BrokerError, TransactionTrouble
from enricher.worker.kafka.errors import (
    ClientErrors,
    connecting,
    group_right,
    mapping_errors,
    new_client,
    operations_of,
    topic_rights,
)
from enricher.worker.kafka.metadata import COORDINATOR_LIMIT_S, no_such_topic, result_of
from enricher.worker.kafka.producers import close_in_background
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.topicwatch import require_enough_partitions
from enricher.worker.runtime.deadlines import Deadline

log = logging.getLogger(__name__)

_DOING = "checking topics and rights"
_REQUEST_S = 2.0  # brokers that are up answer in a fraction of it, TLS included
_RETRY_S = 0.2


def check_start(config: KafkaConfig, *, by_key: bool = False, pause: Callable[[float], object] = time.sleep) -> None:
    """Do what `require_start` does, but return if no broker answers."""
    try:
        require_start(config, by_key=by_key, pause=pause)
    except TransactionTrouble as trouble:
        log.info("topics and rights are checked after the model is loaded: %s", trouble)


def require_start(config: KafkaConfig, *, by_key: bool = False, pause: Callable[[float], object] = time.sleep) -> None:
    """Raise SettingsError or BrokerError for problems that waiting does not solve, TransactionTrouble without an answer.

    `by_key`: outputs are placed by their key, so output topics may have any number of partitions.
    Waits for a missing topic within the request timeout, because a broker that has just started knows none yet.
    """
    client_errors = ClientErrors(config)
    # Only then does the client report an unknown property, or a certificate that it cannot read.
    new_client(Consumer, config.consumer(), client_errors).close()
    close_in_background(new_client(Producer, config.producer(), client_errors))
    admin = new_client(AdminClient, config.client("admin"), client_errors)
    with connecting(client_errors), mapping_errors(_DOING, client_errors, admin):
        _check_topics(_known_topics(admin, config, pause), config, by_key=by_key)
        _check_group(admin, config)


def _known_topics(
    admin: AdminClient, config: KafkaConfig, pause: Callable[[float], object]
) -> dict[str, TopicDescription | None]:
    """The three topics; None for a topic that this client may not describe."""
    deadline, told = Deadline(config.request_timeout_s), False
    while True:
        found, missing = _describe(admin, config)
        if not missing:
            return found
        if deadline.over:
            raise BrokerError(no_such_topic(missing[0]))
        if not told:
            log.warning("%s; waiting for %g s", no_such_topic(missing[0]), config.request_timeout_s)
            told = True
        pause(_RETRY_S)


def _describe(admin: AdminClient, config: KafkaConfig) -> tuple[dict[str, TopicDescription | None], list[str]]:
    """The topics as the broker describes them, and those that it does not know."""
    names = config.topics
    futures = admin.describe_topics(
        TopicCollection(names), include_authorized_operations=True, request_timeout=_REQUEST_S
    )
    found: dict[str, TopicDescription | None] = {}
    missing = []
    for name in names:
        try:
            found[name] = result_of(futures[name], _REQUEST_S)
        except KafkaException as exception:
            match exception.args[0].code():
                case KafkaError.UNKNOWN_TOPIC_OR_PART:
                    missing.append(name)
                case KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    found[name] = None
                case _:
                    raise
    return found, missing


def _check_topics(found: dict[str, TopicDescription | None], config: KafkaConfig, *, by_key: bool) -> None:
    allowed = {name: operations_of(topic) if topic else frozenset[str]() for name, topic in found.items()}
    if refused := [str(right) for name, right in topic_rights(config).items() if right.is_missing(allowed[name])]:
        raise BrokerError(_would_refuse(refused))
    if not by_key:
        require_enough_partitions(config, {name: len(topic.partitions) for name, topic in found.items() if topic})


def _check_group(admin: AdminClient, config: KafkaConfig) -> None:
    group, right = config.group_id, group_right(config)
    asked = admin.describe_consumer_groups(
        [group], include_authorized_operations=True, request_timeout=COORDINATOR_LIMIT_S
    )
    try:
        allowed = operations_of(result_of(asked[group], _REQUEST_S))
    except KafkaException as exception:
        if exception.args[0].code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
            return  # the group does not exist yet, or the broker is busy: joining reports any problem
        allowed = frozenset()
    if right.is_missing(allowed):
        raise BrokerError(_would_refuse([str(right)]))


def _would_refuse(needed: list[str]) -> str:
    return f"{_DOING}: the broker would refuse this worker. Needed: {', '.join(needed)}"
