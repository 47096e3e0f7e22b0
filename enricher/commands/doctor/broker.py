"""What can be seen of cluster and topics without touching them. Rights are tried out in `trials`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from enricher.commands.doctor.findings import Finding, Voice
from enricher.commands.doctor.trials import rights_findings
from enricher.errors import BrokerError
from enricher.kafka.admin import Admin, TopicView
from enricher.kafka.client import KafkaConfig

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
    "Everything else about the broker was left out."
)
_CREATE = "Create it: 'enricher topics create', or name the right one."

_say = Voice("broker")


@dataclass(frozen=True, slots=True)
class Sizes:
    """The settings that topics must have room for."""

    max_record_bytes: int
    max_dead_letter_bytes: int


def broker_findings(config: KafkaConfig, sizes: Sizes) -> Iterator[Finding]:
    """Everything about the broker, in the order in which a start would meet it. Raises SettingsError."""
    admin = Admin(config)
    try:
        cluster = admin.cluster()
    except BrokerError as error:
        yield _say.fail("broker", str(error), UNREACHABLE)
        return
    yield _say.ok("broker", f"{cluster.brokers} broker(s), cluster {cluster.id}")
    yield version_finding(admin.api_versions())
    topics = {name: admin.topic(name) for name in (config.input_topic, config.output_topic, config.dead_letter_topic)}
    for name, topic in topics.items():
        yield from _topic(name, topic)
    yield from _partition_counts(config, topics)
    yield from _settings(admin, config, sizes, topics)
    yield from rights_findings(config, {name: topic.partitions for name, topic in topics.items() if topic}, admin)


def version_finding(api_versions: Mapping[str, int]) -> Finding:
    """Whether the broker knows offsets in transactions with the sender's generation."""
    found = api_versions.get("TxnOffsetCommit")
    if found is None:
        seen = "could not be told: the client does not say which requests the broker knows"
        return _say.warn("broker version", seen, "Kafka 2.5 or newer is needed (KIP-447); the trials below use it.")
    seen = f"TxnOffsetCommit up to version {found}; exactly-once needs {_TXN_OFFSET_COMMIT} (KIP-447, Kafka 2.5)"
    if found < _TXN_OFFSET_COMMIT:
        return _say.fail("broker version", seen, "Use a newer broker.")
    return _say.ok("broker version", seen)


def _topic(name: str, topic: TopicView | None) -> Iterator[Finding]:
    check = f"topic {name}"
    if topic is None:
        yield _say.fail(check, "there is none, or no right to see it (READ and WRITE bring that right along)", _CREATE)
        return
    seen = f"{topic.partitions} partitions, {topic.replicas} replica(s), {topic.in_sync} in sync"
    if topic.leaderless:
        seen += f", {topic.leaderless} partitions without a leader"
        yield _say.fail(
            check, seen, "Their brokers are down: nothing can be read or written there until they are back."
        )
    elif topic.replicas == 1:
        yield _say.warn(check, seen, "One disk that dies takes its records along; three replicas are usual.")
    elif topic.in_sync < topic.replicas:
        yield _say.warn(check, seen, "A replica lags behind or its broker is down.")
    else:
        yield _say.ok(check, seen)


def _partition_counts(config: KafkaConfig, topics: Mapping[str, TopicView | None]) -> Iterator[Finding]:
    wanted = topics[config.input_topic]
    if wanted is None:
        return
    for name, topic in topics.items():
        if topic and topic.partitions != wanted.partitions:
            seen = f"{topic.partitions}, but {config.input_topic} has {wanted.partitions}"
            advice = (
                "Make them equal: only then does a record keep its article's partition, and with it the order per key."
            )
            yield _say.fail(f"partitions of {name}", seen, advice)
    if all(topic and topic.partitions == wanted.partitions for topic in topics.values()):
        yield _say.ok("equal partition counts", f"{wanted.partitions} each, so the order per key is kept")


def _settings(
    admin: Admin, config: KafkaConfig, sizes: Sizes, topics: Mapping[str, TopicView | None]
) -> Iterator[Finding]:
    """Kafka's settings of each topic, as far as we may look."""
    limits: dict[str, int] = {}
    for name, topic in topics.items():
        if topic is None:
            continue
        found = admin.topic_settings(name)
        if found is None:
            yield _say.warn(f"settings of {name}", "could not look", "It needs DescribeConfigs; not needed to run.")
            continue
        settings = _KAFKA_DEFAULTS | dict(found)
        limits[name] = int(settings["max.message.bytes"])
        yield from _replication(topic, int(settings["min.insync.replicas"]))
        if name == config.input_topic:
            yield compression_finding(config, settings["compression.type"])
        if name == config.output_topic and "compact" in settings["cleanup.policy"]:
            yield _say.warn(
                f"cleanup of {name}",
                "compact: a record without a key is refused there",
                "Publish every article with its id as key. Their newest records are looked at below.",
            )
    yield from _limits(config, sizes, limits)


def compression_finding(config: KafkaConfig, found: str) -> Finding:
    """Whether the broker unpacks what is published, so that `max.message.bytes` bounds it."""
    check, topic = f"compression of {config.input_topic}", config.input_topic
    if found == "uncompressed":
        return _say.ok(check, "uncompressed: max.message.bytes bounds what a worker holds in memory")
    seen = f"{found}: max.message.bytes bounds packed bytes only, and 3 KB of zstd may be 100 MB to a worker"
    advice = (
        "If not everybody who may publish is trusted: kafka-configs "
        f"--bootstrap-server {config.bootstrap_servers} --alter --topic {topic} --add-config "
        "compression.type=uncompressed. Publishers may compress as before; the topic takes more disk."
    )
    return _say.warn(check, seen, advice)


def _replication(topic: TopicView, in_sync: int) -> Iterator[Finding]:
    check = f"replication of {topic.name}"
    seen = f"{topic.replicas} replica(s), min.insync.replicas={in_sync}"
    if in_sync > topic.replicas:
        yield _say.fail(check, seen, "Nothing can be written: lower min.insync.replicas, or add replicas.")
    elif topic.replicas > 1 and in_sync == topic.replicas:
        yield _say.warn(check, seen, "One broker that stops stops writing: set it to one less than the replicas.")
    elif topic.replicas >= 3 and in_sync == 1:
        yield _say.warn(check, seen, "An acknowledged record may hang on a single broker: set it to 2.")


def _limits(config: KafkaConfig, sizes: Sizes, limits: Mapping[str, int]) -> Iterator[Finding]:
    """`max.message.bytes` against what will be written: single records, and the client's batches of small ones."""
    batch_bytes = int(config.producer().get("batch.size", _CLIENT_BATCH_BYTES))
    written = {
        config.output_topic: ("max_record_bytes", sizes.max_record_bytes),
        config.dead_letter_topic: ("max_dead_letter_bytes", sizes.max_dead_letter_bytes),
    }
    for name, (setting, record_bytes) in written.items():
        if name in limits:
            yield _limit(name, limits[name], setting, record_bytes, batch_bytes)
    if config.input_topic in limits:
        yield _input_limit(config, sizes, limits)


def _input_limit(config: KafkaConfig, sizes: Sizes, limits: Mapping[str, int]) -> Finding:
    check = f"max.message.bytes of {config.input_topic}"
    input_bytes, letter_bytes = limits[config.input_topic], limits.get(config.dead_letter_topic)
    seen = f"{input_bytes} bytes; of an input above {sizes.max_dead_letter_bytes} a dead letter keeps no value"
    if letter_bytes is not None and input_bytes > letter_bytes:
        advice = f"Raise that of {config.dead_letter_topic} and articles.max_dead_letter_bytes to keep every value."
        return _say.warn(check, seen, advice)
    return _say.ok(check, seen)


def _limit(name: str, limit_bytes: int, setting: str, record_bytes: int, batch_bytes: int) -> Finding:
    check = f"max.message.bytes of {name}"
    if limit_bytes < record_bytes:
        seen = f"{limit_bytes} bytes, less than articles.{setting}={record_bytes}"
        return _say.fail(check, seen, f"Raise it, or set ENRICHER_ARTICLES__{setting.upper()} to {limit_bytes}.")
    if limit_bytes < batch_bytes:
        seen = (
            f"{limit_bytes} bytes, less than the client's batches of {batch_bytes}, which would be refused as a whole"
        )
        return _say.fail(check, seen, f'Raise it, or set "producer.batch.size" to {limit_bytes} in kafka.properties.')
    return _say.ok(check, f"{limit_bytes} bytes, enough for articles.{setting}={record_bytes}")
