"""Topics for single tests, on the broker of the whole run."""

from __future__ import annotations

from dataclasses import dataclass, field

from tools import topics

PARTITIONS = 4
LARGE_MESSAGE_BYTES = 16 * 2**20

QUICK_TO_START = {"ENRICHER_BATCHING__BUCKET_EDGES": "[128]", "ENRICHER_MODEL__CONCURRENCY": "1"}
"""A worker warms its model up for each length of batches and each thread: 0.5 s of processor time instead of 2.5."""


@dataclass(frozen=True, slots=True)
class Topics(topics.Topics):
    """Three topics and a group for one test, and the environment that makes a worker use them."""

    environment: dict[str, str] = field(repr=False)


def make_topics(bootstrap_servers: str, partitions: int = PARTITIONS) -> Topics:
    """Create three topics with unique names."""
    names = topics.Topics.fresh(bootstrap_servers, "test")
    kept = {"retention.ms": "-1"}  # else a record whose time is long past is deleted at any moment
    large = kept | {"max.message.bytes": str(LARGE_MESSAGE_BYTES)}
    config = dict(zip(names.all, (large, kept, large), strict=True))
    topics.make_topics(bootstrap_servers, names.all, partitions, config=config)
    return Topics(bootstrap_servers, *names.all, names.group, {**QUICK_TO_START, **names.variables()})
