"""One real node behind a proxy for all tests of this folder; each test's rules end with the test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.proxied import nodes_behind_a_proxy
from support.topics import Topics, make_topics

from tools.chaos.proxy import Proxy
from tools.kafka import Cluster


@pytest.fixture(scope="session")
def shared_proxy(kafka_version: str) -> Iterator[tuple[Proxy, Cluster]]:
    """A proxy, and the node that advertises the proxy to its clients."""
    with nodes_behind_a_proxy(1, version=kafka_version) as shared:
        yield shared


@pytest.fixture
def proxy(shared_proxy: tuple[Proxy, Cluster]) -> Iterator[Proxy]:
    """The proxy, without any rule."""
    proxy, _ = shared_proxy
    yield proxy
    proxy.lift_all()


@pytest.fixture
def direct(shared_proxy: tuple[Proxy, Cluster]) -> Topics:
    """Fresh topics, as seen past the proxy."""
    return make_topics(shared_proxy[1].bootstrap_servers)
