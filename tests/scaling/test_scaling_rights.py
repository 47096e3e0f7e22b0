"""The rights that `enricher lag` needs on a broker with access control, and what it prints without them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import ResourceType
from security.rights import Right, give, take
from security.secured import Secured, secured_broker, write_papers
from security.working import Place, place_at

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker with TLS, passwords and rights."""
    with secured_broker(write_papers(tmp_path_factory.mktemp("papers"))) as broker:
        yield broker


def read_topic(place: Place) -> Right:
    """The one right on the topic."""
    return Right("input", "READ", ResourceType.TOPIC, place.topics.input)


def describe_group(place: Place) -> Right:
    """The one right on the group."""
    return Right("group", "DESCRIBE", ResourceType.GROUP, place.topics.group)


def test_two_rights_are_enough_and_each_is_needed(secured: Secured) -> None:
    """READ on the topic and DESCRIBE on the group are enough; a missing one is named, with exit code 4."""
    place = place_at(secured, "PASSWORDS", rights=False)
    place = replace(place, environment={**place.environment, "ENRICHER_KAFKA__REQUEST_TIMEOUT_S": "30"})
    producer = Producer({"bootstrap.servers": secured.admin_address})
    producer.produce(place.topics.input, b"{}", partition=0)
    assert producer.flush(30) == 0
    give(secured, [read_topic(place), describe_group(place)])
    allowed = place.run("lag", "--max-lag", "0")
    assert allowed.code == 9, allowed.said
    assert "1 behind in 1 of 4 partitions" in allowed.said

    take(secured, describe_group(place))
    refused = place.run("lag")
    assert refused.code == 4, refused.said
    assert f"READ on the group '{place.topics.group}'" in refused.message

    give(secured, [describe_group(place)])
    take(secured, read_topic(place))
    refused = place.run("lag")
    assert refused.code == 4, refused.said
    assert f"READ on the topic '{place.topics.input}'" in refused.message
