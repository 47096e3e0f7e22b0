"""`enricher topics create`: creates the topics that a worker needs. `Admin` describes and creates topics for `doctor`, too.

It changes and deletes nothing that exists, and the worker does not use it. Retention stays at the broker's default: whoever
pays for the disks decides how long articles and entities are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic
from rich.table import Table

from enricher.errors import BrokerError
from enricher.worker.commands.console import data_console
from enricher.worker.kafka.errors import DENIED, Complaint, broker_errors, new_client
from enricher.worker.kafka.metadata import settings_of
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.runtime.deadlines import Deadline, until
from enricher.worker.settings import Settings, load_settings
from enricher.worker.wiring.kafka_clients import kafka_config

DEFAULT_PARTITIONS = 8
MAX_DEFAULT_REPLICAS = 3

_LARGE_MESSAGE_BYTES = 16 * 2**20
"""max.message.bytes of inputs and dead letters; news articles with all their markup stay far below it."""

_KAFKA_MESSAGE_BYTES = 1_048_588
"""Kafka's default of max.message.bytes; with less, the client's default batches of 1 MB would be refused."""

UNPACKED = {"compression.type": "uncompressed"}
"""A setting of the input topic, so that `max.message.bytes` bounds what a worker holds in memory. With Kafka's default,
`producer`, it bounds compressed bytes, and 3 KB of zstd may be 100 MB to a worker. Publishers may still compress."""

_CREATE_TIMEOUT_S = 30.0  # a cluster that is busy electing leaders takes seconds
_LOOK_AGAIN_S = 0.1


def topics_create(
    *,
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default=False,
            help=f"Partitions of each topic, for workers to share. Default: as the input topic, else {DEFAULT_PARTITIONS}.",
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default=False,
            help=f"Replicas of each partition. Default: one per broker, at most {MAX_DEFAULT_REPLICAS}.",
        ),
    ] = None,
) -> None:
    """Create the input, output and dead-letter topics. Existing ones are left alone; `doctor` says how they are set."""
    settings = load_settings()
    admin = Admin(kafka_config(settings))
    message_bytes = _message_bytes(settings)
    existing = {name: admin.topic(name) for name in message_bytes}
    plans = plan_topics(
        message_bytes,
        existing,
        inputs=settings.kafka.inputs,
        brokers=len(admin.cluster().brokers),
        partitions=partitions,
        replicas=replication_factor,
    )
    admin.create(plans)
    table = Table("topic", "result", "partitions", "replicas", "settings")
    for found in filter(None, (existing[name] for name in message_bytes)):
        table.add_row(found.name, "exists, left alone", str(found.partitions), str(found.replicas), "")
    for plan in plans:
        own = "\n".join(f"{name}={value}" for name, value in (plan.config or {}).items())
        table.add_row(plan.topic, "[green]created[/]", str(plan.num_partitions), str(plan.replication_factor), own)
    console = data_console()
    console.print(table)
    if plans:
        console.print("Retention is the broker's default: how long records are kept is your decision.")


def _message_bytes(settings: Settings) -> dict[str, int]:
    """The topics of the settings, and the least `max.message.bytes` of each."""
    kafka, articles = settings.kafka, settings.articles
    return {
        **dict.fromkeys(kafka.inputs, _LARGE_MESSAGE_BYTES),
        kafka.output_topic: max(_KAFKA_MESSAGE_BYTES, articles.max_record_bytes),
        kafka.dead_letter_topic: max(_LARGE_MESSAGE_BYTES, articles.max_dead_letter_bytes),
    }


def plan_topics(
    message_bytes: Mapping[str, int],
    existing: Mapping[str, TopicView | None],
    *,
    inputs: Sequence[str],
    brokers: int,
    partitions: int | None,
    replicas: int | None,
) -> list[NewTopic]:
    """The topics to create, which do not exist yet.

    `message_bytes`: the least `max.message.bytes` of each topic. All topics get the same number of partitions, because the
    order per key depends on it: `partitions`, or as many as the input topic has (the largest of `inputs`), or 8. Without
    `replicas`, each partition has one replica per broker, at most three.
    """
    present = [topic.partitions for name in inputs if (topic := existing[name])]
    count = partitions or max(present, default=DEFAULT_PARTITIONS)
    copies = replicas or min(MAX_DEFAULT_REPLICAS, brokers)
    # One broker may stop, and two have each acknowledged record.
    in_sync = {"min.insync.replicas": "2"} if copies >= 3 else {}
    return [
        NewTopic(
            name,
            num_partitions=count,
            replication_factor=copies,
            config={"max.message.bytes": str(size_bytes), **(UNPACKED if name in inputs else {}), **in_sync},
        )
        for name, size_bytes in message_bytes.items()
        if not existing[name]
    ]


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic, from its metadata. `replicas` and `in_sync` are the lowest of its partitions."""

    name: str
    partitions: int
    replicas: int
    in_sync: int
    leaderless: int
    """Partitions without a leader, which can be neither read nor written now."""


class Admin:
    """Every method may block for the request timeout, and raises BrokerError.

    The constructor raises SettingsError if librdkafka rejects the properties.
    """

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._complaint = Complaint()
        self._client = new_client(AdminClient, config.client("admin"), self._complaint)

    def cluster(self, timeout_s: float | None = None) -> ClusterMetadata:
        """The cluster's id and its brokers now. `timeout_s`: instead of the request timeout."""
        with self._errors(f"asking {self._config.bootstrap_servers} for the cluster"):
            return self._client.list_topics(timeout=timeout_s or self._config.request_timeout_s)

    def topic(self, name: str) -> TopicView | None:
        """The topic, or None if there is none, or none that we may see. Never creates it."""
        with self._errors(f"asking for the topic '{name}'"):
            metadata = self._client.list_topics(timeout=self._config.request_timeout_s).topics.get(name)
            if metadata is None:
                return None
            if metadata.error:
                raise KafkaException(metadata.error)
        partitions = list(metadata.partitions.values())
        return TopicView(
            name=name,
            partitions=len(partitions),
            replicas=min((len(partition.replicas) for partition in partitions), default=0),
            in_sync=min((len(partition.isrs) for partition in partitions), default=0),
            leaderless=sum(partition.leader < 0 for partition in partitions),
        )

    def topic_settings(self, name: str) -> Mapping[str, str] | None:
        """Kafka's settings of the topic; None without the right DescribeConfigs."""
        with self._errors(f"asking for the settings of '{name}'"):
            return settings_of(self._client, name, self._config.request_timeout_s)

    def create(self, plans: Sequence[NewTopic]) -> None:
        """Create the topics and wait until all are usable. A topic that exists by then is no error."""
        if not plans:
            return
        with self._errors("creating topics"):
            futures = self._client.create_topics([*plans], request_timeout=_CREATE_TIMEOUT_S)
        for name, future in futures.items():
            with self._errors(f"creating the topic '{name}'", "CREATE on the topic"):
                error = future.exception()
                if error and error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise error
        self._await_usable([plan.topic for plan in plans])

    def _await_usable(self, names: Sequence[str]) -> None:
        """Wait until every partition has a leader: brokers learn of a new topic one after the other."""
        waiting = list(names)

        def usable() -> bool:
            waiting[:] = [name for name in waiting if not self._is_usable(name)]
            return not waiting

        if not until(usable, Deadline(_CREATE_TIMEOUT_S), pause_s=_LOOK_AGAIN_S):
            raise BrokerError(f"created, but not usable after {_CREATE_TIMEOUT_S:.0f} s: {', '.join(waiting)}")

    def _is_usable(self, name: str) -> bool:
        topic = self.topic(name)
        return topic is not None and topic.partitions > 0 and not topic.leaderless

    @contextmanager
    def _errors(self, doing: str, right: str = "") -> Iterator[None]:
        """Map what the client raises. `right`: named in the message if it is missing."""
        with broker_errors(self._client, doing, self._complaint):
            try:
                yield
            except KafkaException as exception:
                if right and exception.args[0].code() in DENIED:
                    message = f"{doing} was refused. Needed: {right}"
                    raise BrokerError(message) from exception
                raise
