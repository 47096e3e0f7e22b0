"""How large a message the output topics take: asked of the broker, for a setting cannot know it.

Read when a producer is made, so that a limit that was changed counts from the next one on. Nothing here ends a worker:
what cannot be asked is trusted to the settings.
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

_PATIENCE_S = 3.0  # it stands in the way of a recovery
_SETTING = "max.message.bytes"
_DENIED = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}


class TopicLimits:
    """Knows `max.message.bytes` of the topics that the worker writes, as far as the broker tells.

    `client` gives the one that is used for such questions now (`TopicWatch`).
    """

    def __init__(self, config: KafkaConfig, client: Callable[[], AdminClient]) -> None:
        self._config = config
        self._client = client
        self._known: dict[str, int] = {}
        self._told = False

    def read(self) -> Mapping[str, int]:
        """Bytes by topic, without topics of which nothing is known. Blocks for 3 s at most, and raises nothing.

        A topic that does not answer in time has the limit that it had when it last did.
        """
        topics = (self._config.output_topic, self._config.dead_letter_topic)
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        patience_s = min(_PATIENCE_S, self._config.request_timeout_s)
        for resource, future in self._client().describe_configs(resources, request_timeout=patience_s).items():
            try:
                self._known[resource.name] = int(future.result(2 * _PATIENCE_S)[_SETTING].value)
            except KafkaException as exception:
                self._note(resource.name, exception.args[0])
            except TimeoutError:  # of the future: the client has broken its own promise
                log.debug("no answer about %s of '%s' at all", _SETTING, resource.name)
        return dict(self._known)

    def applied(self, properties: Mapping[str, Any], encoder: Encoder) -> dict[str, Any]:
        """The properties of a producer that keeps to the limits as they are now; the encoder keeps to them as well."""
        topics = self.read()
        output, dead_letters = self._config.output_topic, self._config.dead_letter_topic
        encoder.limit_to(record_bytes=topics.get(output), dead_letter_bytes=topics.get(dead_letters))
        limits = encoder.limits
        # The broker's limit is for a batch: only then is its one record to blame for a batch that is refused.
        batch_bytes = min(properties["batch.size"], limits.record_bytes, limits.dead_letter_bytes)
        return {**properties, "batch.size": batch_bytes}

    def serve(self) -> None:
        """Let go of the client's events. Does not block."""
        self._client().poll(0)

    def _note(self, topic: str, error: KafkaError) -> None:
        if error.code() not in _DENIED:
            log.debug("no answer about %s of '%s': %s", _SETTING, topic, error.str())
            return
        self._known.pop(topic, None)
        if not self._told:
            self._told = True
            log.info(
                "not allowed to ask for %s of '%s' (the right is DESCRIBE_CONFIGS): trusting articles.max_record_bytes and "
                "articles.max_dead_letter_bytes",
                _SETTING,
                topic,
            )
