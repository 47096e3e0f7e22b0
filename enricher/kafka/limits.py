"""Asks the broker for `max.message.bytes` of the output topics.

Asked for each new producer, so a changed limit applies from the next one on. Never ends a worker: if the broker does not
answer, the settings apply.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from enricher.codec import Encoder
from enricher.kafka.client import KafkaConfig

log = logging.getLogger(__name__)

_TIMEOUT_S = 3.0  # it delays a recovery
_SETTING = "max.message.bytes"
_DENIED = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}


class TopicLimits:
    """The `max.message.bytes` of the topics that the worker writes, as far as the broker tells.

    `client` returns the admin client that is in use now (`TopicWatch`).
    """

    def __init__(self, config: KafkaConfig, client: Callable[[], AdminClient]) -> None:
        self._config = config
        self._client = client
        self._known: dict[str, int] = {}
        self._told = False

    def read(self) -> Mapping[str, int]:
        """Bytes by topic; unknown ones are left out. Blocks for at most 3 s, and raises nothing.

        Without an answer in time, the last known limit of a topic stays in force.
        """
        topics = (self._config.output_topic, self._config.dead_letter_topic)
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        timeout_s = min(_TIMEOUT_S, self._config.request_timeout_s)
        for resource, future in self._client().describe_configs(resources, request_timeout=timeout_s).items():
            try:
                self._known[resource.name] = int(future.result(2 * _TIMEOUT_S)[_SETTING].value)
            except KafkaException as exception:
                self._note(resource.name, exception.args[0])
            except TimeoutError:  # of the future: the client did not keep its own timeout
                log.debug("no answer about %s of '%s' from the client", _SETTING, resource.name)
        return dict(self._known)

    def applied(self, properties: Mapping[str, Any], encoder: Encoder) -> dict[str, Any]:
        """The producer's properties with the current limits applied. The encoder gets the limits as well."""
        topics = self.read()
        output, dead_letters = self._config.output_topic, self._config.dead_letter_topic
        encoder.limit_to(record_bytes=topics.get(output), dead_letter_bytes=topics.get(dead_letters))
        limits = encoder.limits
        # The broker's limit applies to batches. With this size a refused batch holds one record, which is the cause.
        batch_bytes = min(properties["batch.size"], limits.record_bytes, limits.dead_letter_bytes)
        return {**properties, "batch.size": batch_bytes}

    def serve(self) -> None:
        """Let the client deliver its events. Does not block."""
        self._client().poll(0)

    def _note(self, topic: str, error: KafkaError) -> None:
        if error.code() not in _DENIED:
            log.debug("no answer about %s of '%s': %s", _SETTING, topic, error.str())
            return
        self._known.pop(topic, None)
        if not self._told:
            self._told = True
            log.info(
                "not allowed to read %s of '%s' (that needs DESCRIBE_CONFIGS): using articles.max_record_bytes and "
                "articles.max_dead_letter_bytes",
                _SETTING,
                topic,
            )
