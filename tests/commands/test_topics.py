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
def test_three_topics_are_created_with_room_for_what_is_written(broker: Cluster) -> None:
    """They have equal partition counts, and max.message.bytes fits the settings."""
    environment = unused_names(broker.bootstrap_servers)
    environment["ENRICHER_ARTICLES__MAX_RECORD_BYTES"] = "3000000"
    result = run("topics", "create", "--partitions", "3", env=environment)
    assert result.exit_code == 0, result.output
    assert partition_counts(broker, environment) == [3, 3, 3]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    resource = ConfigResource(ResourceType.TOPIC, environment["ENRICHER_KAFKA__OUTPUT_TOPIC"])
    settings = admin.describe_configs([resource])[resource].result(timeout=PATIENCE_S)
    assert settings["max.message.bytes"].value == "3000000"


@pytest.mark.broker
def test_existing_topics_are_left_alone_and_set_the_partition_count(broker: Cluster) -> None:
    """A second call changes nothing; a missing topic gets as many partitions as the input has."""
    environment = unused_names(broker.bootstrap_servers)
    other = environment | {"ENRICHER_KAFKA__OUTPUT_TOPIC": f"{environment['ENRICHER_KAFKA__OUTPUT_TOPIC']}-other"}
    assert run("topics", "create", "--partitions", "2", env=environment).exit_code == 0
    result = run("topics", "create", env=other)
    assert result.exit_code == 0, result.output
    assert partition_counts(broker, other) == [2, 2, 2]
    assert "has 2 partitions, not 5" in " ".join(run("topics", "create", "--partitions", "5", env=other).output.split())
    assert partition_counts(broker, other) == [2, 2, 2]


@pytest.mark.broker
def test_a_dry_run_creates_nothing(broker: Cluster) -> None:
    """It prints the plan and creates nothing."""
    environment = unused_names(broker.bootstrap_servers)
    result = run("topics", "create", "--dry-run", env=environment)
    assert result.exit_code == 0, result.output
    assert "would be created" in result.output
    assert partition_counts(broker, environment) == [None, None, None]


@pytest.mark.broker
def test_what_the_broker_refuses_is_told(broker: Cluster) -> None:
    """More replicas than brokers give exit code 4 with the broker's message."""
    environment = unused_names(broker.bootstrap_servers)
    result = run("topics", "create", "--replication-factor", "3", env=environment)
    assert getattr(result.exception, "exit_code", None) == 4
    assert "INVALID_REPLICATION_FACTOR" in str(result.exception)


def test_three_brokers_give_three_replicas_of_which_two_must_be_in_sync() -> None:
    """With three brokers, acknowledged records survive the loss of one broker, and writing goes on."""
    missing = dict.fromkeys(WANTED)
    for step in plan_topics(WANTED, missing, inputs=["in"], brokers=5, partitions=None, replicas=None):
        assert step.plan is not None
        assert (step.plan.partitions, step.plan.replicas) == (8, 3)
        assert step.plan.settings["min.insync.replicas"] == "2"


def test_one_broker_gets_no_rule_that_it_cannot_keep() -> None:
    """With one replica min.insync.replicas stays as it is."""
    missing = dict.fromkeys(WANTED)
    for step in plan_topics(WANTED, missing, inputs=["in"], brokers=1, partitions=None, replicas=None):
        assert step.plan is not None
        assert "min.insync.replicas" not in step.plan.settings


def test_only_the_input_topic_is_unpacked_by_the_broker() -> None:
    """Others publish to it; the topics that the worker writes keep the producer's compression."""
    missing = dict.fromkeys(WANTED)
    steps = plan_topics(WANTED, missing, inputs=["in"], brokers=1, partitions=None, replicas=None)
    found = [step.plan.settings.get("compression.type") for step in steps if step.plan]
    assert found == ["uncompressed", None, None]


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


def test_a_difference_is_reported_and_not_repaired() -> None:
    """An existing topic has no plan, whatever its settings."""
    existing = TopicView("in", partitions=6, replicas=1, in_sync=1, leaderless=0)
    steps = plan_topics(
        WANTED, {"in": existing, "out": None, "dead": None}, inputs=["in"], brokers=3, partitions=4, replicas=None
    )
    assert [step.plan is None for step in steps] == [True, False, False]
    assert steps[0].differs == "has 6 partitions, not 4; has 1 replicas, not 3"
