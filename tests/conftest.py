"""What every test folder shares: one real broker for the whole run, and fresh topics for each test that asks."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from broker import Cluster

# Our own threads share the tokenizing; read by the library when it is loaded.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

PARTITIONS = 4
LARGE_MESSAGE_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Topics:
    """Three topics and a group of a test's own, and the environment that makes a worker use them."""

    bootstrap_servers: str
    input: str
    output: str
    dead_letters: str
    group: str
    environment: dict[str, str] = field(repr=False)


@pytest.fixture(scope="session")
def broker() -> Iterator[Cluster]:
    """A real Apache Kafka of one node."""
    with Cluster(nodes=1) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of the developer's own environment, and no `.env` or TOML file of the current folder, reaches a test."""
    for name in [name for name in os.environ if name.startswith("ENRICHER_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def topics(broker: Cluster) -> Topics:
    """Fresh topics with four partitions each."""
    return make_topics(broker.bootstrap_servers)


def make_topics(bootstrap_servers: str, partitions: int = PARTITIONS) -> Topics:
    """Create three topics with a name that nobody else uses."""
    name = f"t{uuid.uuid4().hex[:10]}"
    settings = {"max.message.bytes": str(LARGE_MESSAGE_BYTES)}
    names = {"input": f"{name}.articles", "output": f"{name}.entities", "dead_letter": f"{name}.dead-letters"}
    new = [
        NewTopic(topic, num_partitions=partitions, replication_factor=1, config={} if role == "output" else settings)
        for role, topic in names.items()
    ]
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.create_topics(new).values():
        future.result(timeout=30)
    environment = {
        "ENRICHER_KAFKA__BOOTSTRAP_SERVERS": bootstrap_servers,
        "ENRICHER_KAFKA__GROUP_ID": f"{name}.group",
        "ENRICHER_KAFKA__INSTANCE": "worker-0",
        **{f"ENRICHER_KAFKA__{role.upper()}_TOPIC": topic for role, topic in names.items()},
    }
    return Topics(
        bootstrap_servers=bootstrap_servers,
        input=names["input"],
        output=names["output"],
        dead_letters=names["dead_letter"],
        group=f"{name}.group",
        environment=environment,
    )
