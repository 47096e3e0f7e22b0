"""Checks of the cluster and the topics that only look. Rights are checked in `rights`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from enricher.errors import BrokerError
from enricher.operate.doctor.findings import Finding, Reporter
from enricher.operate.doctor.rights import rights_findings
from enricher.operate.topics.admin import Admin, TopicView
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.settings import ArticleSettings

_ANSWERS_WITHIN_S = 3.0
"""A person waits for this; a broker that takes longer for its first answer is as good as away."""
_TXN_OFFSET_COMMIT = 3  # the version that carries group metadata: KIP-447, Kafka 2.5
_CLIENT_BATCH_BYTES = 1_000_000  # librdkafka's own default of batch.size
_KAFKA_DEFAULTS = {
    "max.message.bytes": "1048588",
    "cleanup.policy": "delete",
    "min.insync.replicas": "1",
    "compression.type": "producer",
}
UNREACHABLE = (
    "Is kafka.bootstrap_servers right, and is the broker up? TLS and passwords are in kafka.properties. "
    "The other checks of the broker were skipped."
)
_CREATE = "Create it with 'enricher topics create', or correct its name in the settings."

_report = Reporter("broker")


def broker_findings(config: KafkaConfig, articles: ArticleSettings) -> Iterator[Finding]:
    """All checks of the broker, in the order of a worker's start. Raises SettingsError."""
    admin = Admin(config)
    try:
        cluster = admin.cluster(min(config.request_timeout_s, _ANSWERS_WITHIN_S))
    except BrokerError as error:
        yield _report.fail("broker", str(error), UNREACHABLE)
        return
    yield _report.ok("broker", f"{cluster.brokers} broker(s), cluster {cluster.id}")
    yield version_finding(admin.api_versions())
    topics = {name: admin.topic(name) for name in config.topics}
    for name, topic in topics.items():
        yield from _topic(name, topic)
    yield from _partition_counts(config, topics)
    yield from _settings(admin, config, articles, topics)
    yield from rights_findings(config, {name: topic.partitions for name, topic in topics.items() if topic}, admin)


def version_finding(api_versions: Mapping[str, int]) -> Finding:
    """Whether the broker checks the group generation of offsets in transactions (KIP-447)."""
    found = api_versions.get("TxnOffsetCommit")
    if found is None:
        seen = "unknown: the client does not say which requests the broker supports"
        return _report.warn(
            "broker version", seen, "Kafka 2.5 or newer is needed (KIP-447); the checks below depend on it."
        )
    seen = f"TxnOffsetCommit up to version {found}; exactly-once needs {_TXN_OFFSET_COMMIT} (KIP-447, Kafka 2.5)"
    if found < _TXN_OFFSET_COMMIT:
        return _report.fail("broker version", seen, "Use a newer broker.")
    return _report.ok("broker version", seen)


def _topic(name: str, topic: TopicView | None) -> Iterator[Finding]:
    check = f"topic {name}"
    if topic is None:
        yield _report.fail(
            check, "does not exist, or there is no right to see it (READ and WRITE include that right)", _CREATE
        )
        return
    seen = f"{topic.partitions} partitions, {topic.replicas} replica(s), {topic.in_sync} in sync"
    if topic.leaderless:
        seen += f", {topic.leaderless} partitions without a leader"
        yield _report.fail(
            check, seen, "Their brokers are down; until they return, nothing can be read or written there."
        )
    elif topic.replicas == 1:
        yield _report.warn(check, seen, "If its disk fails, its records are lost; three replicas are usual.")
    elif topic.in_sync < topic.replicas:
        yield _report.warn(check, seen, "A replica lags behind or its broker is down.")
    else:
        yield _report.ok(check, seen)


def _partition_counts(config: KafkaConfig, topics: Mapping[str, TopicView | None]) -> Iterator[Finding]:
    inputs = [topic for name in config.inputs if (topic := topics[name])]
    if not inputs:
        return
    wanted = max(inputs, key=lambda topic: topic.partitions)
    for name, topic in topics.items():
        if topic and topic.partitions != wanted.partitions:
            seen = f"{topic.partitions}, but {wanted.name} has {wanted.partitions}"
            if name in config.inputs:  # its outputs are in the first partitions of the output topics
                yield _report.ok(f"partitions of {name}", f"{seen}: lanes may differ")
                continue
            advice = "Make them equal, so that a record keeps its article's partition and with it the order per key."
            yield _report.fail(f"partitions of {name}", seen, advice)
    if all(topic and topic.partitions == wanted.partitions for topic in topics.values()):
        yield _report.ok("equal partition counts", f"{wanted.partitions} each, so the order per key is kept")


def _settings(
    admin: Admin, config: KafkaConfig, articles: ArticleSettings, topics: Mapping[str, TopicView | None]
) -> Iterator[Finding]:
    """Kafka's settings of each topic, as far as this client may read them."""
    limits: dict[str, int] = {}
    for name, topic in topics.items():
        if topic is None:
            continue
        found = admin.topic_settings(name)
        if found is None:
            yield _report.warn(
                f"settings of {name}", "could not be read", "This check needs DescribeConfigs; a worker does not."
            )
            continue
        settings = _KAFKA_DEFAULTS | dict(found)
        limits[name] = int(settings["max.message.bytes"])
        yield from _replication(topic, int(settings["min.insync.replicas"]))
        if name in config.inputs:
            yield compression_finding(config.of_lane(name), settings["compression.type"])
        if name == config.output_topic and "compact" in settings["cleanup.policy"]:
            yield _report.warn(
                f"cleanup of {name}",
                "compact: a record without a key is refused there",
                "Publish every article with its id as key. Keys of the newest articles are checked below.",
            )
    yield from _limits(config, articles, limits)


def compression_finding(config: KafkaConfig, found: str) -> Finding:
    """Whether the broker stores records uncompressed, so that `max.message.bytes` bounds their size."""
    check, topic = f"compression of {config.input_topic}", config.input_topic
    if found == "uncompressed":
        return _report.ok(check, "uncompressed: max.message.bytes bounds what a worker holds in memory")
    seen = f"{found}: max.message.bytes bounds compressed bytes, and 3 KB of zstd may be 100 MB to a worker"
    advice = (
        "If not every publisher is trusted: kafka-configs "
        f"--bootstrap-server {config.bootstrap_servers} --alter --topic {topic} --add-config "
        "compression.type=uncompressed. Publishers may still compress; the topic takes more disk space."
    )
    return _report.warn(check, seen, advice)


def _replication(topic: TopicView, in_sync: int) -> Iterator[Finding]:
    check = f"replication of {topic.name}"
    seen = f"{topic.replicas} replica(s), min.insync.replicas={in_sync}"
    if in_sync > topic.replicas:
        yield _report.fail(check, seen, "Nothing can be written: lower min.insync.replicas, or add replicas.")
    elif topic.replicas > 1 and in_sync == topic.replicas:
        yield _report.warn(
            check, seen, "If one broker stops, nothing can be written: set it to one less than the replicas."
        )
    elif topic.replicas >= 3 and in_sync == 1:
        yield _report.warn(
            check, seen, "A single broker may hold the only copy of an acknowledged record: set it to 2."
        )


def _limits(config: KafkaConfig, articles: ArticleSettings, limits: Mapping[str, int]) -> Iterator[Finding]:
    """`max.message.bytes` against what is written: single records, and the client's batches of small ones."""
    batch_bytes = int(config.producer().get("batch.size", _CLIENT_BATCH_BYTES))
    written = {
        config.output_topic: ("max_record_bytes", articles.max_record_bytes),
        config.dead_letter_topic: ("max_dead_letter_bytes", articles.max_dead_letter_bytes),
    }
    for name, (setting, record_bytes) in written.items():
        if name in limits:
            yield _limit(name, limits[name], setting, record_bytes, batch_bytes)
    for name in config.inputs:
        if name in limits:
            yield _input_limit(config.of_lane(name), articles, limits)


def _input_limit(config: KafkaConfig, articles: ArticleSettings, limits: Mapping[str, int]) -> Finding:
    check = f"max.message.bytes of {config.input_topic}"
    input_bytes, letter_bytes = limits[config.input_topic], limits.get(config.dead_letter_topic)
    seen = f"{input_bytes} bytes; the dead letter of an input above {articles.max_dead_letter_bytes} bytes has no value"
    if letter_bytes is not None and input_bytes > letter_bytes:
        advice = f"Raise that of {config.dead_letter_topic} and articles.max_dead_letter_bytes to keep every value."
        return _report.warn(check, seen, advice)
    return _report.ok(check, seen)


def _limit(name: str, limit_bytes: int, setting: str, record_bytes: int, batch_bytes: int) -> Finding:
    check = f"max.message.bytes of {name}"
    if limit_bytes < record_bytes:
        seen = f"{limit_bytes} bytes, less than articles.{setting}={record_bytes}"
        return _report.fail(check, seen, f"Raise it, or set ENRICHER_ARTICLES__{setting.upper()} to {limit_bytes}.")
    if limit_bytes < batch_bytes:
        seen = (
            f"{limit_bytes} bytes, less than the client's batches of {batch_bytes}, which would be refused as a whole"
        )
        return _report.fail(
            check, seen, f'Raise it, or set "producer.batch.size" to {limit_bytes} in kafka.properties.'
        )
    return _report.ok(check, f"{limit_bytes} bytes, enough for articles.{setting}={record_bytes}")
