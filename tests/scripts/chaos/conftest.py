"""Workers on the broker of the run, behind its proxy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.doctored import names_of
from support.lives import Field
from support.series import running
from support.topics import Topics

from tools.chaos.proxy import Proxy
from tools.chaos.scene import Scene
from tools.kafka import Cluster


@pytest.fixture(scope="module")
def scene(broker_and_proxy: tuple[Proxy, Cluster], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Workers that all tests of a file share."""
    with running(tmp_path_factory.mktemp("workers"), broker_and_proxy) as scene:
        yield scene


@pytest.fixture
def field(proxy: Proxy, topics: Topics, tmp_path: Path) -> Iterator[Field]:
    """Fresh topics; processes end with the test."""
    field = Field(proxy, topics.bootstrap_servers, names_of(topics), tmp_path)
    try:
        yield field
    finally:
        proxy.lift_all()
        for life in field.lives:
            life.close()
