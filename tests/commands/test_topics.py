"""`enricher topics create` against the real broker, and its plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from commands.cli_runner import run, unused_names
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ResourceType,
)
from support.patience import PATIENCE_S

from enricher.operate.topics import TopicView, plan_topics

if TYPE_CHECKING:
    from tools.kafka import Cluster

WANTED = {"in": 2**24, "out": 2_000_000, "dead": 2**24}


def partition_counts(broker: Cluster, environment: dict[str, str]) -> list[int | None]:
    """The number of partitions of each topic; None if it does not exist."""
    found = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=PATIENCE_S).topics
    topics = [topic for name, topic in environment.items() if name.endswith("_TOPIC")]
    return [len(found[topic].partitions) if topic in found else None for topic in topics]


@pytest.mark.broker
def test_topics_are_created_with_room_for_what_is_written(broker: Cluster) -> None:
    """They have equal partition counts, and max.message.bytes fits the settings.

    A second call changes nothing; a missing topic gets as many partitions as the input has.
    """
    environment = unused_names(broker.bootstrap_servers)
    environment["ENRICHER_ARTICLES__MAX_RECORD_BYTES"] = "3000000"
    result = run("topics", "create", "--partitions", "3", env=environment)
    assert result.exit_code == 0, result.output
    assert partition_counts(broker, environment) == [3, 3, 3]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    resource = ConfigResource(ResourceType.TOPIC, environment["ENRICHER_KAFKA__OUTPUT_TOPIC"])
    settings = admin.describe_configs([resource])[resource].result(timeout=PATIENCE_S)
    assert settings["max.message.bytes"].value == "3000000"
    other = environment | {"ENRICHER_KAFKA__OUTPUT_TOPIC": f"{environment['ENRICHER_KAFKA__OUTPUT_TOPIC']}-other"}
    assert run("topics", "create", env=other).exit_code == 0
    assert run("topics", "create", "--partitions", "5", env=other).output.count("exists") == 3
    assert partition_counts(broker, other) == [3, 3, 3]


@pytest.mark.parametrize(("brokers", "replicas", "in_sync"), [(5, 3, "2"), (3, 3, "2"), (2, 2, None), (1, 1, None)])
def test_a_plan_keeps_what_the_brokers_can_keep(brokers: int, replicas: int, in_sync: str | None) -> None:
    """With three brokers, records survive the loss of one, and writing goes on. Only the inputs are unpacked."""
    existing = TopicView("other", partitions=6, replicas=1, in_sync=1, leaderless=0)
    plans = plan_topics(
        WANTED | {"other": 1}, dict.fromkeys(WANTED) | {"other": existing}, inputs=["in", "other"], brokers=brokers,
        partitions=None, replicas=None,
    )  # fmt: skip
    assert [("in", 6, replicas), ("out", 6, replicas), ("dead", 6, replicas)] == [
        (plan.topic, plan.num_partitions, plan.replication_factor) for plan in plans
    ]
    settings = [plan.config or {} for plan in plans]
    assert {in_sync} == {each.get("min.insync.replicas") for each in settings}
    assert ["uncompressed", None, None] == [each.get("compression.type") for each in settings]


@pytest.mark.broker
def test_the_broker_refuses_what_would_be_too_large_when_it_is_unpacked(broker: Cluster) -> None:
    """Neither 40 MB in 2 KB of zstd nor 20 MB in gzip gets into an input topic that `topics create` made."""
    environment = unused_names(broker.bootstrap_servers)
    assert run("topics", "create", "--partitions", "1", env=environment).exit_code == 0
    refused: list[str] = []
    for codec, size_bytes in (("zstd", 40_000_000), ("gzip", 20_000_000)):
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "compression.type": codec,
                "message.max.bytes": 200_000_000,
            }
        )
        producer.produce(
            environment["ENRICHER_KAFKA__INPUT_TOPIC"],
            b"a" * size_bytes,
            on_delivery=lambda error, _message: refused.append(error.name() if error else "taken"),
        )
        assert producer.flush(PATIENCE_S) == 0
    assert refused == ["MSG_SIZE_TOO_LARGE"] * 2
