"""Checks cluster, topics and schema registry: what a worker asks before its start, and topics' settings. Only reads.

A worker would wait for a registry that is away; here a check fails, because waiting enriches nothing. Schemas of articles:
`articles`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from enricher.errors import BrokerError, EnricherError, SettingsError
from enricher.operate.doctor.findings import Finding, Reporter
from enricher.operate.topics import Admin, TopicView
from enricher.worker.articles import record_writer
from enricher.worker.kafka.errors import Complaint, without_recovery
from enricher.worker.kafka.precheck import require_start
from enricher.worker.kafka.producers import short_lived_producer
from enricher.worker.kafka.properties import KafkaConfig, transactional_id
from enricher.worker.registry.registry_client import RefusedByRegistry, RegistryUnavailable
from enricher.worker.settings import Settings
from enricher.worker.wiring.formats import registry_client, subject_of

_ANSWERS_WITHIN_S = 3.0
"""The time limit of the first answer, for which a person waits; a slower broker counts as away."""
UNREACHABLE = (
    "Is kafka.bootstrap_servers right, and is the broker up? TLS and passwords are in kafka.properties. "
    "The other checks of the broker were skipped."
)

_report = Reporter("broker")


def broker_findings(config: KafkaConfig) -> Iterator[Finding]:
    """All checks of the broker, in the order of a worker's start. Raises SettingsError."""
    admin = Admin(config)
    soon = replace(config, request_timeout_s=min(config.request_timeout_s, _ANSWERS_WITHIN_S))
    try:
        cluster = admin.cluster(soon.request_timeout_s)
    except BrokerError as error:
        yield _report.fail("broker", str(error), UNREACHABLE)
        return
    yield _report.ok("broker", f"{len(cluster.brokers)} broker(s), cluster {cluster.cluster_id}")
    yield _start(soon)
    yield _transactional_id(config)
    for name in config.topics:
        if topic := admin.topic(name):
            yield _topic(config, topic, admin.topic_settings(name))


def _start(config: KafkaConfig) -> Finding:
    """The worker's own check of topics, numbers of partitions and rights. The broker is asked; no record is written."""
    check = "topics and rights"
    try:
        require_start(config)
    except SettingsError as error:
        return Reporter("settings").fail(check, str(error), "A worker would not start.")
    except EnricherError as error:
        return _report.fail(check, str(error), "A worker would not start; deploy/rights.md has the commands.")
    return _report.ok(check, f"{', '.join(config.topics)}; the broker would allow a worker of '{config.group_id}'")


def doctor_id(config: KafkaConfig) -> str:
    """A transactional id with the group's prefix that no worker has: a worker's own would fence that worker."""
    return transactional_id(config.group_id, config.instance, "doctor")


def _transactional_id(config: KafkaConfig) -> Finding:
    """Check the fifth right, about which no broker can be asked: a producer opens, and sends nothing."""
    check, properties = "right: transactional id WRITE", config.producer() | {"transactional.id": doctor_id(config)}
    bounds_s = {"metadata_timeout_s": config.request_timeout_s}
    try:
        with (
            without_recovery(),
            short_lived_producer(properties, Complaint(), 2 * config.transaction_timeout_s, **bounds_s),
        ):
            return _report.ok(check, f"opened '{doctor_id(config)}' (never the worker's own id)")
    except BrokerError as error:
        # Not `transactional_id_right`: what was tried is another id with the prefix, and the group's workers need it too.
        advice = f"Allow WRITE on transactional ids with the prefix '{config.transactional_prefix}'."
        return _report.fail(check, str(error), advice)


def _topic(config: KafkaConfig, topic: TopicView, settings: Mapping[str, str] | None) -> Finding:
    """Check how a topic is kept. `settings`: Kafka's; None if this client may not read them, nor needs a worker to."""
    found = settings or {}
    in_sync, compression = int(found.get("min.insync.replicas", "1")), found.get("compression.type", "producer")
    check = f"topic {topic.name}"
    seen = f"{topic.partitions} partitions, {topic.replicas} replica(s), {topic.in_sync} in sync"
    if settings is None:
        advice = "This needs DescribeConfigs; a worker does not."
        return _report.warn(check, f"{seen}; its settings could not be read", advice)
    seen += f"; min.insync.replicas={in_sync}, compression.type={compression}"
    if topic.leaderless:
        advice = "Their brokers are down; until they return, nothing can be read or written there."
        return _report.fail(check, f"{seen}; {topic.leaderless} partitions have no leader", advice)
    if in_sync > topic.replicas:
        return _report.fail(check, seen, "Nothing can be written: lower min.insync.replicas, or add replicas.")
    remarks = {
        "If its disk fails, its records are lost; three replicas are usual.": topic.replicas == 1,
        "A replica lags behind or its broker is down.": topic.in_sync < topic.replicas,
        "If one broker stops, nothing can be written: set min.insync.replicas to one less than the replicas.": (
            1 < topic.replicas == in_sync
        ),
        "A single broker may hold the only copy of an acknowledged record: set min.insync.replicas to 2.": (
            topic.replicas >= 3 and in_sync == 1
        ),
        "It is compacted, and refuses records without a key: publish every article with its id as key.": (
            topic.name == config.output_topic and "compact" in found.get("cleanup.policy", "")
        ),
        _uncompress(config, topic.name): topic.name in config.inputs and compression != "uncompressed",
    }
    advice = " ".join(text for text, holds in remarks.items() if holds)
    return _report.warn(check, seen, advice) if advice else _report.ok(check, seen)


def _uncompress(config: KafkaConfig, topic: str) -> str:
    return (
        "max.message.bytes bounds compressed bytes, and 3 KB of zstd may be 100 MB to a worker. If not every publisher is "
        f"trusted: kafka-configs --bootstrap-server {config.bootstrap_servers} --alter --topic {topic} --add-config "
        "compression.type=uncompressed. Publishers may still compress; the topic takes more disk space."
    )


_REGISTRY_ADVICE = (
    "Are registry.url, with its path, and output.subject right, and is the registry up? Credentials are in "
    "registry.properties: basic.auth.user.info or bearer.auth.token, of a user with the right to read schemas."
)

_registry_report = Reporter("registry")


def registry_findings(settings: Settings) -> Iterator[Finding]:
    """All checks of the registry; none without one. Raises SettingsError."""
    if not settings.registry.url:
        return
    client, subject = registry_client(settings), subject_of(settings)
    schema = record_writer(settings.output.format).schema
    try:
        yield _registry_report.ok("registry", f"{client.name} answers; subjects: {len(client.subjects())}")
        if schema is None:
            return
        found = client.lookup(subject, schema)
    except (RegistryUnavailable, RefusedByRegistry) as error:
        yield _registry_report.fail("registry", str(error), _REGISTRY_ADVICE)
        return
    check, missing = f"subject {subject}", "the schema of records is not there"
    if found is not None:
        yield _registry_report.ok(check, f"has the schema of records: version {found.version}, id {found.id}")
    else:
        advice = "Run 'enricher schemas register'; with --dry-run first, to see what it would do."
        yield _registry_report.fail(check, f"{missing}: a worker would not start", advice)
