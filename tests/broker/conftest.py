"""What the tests of the broker package share."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from broker import Cluster
from broker.properties import QUICK_TO_NOTICE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TIMEOUT_S = 20.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One node for the tests of a module that leave it as they found it."""
    with Cluster(properties=QUICK_TO_NOTICE) as started:
        yield started


@pytest.fixture
def make_topic() -> Callable[[str], str]:
    """Make a topic with a name of its own at these bootstrap servers, and say its name."""

    def make(bootstrap_servers: str) -> str:
        name = f"test-{uuid.uuid4().hex}"
        client = AdminClient({"bootstrap.servers": bootstrap_servers})
        client.create_topics([NewTopic(name, 1)])[name].result(_TIMEOUT_S)
        return name

    return make
