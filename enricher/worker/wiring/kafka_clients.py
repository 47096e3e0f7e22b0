"""Settings -> the settings of the Kafka clients. Its own module, so that most commands import nothing of models."""

from __future__ import annotations

from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.tokens import login_properties
from enricher.worker.settings import Settings

_MIN_POLL_INTERVAL_S = 120.0
"""The least `max.poll.interval.ms`, after which the group removes a worker that does not poll. The watchdog ends it
before, and the client wants no less than the session timeout."""


def kafka_config(settings: Settings) -> KafkaConfig:
    """The settings of the Kafka clients. Reads secrets from files; raises SettingsError."""
    kafka, articles = settings.kafka, settings.articles
    input_topic, *other_inputs = kafka.inputs
    return KafkaConfig(
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=kafka.group_id,
        instance=kafka.instance,
        input_topic=input_topic,
        other_inputs=tuple(other_inputs),
        output_topic=kafka.output_topic,
        dead_letter_topic=kafka.dead_letter_topic,
        session_timeout_s=kafka.session_timeout_s,
        max_poll_interval_s=max(_MIN_POLL_INTERVAL_S, kafka.session_timeout_s, 2 * settings.worker.stall_timeout_s),
        transaction_timeout_s=kafka.transaction_timeout_s,
        request_timeout_s=kafka.request_timeout_s,
        max_record_bytes=articles.max_record_bytes,
        # The client also counts headers and framing; 64 KiB is far above what we add.
        max_message_bytes=max(articles.max_record_bytes, articles.max_dead_letter_bytes) + 65_536,
        properties=kafka.client_properties(),
        login=login_properties(kafka.token, kafka.bootstrap_servers, kafka.request_timeout_s),
    )
