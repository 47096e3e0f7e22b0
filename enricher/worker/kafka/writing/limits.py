"""How large messages and batches may be: asks the broker for `max.message.bytes` of the output topics.

Asked once, when the worker starts, and never ends it: without an answer the settings apply. A limit that is lowered later
shows when a batch is refused, and a restart asks again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.kafka.shared.metadata import ask_for_settings, settings_in

log = logging.getLogger(__name__)

_TIMEOUT_S = 3.0  # it delays the start
_SETTING = "max.message.bytes"


def message_limits(client: AdminClient, config: KafkaConfig) -> Mapping[str, int]:
    """Bytes by topic; unknown ones are left out. Blocks for 6 s at most for each topic, and raises nothing."""
    found: dict[str, int] = {}
    timeout_s = min(_TIMEOUT_S, config.request_timeout_s)
    for topic, answer in ask_for_settings(client, (config.output_topic, config.dead_letter_topic), timeout_s).items():
        try:
            settings = settings_in(answer, timeout_s)
        except KafkaException as exception:
            log.warning("no answer about %s of '%s': %s", _SETTING, topic, exception.args[0].str())
            continue
        if settings is not None:
            found[topic] = int(settings[_SETTING])
        else:
            log.info(
                "not allowed to read %s of '%s' (that needs DESCRIBE_CONFIGS): using articles.max_record_bytes and "
                "articles.max_dead_letter_bytes",
                _SETTING, topic,
            )  # fmt: skip
    return found
