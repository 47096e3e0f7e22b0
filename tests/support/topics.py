"""Topics for single tests, on the broker of the whole run."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from confluent_kafka.admin import AdminClient, NewTopic

from support.patience import PATIENCE_S

PARTITIONS = 4
LARGE_MESSAGE_BYTES = 16 * 2**20

QUICK_TO_START = {"ENRICHER_BATCHING__BUCKET_EDGES": "[128]", "ENRICHER_MODEL__CONCURRENCY": "1"}
"""A worker warms its model up for each length of batches and each thread: 0.5 s of processor time instead of 2.5."""


@dataclass(frozen=True, slots=True)
class Topics:
    """Three topics and a group for one test, and the environment that makes a worker use them."""

    bootstrap_servers: str
    input: str
    output: str
    dead_letters: str
    group: str
    environment: dict[str, str] = field(repr=False)


def make_topics(bootstrap_servers: str, partitions: int = PARTITIONS) -> Topics:
    """Create three topics with unique names."""
    name = f"t{uuid.uuid4().hex[:10]}"
    kept = {"retention.ms": "-1"}  # else a record whose time is long past is deleted at any moment
    large = kept | {"max.message.bytes": str(LARGE_MESSAGE_BYTES)}
    names = {"input": f"{name}.articles", "output": f"{name}.entities", "dead_letter": f"{name}.dead-letters"}
    new = [
        NewTopic(topic, num_partitions=partitions, replication_factor=1, config=kept if role == "output" else large)
        for role, topic in names.items()
    ]
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.create_topics(new).values():
        future.result(timeout=PATIENCE_S)
    while not set(names.values()) <= admin.list_topics(timeout=PATIENCE_S).topics.keys():
        admin.poll(0.05)
    environment = {
        **QUICK_TO_START,
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
