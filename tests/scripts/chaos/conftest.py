"""One real node behind a proxy for all tests of this folder; each test's rules end with the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.doctored import names_of
from support.lives import Field
from support.series import running
from support.topics import Topics, make_topics

from tools.chaos.proxied import nodes_behind_a_proxy
from tools.chaos.proxy import Proxy
from tools.chaos.scene import Scene
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


@pytest.fixture(scope="module")
def scene(shared_proxy: tuple[Proxy, Cluster], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Workers on the shared node."""
    with running(tmp_path_factory.mktemp("workers"), shared_proxy) as scene:
        yield scene


@pytest.fixture
def field(proxy: Proxy, direct: Topics, tmp_path: Path) -> Iterator[Field]:
    """Fresh topics; processes end with the test."""
    field = Field(proxy, direct.bootstrap_servers, names_of(direct), tmp_path, [])
    try:
        yield field
    finally:
        proxy.lift_all()
        for life in field.lives:
            life.close()
