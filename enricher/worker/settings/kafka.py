"""Settings of the Kafka clients: cluster, topics, group, timeouts."""

from __future__ import annotations

import socket
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from enricher.worker.settings.group import Group, Properties, read_properties


class KafkaSettings(Group):
    """Cluster, topics and group of a worker."""

    bootstrap_servers: str = Field(
        "localhost:9092",
        description="Brokers to connect to first, `host:port`, comma separated, without a scheme such as `SASL_SSL://`.",
    )
    group_id: str = Field("enricher", min_length=1, description="Consumer group; all workers of one pipeline share it.")
    input_topic: str = Field("articles", min_length=1, description="Topic that articles are read from.")
    input_topics: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (),
        max_length=8,
        description="Instead of `input_topic`: topics in the order of their priority, as a JSON list such as "
        '`["articles.now", "articles"]`. While one has a backlog, those after it are not read. All workers of the group '
        "need the same topics.",
    )
    output_topic: str = Field("entities", min_length=1, description="Topic that enriched records are written to.")
    dead_letter_topic: str = Field(
        "articles.dead-letters", min_length=1, description="Topic for inputs that can never be enriched."
    )
    epoch: int = Field(
        0,
        ge=0,
        le=255,
        description="The highest part of `enricher.version`, by which an index keeps the newest record of a key. Raise it, "
        "for all workers of the group, when the input topic is created again or gets more partitions: keys then begin at "
        "lower offsets, and without a higher epoch their newest records lose against older ones. Never lower it.",
    )
    instance: str = Field(
        default_factory=socket.gethostname,
        min_length=1,
        description="Stable name of this worker, unique in the group (a StatefulSet's pod name). Group and name make the "
        "transactional id, by which a restarted worker fences its predecessor. Default: the host name.",
    )
    session_timeout_s: float = Field(
        20.0,
        ge=6,
        le=300,
        description="Seconds after which the group gives the partitions of a silent worker to others.",
    )
    max_poll_interval_s: float = Field(
        120.0,
        ge=10,
        le=3600,
        description="Seconds between two polls after which the group removes the worker as dead.",
    )
    transaction_timeout_s: float = Field(
        15.0,
        ge=5,
        le=300,
        description="Seconds after which the broker aborts an open transaction. Keep it below the session timeout, so "
        "that a dead worker's transaction has ended before its partitions move, and above three times the slowest "
        "commit.",
    )
    request_timeout_s: float = Field(10.0, gt=0, le=120, description="Seconds to wait for metadata and offsets.")
    allow_fewer_partitions: bool = Field(
        default=False,
        description="Start, and go on, although an output topic has fewer partitions than the input topic. Outputs of the "
        "missing partitions are placed by key. Set the offsets of a new group before its first start if others write to "
        "the output topics (`enricher offsets set`).",
    )
    partition_timeout_s: float = Field(
        300.0,
        ge=4,
        le=3600,
        description="Seconds for which a partition may deliver nothing although there is more to read. Then it is read "
        "alone for 10 s; if it still delivers nothing, the process ends (exit code 7), because a restart has a new client. "
        "The same happens if its committed offset stays unknown for this time plus `transaction_timeout_s`.",
    )
    properties: Properties = Field(
        default_factory=dict,
        repr=False,
        description="Any librdkafka property, as a JSON object, e.g. `{\"security.protocol\": \"SSL\"}`; with the prefix "
        "`consumer.` or `producer.` for one client only. Properties that exactly-once needs, or that load code or run "
        "commands, are refused. The instance is appended to `client.id`. A secret may be read from a file: "
        "`{\"sasl.password\": {\"file\": "
        "\"/run/secrets/password\"}}`.",
    )  # fmt: skip

    @field_validator("bootstrap_servers")
    @classmethod
    def _has_no_scheme(cls, text: str) -> str:
        """Refuse a URL; the message must not repeat it, because it may contain a password."""
        scheme, found, _rest = text.partition("://")
        if found:
            protocol = scheme.rpartition(",")[2].strip().upper()
            known = protocol in {"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}
            also = f', and {{"security.protocol": "{protocol}"}} in kafka.properties' if known else ""
            raise ValueError(f"write host:port without a scheme, such as broker:9092{also}")
        return text

    @model_validator(mode="after")
    def _has_one_way_to_name_topics(self) -> KafkaSettings:
        if self.input_topics and "input_topic" in self.model_fields_set:
            raise ValueError("input_topic and input_topics are both set: name all topics in input_topics")
        return self

    @property
    def inputs(self) -> tuple[str, ...]:
        """The input topics in the order of their priority."""
        return self.input_topics or (self.input_topic,)

    def client_properties(self) -> dict[str, str | int | float | bool]:
        """`properties`, with values from files read now. Raises SettingsError."""
        return read_properties(self.properties, "kafka.properties")
