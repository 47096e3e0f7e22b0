"""The settings of Kafka: which cluster, which topics, as whom, and how long to wait."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Literal

from pydantic import Field

from enricher.errors import SettingsError
from enricher.settings.group import Group


class FromFile(Group):
    """A value that stands in a file of its own, as Kubernetes mounts secrets."""

    file: Path

    def read(self, name: str) -> str:
        """The file's text without the line end that editors add; raises SettingsError, which names the property."""
        try:
            return self.file.read_text("utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            message = f"kafka.properties: '{name}' stands in {self.file}, which cannot be read: {reason}"
            raise SettingsError(message) from None  # a UnicodeDecodeError holds what was read


class KafkaSettings(Group):
    """Which cluster, which topics, as whom."""

    bootstrap_servers: str = Field("localhost:9092", description="Brokers to ask first, `host:port`, comma separated.")
    group_id: str = Field("enricher", min_length=1, description="Consumer group; all workers of one pipeline share it.")
    input_topic: str = Field("articles", min_length=1, description="Topic that articles are read from.")
    output_topic: str = Field("entities", min_length=1, description="Topic that enriched records are written to.")
    dead_letter_topic: str = Field(
        "articles.dead-letters", min_length=1, description="Topic for inputs that can never be enriched."
    )
    instance: str = Field(
        default_factory=socket.gethostname,
        min_length=1,
        description="Stable name of this worker, unique in the group (a StatefulSet's pod name): with the group it makes "
        "the transactional id, by which a restarted worker fences what it left behind. Default: the host name.",
    )
    session_timeout_s: float = Field(
        20.0, ge=6, le=300, description="Seconds after which the group gives a silent worker's partitions to others."
    )
    max_poll_interval_s: float = Field(
        120.0,
        ge=10,
        le=3600,
        description="Seconds that one turn of the loop may take before the group takes it for dead.",
    )
    transaction_timeout_s: float = Field(
        15.0,
        ge=5,
        le=300,
        description="Seconds after which the broker aborts an open transaction. Below the session timeout, so that a dead "
        "worker's transaction is settled when its partitions move; above three times the slowest commit.",
    )
    request_timeout_s: float = Field(10.0, gt=0, le=120, description="Seconds to wait for metadata and offsets.")
    start: Literal["resume", "beginning", "end"] = Field(
        "resume",
        description="Where a partition begins for which the group has no committed offset (they expire when the group has "
        "had no member for `offsets.retention.minutes`, 7 days by default). `resume`: behind the newest output that is "
        "there, which takes READ on the output topics; at the beginning where there never was one. `beginning` reads "
        "everything, which doubles what has outputs already; `end` leaves out what is there.",
    )
    allow_fewer_partitions: bool = Field(
        default=False,
        description="Whether to start where an output topic has fewer partitions than the input topic: outputs of the "
        "others are placed by their key, and `start=resume` is impossible for them.",
    )
    partition_timeout_s: float = Field(
        60.0,
        ge=4,
        le=3600,
        description="Seconds for which a partition may give nothing although there is more to read: then it is read again "
        "from its committed offset by a new client, and if that does not help the process ends (exit code 7).",
    )
    properties: dict[str, str | int | float | bool | FromFile] = Field(
        default_factory=dict,
        repr=False,
        description="Any librdkafka property, as a JSON object, e.g. `{\"security.protocol\": \"SSL\"}`; with the prefix "
        "`consumer.` or `producer.` for one client only. What exactly-once needs cannot be changed, and none "
        "may load code or run a command. A secret may stand in a file: "
        "`{\"sasl.password\": {\"file\": \"/run/secrets/password\"}}`.",
    )  # fmt: skip

    def client_properties(self) -> dict[str, str | int | float | bool]:
        """`properties`, with those that stand in files read now. Raises SettingsError."""
        return {
            name: value.read(name) if isinstance(value, FromFile) else value for name, value in self.properties.items()
        }
