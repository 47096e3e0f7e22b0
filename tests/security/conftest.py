"""One secured broker for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from security.secured import Secured, secured_broker, write_papers


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker with TLS, passwords, client certificates and rights."""
    with secured_broker(write_papers(tmp_path_factory.mktemp("papers"))) as broker:
        yield broker
