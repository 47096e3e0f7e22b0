"""The three topics of a run and its consumer group, under names that nobody else has."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Topics:
    """Where a worker reads and writes: its brokers, topics and group. The topics need not exist."""

    bootstrap_servers: str
    input: str
    output: str
    dead_letters: str
    group: str

    @classmethod
    def fresh(cls, bootstrap_servers: str, prefix: str) -> Self:
        """Unique names that begin with `prefix`."""
        return cls.named(bootstrap_servers, f"{prefix}-{uuid.uuid4().hex[:8]}")

    @classmethod
    def named(cls, bootstrap_servers: str, name: str) -> Self:
        """The names that begin with `name`, which is also the group's."""
        return cls(bootstrap_servers, f"{name}.articles", f"{name}.entities", f"{name}.dead-letters", name)

    @property
    def all(self) -> tuple[str, str, str]:
        """All three topics."""
        return self.input, self.output, self.dead_letters

    def kafka_settings(self, instance: str) -> dict[str, str]:
        """The group `kafka` of the settings of a worker."""
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "group_id": self.group,
            "instance": instance,
            "input_topic": self.input,
            "output_topic": self.output,
            "dead_letter_topic": self.dead_letters,
        }

    def variables(self, instance: str = "worker-0") -> dict[str, str]:
        """The same settings as environment variables."""
        return {f"ENRICHER_KAFKA__{name.upper()}": value for name, value in self.kafka_settings(instance).items()}
