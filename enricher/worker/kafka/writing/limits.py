"""How large messages and batches may be: asks the broker for `max.message.bytes` of the output topics.

Asked for each new producer, so a lowered limit applies from the next one on, at the latest when a batch is refused. A limit
below the settings is asked for again before a transaction, once a minute: it may have been raised. Never ends a worker: if
the broker does not answer, the settings apply.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from enricher.worker.articles import Encoder
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.kafka.shared.metadata import ask_for_settings, settings_in
from enricher.worker.kafka.writing.batch_size import BatchSize

log = logging.getLogger(__name__)

_TIMEOUT_S = 3.0  # it delays a recovery
_ASK_AGAIN_S = 60.0
_SETTING = "max.message.bytes"


class TopicLimits:
    """The `max.message.bytes` of the topics that the worker writes, as far as the broker tells.

    `client` returns the admin client that is in use now (`TopicWatch`). `batches`: what refused batches have shown.
    """

    def __init__(self, config: KafkaConfig, client: Callable[[], AdminClient]) -> None:
        self._config = config
        self._client = client
        self._known: dict[str, int] = {}
        self._told = False
        self._ask_again_s = math.inf
        self._most_batch_bytes = 0
        self.batches = BatchSize()

    def read(self) -> Mapping[str, int]:
        """Bytes by topic; unknown ones are left out. Blocks for at most 3 s, and raises nothing.

        Without an answer in time, the last known limit of a topic stays in force.
        """
        topics = (self._config.output_topic, self._config.dead_letter_topic)
        timeout_s = min(_TIMEOUT_S, self._config.request_timeout_s)
        for topic, answer in ask_for_settings(self._client(), topics, timeout_s).items():
            try:
                settings = settings_in(answer, timeout_s)
            except KafkaException as exception:
                log.debug("no answer about %s of '%s': %s", _SETTING, topic, exception.args[0].str())
                continue
            if settings is None:
                self._known.pop(topic, None)
                self._say_denied(topic)
            else:
                self._known[topic] = int(settings[_SETTING])
        return dict(self._known)

    def apply(self, properties: Mapping[str, Any], encoder: Encoder, now_s: float) -> dict[str, Any]:
        """The properties of a new producer with the current limits applied. The encoder gets the limits as well."""
        self._most_batch_bytes = properties["batch.size"]
        self._tell(encoder, now_s)
        return {**properties, "batch.size": self.batches.next_batch_bytes(self._allowed_batch_bytes(encoder))}

    def ask_again(self, encoder: Encoder, now_s: float) -> None:
        """Ask again before a transaction, if a limit below the settings is old. Blocks as `read` does."""
        if now_s >= self._ask_again_s:
            self._tell(encoder, now_s)

    def larger_batches(self, encoder: Encoder, now_s: float) -> bool:
        """Whether a new producer may send larger batches than the present one. Call it after a transaction succeeded."""
        return self.batches.grew(now_s) or self.batches.below(self._allowed_batch_bytes(encoder))

    def _tell(self, encoder: Encoder, now_s: float) -> None:
        topics = self.read()
        output, dead_letters = self._config.output_topic, self._config.dead_letter_topic
        encoder.limit_to(record_bytes=topics.get(output), dead_letter_bytes=topics.get(dead_letters))
        self._ask_again_s = now_s + _ASK_AGAIN_S if encoder.limited_by_topics else math.inf

    def _allowed_batch_bytes(self, encoder: Encoder) -> int:
        """The broker's limit applies to batches."""
        return min(self._most_batch_bytes, encoder.limits.record_bytes, encoder.limits.dead_letter_bytes)

    def serve(self) -> None:
        """Let the client deliver its events. Does not block."""
        self._client().poll(0)

    def _say_denied(self, topic: str) -> None:
        if not self._told:
            self._told = True
            log.info(
                "not allowed to read %s of '%s' (that needs DESCRIBE_CONFIGS): using articles.max_record_bytes and "
                "articles.max_dead_letter_bytes",
                _SETTING,
                topic,
            )
